"""Checks of a study's privacy settings: combinations for which the ledger could not account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedbo.algorithms.base import Algorithm, LocallyPrivate, Private, Problem
from fedbo.coordinator.privacy.local import unkept_promise
from fedbo.coordinator.privacy.secure_aggregation import why_not_masked
from fedbo.study.invalid import InvalidSetting

if TYPE_CHECKING:
    from fedbo.study.study import Study


def privacy_asked(study: Study) -> Iterator[InvalidSetting]:
    """Refuse terms of privacy that no algorithm of the study could keep."""
    made = [table.make() for table in study.algorithm]
    problem = Problem(len(study.federation().parameters), study.federation().n_agents, study.targets, 0, 1)
    private = [algorithm.mechanism(problem) for algorithm in made if isinstance(algorithm, Private)]
    asked = study.privacy.model_dump(exclude_defaults=True)
    if any(isinstance(algorithm, LocallyPrivate) and algorithm.hides for algorithm in made):
        asked.pop("deltas", None)  # they report what they cost, and take no other terms
    if asked and not private:
        asked.pop("secure_aggregation", None)  # told of each algorithm
        for key in asked:
            yield InvalidSetting(
                ("privacy", key), "has no effect: no algorithm of this study passes its messages through a mechanism"
            )
    elif "epsilon_max" in asked and not any(mechanism.noise for mechanism in private):
        yield InvalidSetting(
            ("privacy", "epsilon_max"), "has no effect: no algorithm of this study adds noise, so that none is private"
        )


def private_combinations(study: Study, number: int, algorithm: Algorithm) -> Iterator[InvalidSetting]:
    """List what does not go together with an algorithm, number `number`, whose messages are private."""
    if wrong := unkept_promise(algorithm, study.evaluation.make()):
        yield InvalidSetting(("evaluation", "failure"), f"'{study.algorithm[number].name}' keeps no promise where this {wrong}")
    yield from _masked(study, number, algorithm)
    if not isinstance(algorithm, Private):
        return
    name, exchange = study.algorithm[number].name, study.exchange.make()
    problem = Problem(len(study.federation().parameters), study.federation().n_agents, study.targets, 0, 1)
    mechanism = algorithm.mechanism(problem)
    if exchange.selection.who != "all":
        remedy = f"'{name}' draws by its own share whom to ask; leave the selection out, or set who = \"all\""
        yield InvalidSetting(("exchange", "selection", "who"), remedy)
    if not exchange.is_synchronous and mechanism.share < 1:
        remedy = f"under '{exchange.mode}' there are no rounds to sample, and nothing is gained by it; set share = 1"
        yield InvalidSetting(("algorithm", number, "share"), remedy)


def _masked(study: Study, number: int, algorithm: Algorithm) -> Iterator[InvalidSetting]:
    """Refuse secure aggregation of messages that are not only summed, or not in rounds."""
    table = study.algorithm[number]
    if study.privacy.secure_aggregation is None:
        return
    if why := why_not_masked(algorithm, study.problem_of(table), study.exchange.make()):
        yield InvalidSetting(("privacy", "secure_aggregation"), f"cannot serve '{table.title}', which {why}")
