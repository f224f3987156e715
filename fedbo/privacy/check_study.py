"""Checks of the privacy of a study: settings that its ledger cannot account for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedbo.algorithms.base import Algorithm, LocallyPrivate, Multiple, Private
from fedbo.coordinator.environment.faults import Lie
from fedbo.privacy.gaussian import WEAK_DELTA
from fedbo.privacy.secure_aggregation import why_not_masked
from fedbo.settings.errors import SettingError
from fedbo.study.problems import bare_problem, goals, problem_of
from fedbo.study.study_tables import StudyTables

_BLIND_BUDGETS = frozenset(("iterations", "pulls", "time", "evaluations"))  # they end a study whatever the values are


def privacy_asked(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for privacy settings that no algorithm of the study can satisfy, or that would break a guarantee."""
    made = [(table.title, table.make()) for table in study.algorithm]
    mechanisms = [(title, one.mechanism(bare_problem(study))) for title, one in made if isinstance(one, Private)]
    central = [title for title, mechanism in mechanisms if mechanism.noise]
    local = [title for title, one in made if isinstance(one, LocallyPrivate) and one.hides]
    asked = study.privacy.model_dump(exclude_defaults=True)
    if local:
        asked.pop("deltas", None)  # they report what they cost, and take no other terms
    if asked and not mechanisms:
        asked.pop("secure_aggregation", None)  # told of each algorithm
        for key in asked:
            yield SettingError(("privacy", key), "has no effect: no algorithm of this study uses a privacy mechanism")
    elif "epsilon_max" in asked and not central:
        yield SettingError(("privacy", "epsilon_max"), "has no effect: no algorithm of this study adds noise")
    elif "epsilon_max" in asked and (least := min(study.privacy.deltas or (0.0,))) > WEAK_DELTA:
        words = f"applies at the smallest delta, {least:.3g}, where most releases cost nothing"
        yield SettingError(("privacy", "epsilon_max"), f"{words}; add a delta of at most {WEAK_DELTA:g}")
    elif study.privacy.secure_noise and local:
        words = f"does not apply to the noise of '{local[0]}', which agents draw themselves; remove one of them"
        yield SettingError(("privacy", "secure_noise"), words)
    if central or local:
        yield from _seen_by_others(study, (central + local)[0])
    if central:
        yield from _copies(study, central[0])


def private_combinations(study: StudyTables, number: int, algorithm: Algorithm) -> Iterator[SettingError]:
    """Yield the errors in the combination of a study with algorithm number `number`, if its messages are private."""
    yield from _masked(study, number, algorithm)
    if not isinstance(algorithm, Private):
        return
    name, exchange = study.algorithm[number].name, study.exchange.make()
    mechanism = algorithm.mechanism(bare_problem(study))
    if exchange.selection.who != "all" or exchange.selection.concurrency is not None:
        remedy = f"'{name}' selects agents by its own share; remove the selection"
        key = "who" if exchange.selection.concurrency is None else "concurrency"
        yield SettingError(("exchange", "selection", key), remedy)
    if not exchange.is_synchronous and mechanism.share < 1:
        remedy = f"has no rounds in which '{study.algorithm[number].title}' could sample its share of agents"
        yield SettingError(("exchange", "mode"), f'{remedy}; set mode = "barrier", or share = 1 in that algorithm')
    found = goals(study)
    if mechanism.noise and found is not None and found.constraints and not isinstance(algorithm, Multiple):
        words = "does not learn limits, so an agent sends nothing before its first feasible point, which its silence reveals"
        yield SettingError(("algorithm", number, "name"), f"{words}; use dp_fts_de, or remove the limits")


def _seen_by_others(study: StudyTables, name: str) -> Iterator[SettingError]:
    """Yield errors for settings that make message times or the study's end depend on private values, which no noise hides."""
    words = f"depends on private values of '{name}' and reveals them through the times of messages"
    if study.stopping is not None:
        yield SettingError(("stopping", "kind"), f"{words}; remove [stopping], or run '{name}' in a study without it")
    # A budget that is not known to be blind is refused.
    for key in sorted(study.budget.model_dump(exclude_none=True).keys() - _BLIND_BUDGETS):
        yield SettingError(("budget", key), f"{words}; remove it, or run '{name}' in a study without it")


def times_follow_points(study: StudyTables) -> str:
    """Return why the times of messages depend on the points that agents choose; empty where they do not."""
    if study.timing.clock == "wall":
        return "evaluations take real time"
    tables = [study.timing.evaluation, *(group.evaluation for group in study.group if group.evaluation is not None)]
    # A model that does not declare whether it follows costs is taken to follow them.
    names = [table.model for table in tables if getattr(table.make(), "costs", True)]
    return f"the duration of an evaluation depends on its point ('{names[0]}')" if names else ""


def weak_deltas(deltas: Iterable[float]) -> str:
    """Return a warning of deltas at which epsilon is a weak guarantee; empty where there are none."""
    weak = sorted({delta for delta in deltas if delta > WEAK_DELTA}, reverse=True)
    if not weak:
        return ""
    return (
        f"epsilon at delta {weak[0]:.3g} is a weak guarantee: publishing one agent's data with this probability costs epsilon 0"
    )


def _copies(study: StudyTables, name: str) -> Iterator[SettingError]:
    """Yield errors for lies that copy other agents' messages: each multiplies one agent's influence, which is charged once."""
    for number, table in enumerate(study.fault):
        fault = table.make()
        if isinstance(fault, Lie) and not fault.is_own:
            words = f"sends another agent's message, but '{name}' charges that agent once; use \"inverted\""
            yield SettingError(("fault", number, "how"), words)


def _masked(study: StudyTables, number: int, algorithm: Algorithm) -> Iterator[SettingError]:
    """Yield an error for secure aggregation of messages that are not only summed, or not in rounds."""
    table = study.algorithm[number]
    if study.privacy.secure_aggregation is None:
        return
    if why := why_not_masked(algorithm, problem_of(study, table), study.exchange.make()):
        yield SettingError(("privacy", "secure_aggregation"), f"does not support '{table.title}', which {why}")
