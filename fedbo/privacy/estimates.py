"""The privacy that a study will spend, estimated before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from fedbo.algorithms.base import Algorithm, Mechanism, Private, Problem
from fedbo.privacy.accounting import epsilon_of, least_noise
from fedbo.privacy.aggregator import why_not_amplified
from fedbo.privacy.check_study import times_follow_points
from fedbo.privacy.gaussian import PrivacyCharge, sensitivities
from fedbo.privacy.ledger import inverse
from fedbo.privacy.study_table import SecureAggregationTable
from fedbo.study.environment.models import environment_of
from fedbo.study.study import Cell, Study

Charges = Counter[PrivacyCharge]


@dataclass(frozen=True, slots=True)
class PrivacyEstimate:
    """The epsilon that one algorithm will spend at each delta, in each replicate.

    `bound` is the certainty of the estimate:

    - empty: it is exactly what will be spent.
    - "at most": every message is charged in full, and fewer may arrive, or `epsilon_max` ends it.
    - "at least": rounds are charged, and there may be more of them.
    - "about": there may also be fewer rounds, since faults, groups or a limit of time end them.

    `whole` is the reason against a gain from sampling; it is empty if there will be one. `times` tells how the times of
    messages reveal private values, outside the guarantee.
    """

    cell: str
    algorithm: str
    deltas: tuple[float, ...]
    epsilon: tuple[float, ...]
    whole: str
    bound: str
    times: str


@dataclass(frozen=True, slots=True)
class TotalEstimate:
    """The epsilon of all private runs of a study together, if these concern the same agents, and its certainty."""

    runs: int
    deltas: tuple[float, ...]
    epsilon: tuple[float, ...]
    bound: str


@dataclass(frozen=True, slots=True)
class NoiseNeeded:
    """The noise multiplier that one algorithm needs for an epsilon at `delta` in one run, and its present one.

    `needed` is None if no noise is enough; `bound` is the certainty of the `epsilon` of the present `noise`, as in an estimate.
    """

    cell: str
    algorithm: str
    mode: str
    releases: int
    delta: float
    noise: float
    epsilon: float
    needed: float | None
    bound: str


def privacy_estimates(study: Study) -> list[PrivacyEstimate]:
    """Estimate the spending of every private algorithm in every cell."""
    return [_estimate(cell.study, cell.title, label, made) for cell, label, made in _private(study)]


def _private(study: Study) -> Iterator[tuple[Cell, str, Private]]:
    for cell in study.cells():
        for table in cell.study.algorithm:
            if isinstance(made := table.make(), Private):
                yield cell, table.title, made


def total_estimate(study: Study) -> TotalEstimate | None:
    """Compose the estimates of all private runs; None if fewer than two runs are private."""
    total, runs, bounds, deltas = Counter[PrivacyCharge](), 0, set[str](), dict[float, None]()
    for cell, _, made in _private(study):
        if not (mechanism := made.mechanism(cell.study.problem())).noise:
            continue
        charges, bound = _charges(cell.study, made, mechanism)
        for charge, times in charges.items():
            total[charge] += times * cell.study.study.replicates
        runs, bounds = runs + cell.study.study.replicates, bounds | {bound}
        deltas |= dict.fromkeys(cell.study.privacy.deltas or ())
    if runs < 2:
        return None
    # A budget may end each run earlier. Several budgets together have no sum at one delta.
    bounds |= {"at most"} if study.privacy.epsilon_max is not None else set()
    bound = bounds.pop() if len(bounds) == 1 else "at most" if bounds == {"", "at most"} else "about"
    return TotalEstimate(runs, tuple(deltas), tuple(epsilon_of(total, delta) for delta in deltas), bound)


def _estimate(study: Study, cell: str, label: str, algorithm: Private) -> PrivacyEstimate:
    mechanism, terms = algorithm.mechanism(study.problem()), study.privacy
    charges, bound = _charges(study, algorithm, mechanism)
    deltas, most = terms.deltas or (), terms.epsilon_max
    found = tuple(epsilon_of(charges, delta) for delta in deltas)
    if most is not None and mechanism.noise and found and (max(found) > most or bound in ("at least", "about")):
        # It binds at the smallest delta, where epsilon is largest.
        found, bound = tuple(min(epsilon, most) if max(found) > most else most for epsilon in found), "at most"
    return PrivacyEstimate(
        cell, label, deltas, epsilon=found, whole=_whole(study, algorithm), bound=bound, times=times_follow_points(study)
    )


def _whole(study: Study, algorithm: Private) -> str:
    masked = study.privacy.secure_aggregation is not None
    mechanism = algorithm.mechanism(study.problem())
    return why_not_amplified(mechanism, study.exchange.make(), environment_of(study).is_real_time, masked)


def noise_needed(study: Study, epsilon: float, delta: float | None) -> list[NoiseNeeded]:
    """Return the noise multiplier for which each private algorithm of each cell spends `epsilon` in one run, with its weights.

    It holds at `delta`, by default the smallest of the study's.
    """
    known: dict[Any, float | None] = {}  # methods that differ in other settings alone need the same
    return [_needed(cell, label, made, epsilon, delta, known) for cell, label, made in _private(study)]


def _needed(
    cell: Cell, label: str, algorithm: Private, epsilon: float, delta: float | None, known: dict[Any, float | None]
) -> NoiseNeeded:
    study = cell.study
    mechanism = algorithm.mechanism(study.problem())
    # The noisy count of a quantile is part of the multiplier, which stays below twice its own noise.
    most = mechanism.count_noise * 2 * (1 - 1e-6) if mechanism.quantile is not None else inf
    chosen = min(study.privacy.deltas or ()) if delta is None else delta

    def charged(noise: float) -> Charges:
        return _charges(study, algorithm, replace(mechanism, noise=min(noise, most)))[0]

    found = None
    if mechanism.clip < inf:
        same = frozenset(charged(1.0).items()), most, chosen
        if same not in known:
            known[same] = least_noise(lambda noise: epsilon_of(charged(noise), chosen), epsilon)
        found = known[same]
    now, bound = _charges(study, algorithm, mechanism)
    return NoiseNeeded(
        cell=cell.title,
        algorithm=label,
        mode=study.exchange.mode,
        releases=sum(now.values()),
        delta=chosen,
        noise=mechanism.noise,
        epsilon=epsilon_of(now, chosen),
        needed=None if found is None else min(found, most),
        bound=bound,
    )


def _charges(study: Study, algorithm: Private, mechanism: Mechanism) -> tuple[Charges, str]:
    """Return the charges of the agent that spends most, and their certainty, as `bound` of an estimate."""
    assert isinstance(algorithm, Algorithm)
    problem, whole, rounds = study.problem(), _whole(study, algorithm), _rounds(study)
    if whole and rounds:
        # Each message is in one release at most, of whichever number, so that no weight of its own can be told.
        messages = sum(algorithm.sends(step) for step in range(problem.iterations + 1))
        return Counter({PrivacyCharge(1.0, mechanism.noise): messages}), "at most"
    releases = sum(algorithm.sends(step) for step in range(problem.iterations))
    norms = [float(sensitivities(mechanism, algorithm.weights(problem, number)).max()) for number in range(releases)]
    fixed = mechanism.sampling == "fixed" and not whole
    share, population = (1.0, 0) if whole else (mechanism.share, problem.n_agents if fixed else 0)
    charges = Counter(PrivacyCharge(share, inverse(norm), "fixed" if fixed else "poisson", population) for norm in norms)
    return charges, "at most" if whole else rounds


def _rounds(study: Study) -> str:
    """Return the certainty that there are as many rounds as decisions after which agents send; empty if certain."""
    ends = study.budget.time is not None or study.budget.evaluations is not None
    if ends or study.group or study.fault:
        return "about"
    return "" if study.exchange.mode == "barrier" and study.availability.model == "always" else "at least"


def mask_bytes(study: Study, algorithm: Algorithm, problem: Problem) -> tuple[int, int]:
    """Count the bytes that secure aggregation adds to a message and to an answer."""
    masks: SecureAggregationTable | None = study.privacy.secure_aggregation
    if masks is None or not isinstance(algorithm, Private):
        return 0, 0
    (declared,) = (algorithm.upload(problem) or {}).values()
    agents = problem.n_agents if algorithm.sends(0) else len(problem.targets)
    found: tuple[int, int] = masks.make().added_bytes(algorithm.mechanism(problem), declared.shape[0], agents)
    return found
