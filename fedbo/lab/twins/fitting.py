"""A world fitted to measurements: the models of its times, absences, crashes and losses, and their goodness of fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedbo.lab.twins.families import ALIKE, Array, Candidate, DurationRegression, best, candidates, regression
from fedbo.lab.twins.measurements import Measurements

DEPENDS = 0.01  # p below which durations count as depending on the agent, or on the configuration
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class DurationFit:
    """Fitted durations: the table of their timing model, the candidate families, and p of the chosen one.

    `p` is None if the model assumes nothing. `factors` multiply the durations of their agents.
    """

    table: Mapping[str, Any]
    tried: Sequence[Candidate] = ()
    factors: Mapping[int, float] = field(default_factory=dict)
    dependence: DurationRegression | None = None
    spread: float = 0.0
    count: int = 0

    @property
    def model(self) -> str:
        """Return the name of the timing model."""
        return str(self.table["model"])

    @property
    def p(self) -> float | None:
        """Return p of the chosen family; None if it assumes nothing testable."""
        if self.model == "log_linear" and self.dependence is not None:
            return self.dependence.p
        return next((one.p for one in self.tried if one.model == self.model), None)


@dataclass(frozen=True, slots=True)
class FittedWorld:
    """A world fitted to measurements, as tables of a study, and further measurements.

    - `begins`: how long each agent's first step took beyond its evaluations.
    - `startup`: None if no evaluation waited for a place.
    - `workers`: the number of simultaneous evaluations.
    - `failures`: the number of failed evaluations, and of all.
    - `places`: the number of the agent with each id of a log, by the order of ids; empty for a run.
    - `ended`: the number of absences and downtimes that had ended.
    - `unfinished`: the number of evaluations, absences and downtimes that had not ended, whose fitted times are too short.
    - `cluster`, `resources` and `preemptions`: those of the recorded study; `queued`: the mean time in its queue for workers.
    """

    evaluation: DurationFit
    latency: DurationFit | None
    decision: tuple[float, float] | None
    begins: Mapping[int, float]
    startup: float | None
    workers: int
    failures: tuple[int, int]
    availability: Mapping[str, float] | None = None
    absence_p: float | None = None
    faults: Sequence[Mapping[str, Any]] = ()
    cluster: Mapping[str, Any] = field(default_factory=dict)
    resources: Sequence[Mapping[str, float]] = ()
    preemptions: Sequence[Mapping[str, Any]] = ()
    queued: float | None = None
    interrupted: int = 0
    unfinished: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[int, int] = field(default_factory=dict)

    def p_of(self) -> dict[str, float | None]:
        """Return p of each fit, None where nothing was tested or where what had not ended is missing."""
        found = {"evaluation": None if self.unfinished.get("evaluations") else self.evaluation.p}
        if self.latency is not None:
            found["latency"] = self.latency.p
        return {**found, "absence": None if self.unfinished.get("absences") else self.absence_p}

    def tables(self) -> dict[str, Any]:
        """Return the tables of a study."""
        timing: dict[str, Any] = {"evaluation": dict(self.evaluation.table)}
        if self.decision is not None:
            timing["decision"] = {"coefficient": self.decision[0], "power": self.decision[1]}
        if self.latency is not None:
            timing["latency"] = dict(self.latency.table)
        found: dict[str, Any] = {"timing": timing}
        if self.availability is not None:
            found["availability"] = {"model": "markov", **self.availability}
        groups = [
            {"name": f"agent {agent}", "agents": [self.places.get(agent, agent)], "speed": {"factors": [factor]}}
            for agent, factor in sorted(self.evaluation.factors.items())
        ]
        if groups:
            found["group"] = groups
        if faults := [*self.faults, *self.preemptions]:
            found["fault"] = [dict(one) for one in faults]
        if self.cluster:
            found["cluster"] = dict(self.cluster)
        if self.resources:
            found["evaluation"] = {"resources": [dict(one) for one in self.resources]}
        return found


def fit_world(measured: Measurements, seed: int = 0, durations_file: str | None = None, resampled: bool = False) -> FittedWorld:
    """Fit a world; with the path of a `durations_file`, durations that no family fits are resampled from the measurements.

    If they are to be `resampled`, no family is used.
    """
    values, agents, points = measured.columns()
    return FittedWorld(
        evaluation=_durations((values, agents, points), seed, durations_file, resampled),
        latency=_latencies(np.array(measured.latencies), seed),
        decision=_decisions(measured),
        begins=_begins(measured.begins),
        startup=_rounded(np.mean(measured.startups)) if measured.startups else None,
        workers=measured.together,
        failures=(measured.failed, len(values)),
        **_absences(measured, seed),
        faults=list(_faults(measured)),
        cluster=measured.cluster,
        resources=measured.resources,
        preemptions=measured.preemptions,
        queued=float(np.mean(measured.queued)) if measured.queued else None,
        interrupted=measured.interrupted,
        unfinished=measured.unfinished,
        places=measured.places,
        ended={"absences": len(measured.absences), "downtimes": len(measured.downtimes)},
    )


def _durations(
    columns: tuple[Array, npt.NDArray[np.int64], Array], seed: int, file: str | None, resampled: bool
) -> DurationFit:
    """Choose the model of durations: constant, dependent on the point, a family, or resampled measurements."""
    values, agents, points = columns
    factors = _factors(values, agents)
    own = agents if factors else None
    evened = values / np.array([factors.get(agent, 1.0) for agent in agents.tolist()])
    mean, spread = float(evened.mean()), float(evened.std() / max(evened.mean(), 1e-300))
    if spread <= ALIKE:
        table = {"model": "constant", "mean": _rounded(mean)}
        return DurationFit(table, factors=factors, spread=spread, count=len(values))
    if values.min() <= 0:
        table = _measured(file, mean, factors)
        return DurationFit(table, factors={} if file else factors, spread=spread, count=len(values))
    dependence = regression(values, agents if factors else np.zeros_like(agents), points, seed)
    tried = candidates(values, own, seed)
    if dependence is not None and dependence.p_none < DEPENDS:
        slopes = [_rounded(slope) for slope in dependence.slopes]
        table = {
            "model": "log_linear",
            "mean": _rounded(dependence.mean),
            "slopes": slopes,
            "sigma": _rounded(dependence.sigma),
        }
        return DurationFit(table, tried, factors, dependence=dependence, spread=spread, count=len(values))
    chosen = None if resampled else best(tried)
    if chosen is None and file is not None:
        return DurationFit(_measured(file, mean, factors), tried, {}, dependence=dependence, spread=spread, count=len(values))
    chosen = chosen or tried[0]
    settings = {name: _rounded(value) for name, value in chosen.settings.items()}
    return DurationFit(
        {"model": chosen.model, **settings}, tried, factors, dependence=dependence, spread=spread, count=len(values)
    )


def _measured(file: str | None, mean: float, factors: Mapping[int, float]) -> dict[str, Any]:
    """Return the table of durations from a file, separate for each agent if agents differ."""
    return (
        {"model": "empirical", "file": file, "pooled": not factors} if file else {"model": "constant", "mean": _rounded(mean)}
    )


def _factors(values: Array, agents: npt.NDArray[np.int64]) -> dict[int, float]:
    """Return the factor of each agent's durations, if agents differ by a Kruskal-Wallis test; empty otherwise."""
    numbers, place, counts = np.unique(agents, return_inverse=True, return_counts=True)
    if len(numbers) < 2 or counts.min() < 3 or np.ptp(values) <= 1e-9 * values.max():
        return {}
    if stats.kruskal(*(values[place == one] for one in range(len(numbers)))).pvalue >= DEPENDS:
        return {}
    means = np.bincount(place, values) / counts
    return {int(agent): _rounded(mean / values.mean()) for agent, mean in zip(numbers, means, strict=True) if mean > 0}


def _latencies(values: Array, seed: int) -> DurationFit | None:
    """Fit latencies; if no family fits, use their mean."""
    if not len(values) or values.max() <= 0:
        return None
    mean, spread = float(values.mean()), float(values.std() / values.mean())
    tried = candidates(values, None, seed) if values.min() > 0 and spread > ALIKE and len(values) >= 5 else []
    chosen = best(tried)
    if chosen is None:
        return DurationFit({"model": "constant", "mean": _rounded(mean)}, tried, spread=spread, count=len(values))
    settings = {name: _rounded(value) for name, value in chosen.settings.items()}
    return DurationFit({"model": chosen.model, **settings}, tried, spread=spread, count=len(values))


def _decisions(measured: Measurements) -> tuple[float, float] | None:
    """Fit the time of a step beyond its evaluations: the power by least absolute deviations, the coefficient by the sum."""
    reports = float(np.mean(measured.reports)) if measured.reports else 0.0
    pairs = [(t_n, took) for t_n, took in measured.thoughts if t_n > 0]
    if not pairs:
        return (_rounded(reports), 0.0) if reports > 1e-9 else None
    t_n, took = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    took = took + reports
    if took.max() <= 1e-9:
        return None
    powers = np.arange(0.0, 4.01, 0.05) if len(np.unique(t_n)) >= 3 and (took > 0).all() else np.zeros(1)
    scales = [float(np.median(took / t_n**power)) for power in powers]
    lost = [float(np.abs(took - scale * t_n**power).sum()) for scale, power in zip(scales, powers, strict=True)]
    place = int(np.argmin(lost))
    power = float(powers[place])
    return _rounded(took.sum() / (t_n**power).sum()), round(power, 2)


def _begins(pairs: Iterable[tuple[int, float]]) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for agent, took in pairs:
        found.setdefault(agent, []).append(took)
    return {agent: _rounded(float(np.mean(took))) for agent, took in sorted(found.items())}


def _absences(measured: Measurements, seed: int) -> dict[str, Any]:
    """Fit exponential presences and absences, and test the finished absences."""
    if not measured.departures or not measured.absences:
        return {}
    absent = np.array(measured.absences)
    found = [one for one in candidates(absent, None, seed) if one.model == "exponential"] if absent.min() > 0 else []
    table = {"present": _rounded(measured.present / measured.departures), "absent": _rounded(float(absent.mean()))}
    return {"availability": table, "absence_p": found[0].p if found and len(absent) >= 5 else None}


def _faults(measured: Measurements) -> Iterable[dict[str, Any]]:
    """List the observed faults: crashes at a rate, and the share of lost transmissions."""
    if measured.crashes and measured.alive > 0:
        back = {"restart": _rounded(float(np.mean(measured.downtimes)) + _unnoticed(measured))} if measured.downtimes else {}
        yield {"kind": "crash", "rate": _rounded(measured.crashes / measured.alive), **back}
    if measured.lost:
        yield {"kind": "loss", "probability": _rounded(min(1.0, measured.lost / (measured.sent or 1)))}


def _unnoticed(measured: Measurements) -> float:
    """Return the mean time until the loss of an agent is noticed, as with a host that falls silent.

    It is the duration of lost steps minus the mean age of an evaluation at an independent moment.
    """
    lengths = np.array(measured.durations)
    if not measured.lost_steps or not lengths.any():
        return 0.0
    age = float((lengths**2).mean() / (2.0 * lengths.mean()))
    return max(0.0, float(np.mean(measured.lost_steps)) - age)


def _rounded(value: float | np.floating[Any]) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
