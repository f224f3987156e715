"""Laws of the privacy ledger, from the events, the public weights and the closed form of the Gaussian mechanism."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import optimize, stats

from fedbo.algorithms.base import LocallyPrivate, Private
from fedbo.privacy.ledger import LOCAL
from tests.random_studies.run_tables import NEAR, Row, RunTables


def ledger(run: RunTables) -> Iterator[str]:
    """Check that every message that arrived is in the next release, each release is entered, and epsilon never falls."""
    made = run.task.algorithm
    if isinstance(made, LocallyPrivate) and made.hides:
        yield from _local(run)
        return
    if not isinstance(made, Private):
        return
    central = run.releases
    if [row["release"] for row in central] != list(range(len(central))):
        yield f"releases are numbered {[row['release'] for row in central]}"
    yield from _released(run, central)
    spent = [row["epsilon"] for row in central]
    for before, after in zip(spent, spent[1:], strict=False):
        if any(later < earlier - NEAR for earlier, later in zip(before, after, strict=True)):
            yield f"epsilon falls from {before} to {after}"
    if made.mechanism(run.task.problem).noise:  # what adds no noise has no budget
        yield from _within_budget(run, central)
    yield from _charged(run, made, central)
    yield from _recomputed(run, central)


def _within_budget(run: RunTables, central: Sequence[Row]) -> Iterator[str]:
    """Check that releases keep the budget at every delta."""
    most = run.job.budget.epsilon_max
    for row in central:
        if most is not None and not row["refused"] and max(row["epsilon"]) > most * (1 + NEAR):
            yield f"release {row['release']} brings epsilon to {row['epsilon']}, epsilon_max is {most}"


def _local(run: RunTables) -> Iterator[str]:
    """Check that a message that its sender made private is charged once sent, whether it arrives or not."""
    sent = Counter(event["agent"] for event in run.of("sent") if not event["again"])
    entered = Counter(row["arrived"][0] for row in run.releases)
    if sent != entered or any(row["sampling"] not in LOCAL for row in run.releases):
        yield f"{dict(sent)} messages were sent, {dict(entered)} are in the ledger"


def _released(run: RunTables, central: Sequence[Row]) -> Iterator[str]:
    """Check that messages between two releases are in the second; at the instant of a release they may be in either."""
    last, aborted = -math.inf, {event["time"] for event in run.of("aborted")}
    for row in central:
        between = {e["agent"] for e in run.of("arrived") if last < e["time"] < row["time"]}
        near = {e["agent"] for e in run.of("arrived") if last <= e["time"] <= row["time"]}
        if row["time"] in aborted and row["arrived"] and row["time"] not in {event["time"] for event in run.of("unmasked")}:
            yield f"release {row['release']} has messages of {row['arrived']}, which nobody could unmask"
        elif row["time"] not in aborted and not row["refused"] and not between <= set(row["arrived"]) <= near:
            yield f"release {row['release']} has messages of {row['arrived']}; those of {sorted(between)} had arrived"
        last = row["time"]


def _charged(run: RunTables, made: Private, central: Sequence[Row]) -> Iterator[str]:
    """Check an agent's charge: its weights over the noise, sqrt(mean_p (phi_pn / phi_max)^2) / z (Dai et al. 2021, Prop. 1)."""
    problem = run.task.problem
    mechanism = made.mechanism(problem)
    if not mechanism.noise or mechanism.quantile is not None or not run.exchange.staleness.is_constant:
        return
    for row in central:
        weights = made.weights(problem, row["release"])
        largest = weights.max(axis=1, keepdims=True) if mechanism.per_block else weights.max()
        norms = np.sqrt(((weights / largest) ** 2).mean(axis=0)) / mechanism.noise
        for agent, norm in zip(row["charged"], row["norms"], strict=True):
            if norm < norms[agent] - NEAR:
                yield f"agent {agent} was charged {norm} for release {row['release']}, its weights cost {norms[agent]}"


def _recomputed(run: RunTables, central: Sequence[Row]) -> Iterator[str]:
    """Check epsilon against that of one Gaussian mechanism, if every message is charged in full (Dong, Roth, Su 2022)."""
    if not central or not all(row["whole"] for row in central):
        return
    squares: dict[int, float] = {}
    for row in central:
        for agent, norm in zip(row["charged"], row["norms"], strict=True):
            squares[agent] = squares.get(agent, 0.0) + norm * norm
    for row in run.spent:
        mu = math.sqrt(squares.get(row["agent"], 0.0))
        for delta, epsilon in zip(row["deltas"], row["epsilon"], strict=True):
            exact = gaussian(mu, delta)
            if abs(epsilon - exact) > 1e-4 * max(1.0, exact):
                yield f"agent {row['agent']} has epsilon {epsilon} at {delta}, {exact} by one Gaussian mechanism of mu {mu}"


def gaussian(mu: float, delta: float) -> float:
    """Return the epsilon at `delta` of a Gaussian mechanism with sensitivity over noise `mu` (Balle, Wang 2018, Theorem 8)."""
    if mu == 0 or math.isinf(mu):
        return mu

    def excess(epsilon: float) -> float:
        log_second = epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(log_second) - delta)

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-12))
