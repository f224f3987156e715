"""A world fitted to measurements: the models of its times, absences, crashes and losses, and their goodness of fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbo.lab.twins.families import ALIKE, Array, Candidate, CensoredTimes, Numbers, best, candidates
from fedbo.lab.twins.measurements import Measurements
from fedbo.lab.twins.regression import DurationRegression, regression
from fedbo.lab.twins.survival import mean_of, p_alike
from fedbo.study.document import to_toml

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
    - `ended`: the number of times of each kind that had ended.
    - `unfinished`: the number of those that had not ended; their times so far are in the fit. `unmeasured`: the number of
      evaluations that had not ended and whose begin is unknown, so that they are not in the fit.
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
    notes: Sequence[str] = ()
    unfinished: Mapping[str, int] = field(default_factory=dict)
    unmeasured: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[int, int] = field(default_factory=dict)

    def p_of(self) -> dict[str, float | None]:
        """Return p of each fit, None where nothing was tested or where what had not ended is missing."""
        found = {"evaluation": None if self.unmeasured else self.evaluation.p}
        if self.latency is not None:
            found["latency"] = self.latency.p
        return {**found, "absence": self.absence_p}

    def __str__(self) -> str:
        return to_toml(self.tables())

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
    times, points = measured.columns()
    return FittedWorld(
        evaluation=_durations(times, points, seed, durations_file, resampled),
        latency=_latencies(measured.times("latencies", measured.latencies), seed),
        decision=_decisions(measured),
        begins=_begins(measured.begins),
        startup=_rounded(np.mean(measured.startups)) if measured.startups else None,
        workers=measured.together,
        failures=(measured.failed, len(measured.durations)),
        **_absences(measured, seed),
        faults=list(_faults(measured, seed)),
        cluster=measured.cluster,
        resources=measured.resources,
        preemptions=measured.preemptions,
        queued=float(np.mean(measured.queued)) if measured.queued else None,
        interrupted=measured.interrupted,
        notes=measured.notes,
        unfinished={kind: len(cut) for kind, cut in measured.cut.items()},
        unmeasured=measured.unmeasured,
        places=measured.places,
        ended={
            "evaluations": len(measured.durations),
            "latencies": len(measured.latencies),
            "absences": len(measured.absences),
            "downtimes": len(measured.downtimes),
        },
    )


def _durations(times: CensoredTimes, points: Array, seed: int, file: str | None, resampled: bool) -> DurationFit:
    """Choose the model of durations: constant, dependent on the point, a family, or resampled measurements."""
    assert times.agents is not None
    factors = _factors(times)
    speed = np.array([factors.get(agent, 1.0) for agent in times.agents.tolist()])
    happened = (times.values / speed)[times.ended]
    mean, spread = float(happened.mean()), float(happened.std() / max(happened.mean(), 1e-300))
    kept: dict[str, Any] = {"spread": spread, "count": len(happened)}
    if spread <= ALIKE:
        return DurationFit({"model": "constant", "mean": _rounded(mean)}, factors=factors, **kept)
    mean = mean_of(times.values / speed, times.ended)
    if times.values.min() <= 0:
        return DurationFit(_measured(file, mean, factors), factors={} if file else factors, **kept)
    own = times.agents if factors else None
    dependence = regression(times.values[times.ended], _of_ended(times, bool(factors)), points, seed)
    tried = candidates(times._replace(agents=own), seed)
    kept |= {"tried": tried, "dependence": dependence}
    if dependence is not None and dependence.p_none < DEPENDS:
        table = {
            "model": "log_linear",
            "mean": _rounded(dependence.mean),
            "slopes": [_rounded(slope) for slope in dependence.slopes],
            "sigma": _rounded(dependence.sigma),
        }
        return DurationFit(table, factors=factors, **kept)
    chosen = None if resampled else best(tried)
    if chosen is None and file is not None:
        return DurationFit(_measured(file, mean, factors), factors={}, **kept)
    chosen = chosen or tried[0]
    return DurationFit({"model": chosen.model, **_settings(chosen)}, factors=factors, **kept)


def _of_ended(times: CensoredTimes, differ: bool) -> Numbers:
    """Return the agents of the evaluations that ended, all 0 unless they differ."""
    assert times.agents is not None
    agents = times.agents[times.ended]
    return agents if differ else np.zeros_like(agents)


def _settings(chosen: Candidate) -> dict[str, float]:
    return {name: _rounded(value) for name, value in chosen.settings.items()}


def _measured(file: str | None, mean: float, factors: Mapping[int, float]) -> dict[str, Any]:
    """Return the table of durations from a file, separate for each agent if agents differ."""
    return (
        {"model": "empirical", "file": file, "pooled": not factors} if file else {"model": "constant", "mean": _rounded(mean)}
    )


def _factors(times: CensoredTimes) -> dict[int, float]:
    """Return the factor of each agent's durations, if agents differ by a log-rank test; empty otherwise.

    An agent's mean is all its times for each evaluation that ended.
    """
    values, ended, agents = times
    assert agents is not None
    numbers, place = np.unique(agents, return_inverse=True)
    counts = np.bincount(place, ended)
    if len(numbers) < 2 or counts.min() < 3 or np.ptp(values) <= 1e-9 * values.max():
        return {}
    if p_alike(values, ended, place) >= DEPENDS:
        return {}
    means, mean = np.bincount(place, values) / counts, values.sum() / ended.sum()
    return {int(agent): _rounded(own / mean) for agent, own in zip(numbers, means, strict=True) if own > 0}


def _latencies(times: CensoredTimes, seed: int) -> DurationFit | None:
    """Fit latencies; if no family fits, use their mean."""
    happened = times.values[times.ended]
    if not len(happened) or happened.max() <= 0:
        return None
    spread = float(happened.std() / happened.mean())
    kept: dict[str, Any] = {"spread": spread, "count": len(happened)}
    tried = candidates(times, seed) if times.values.min() > 0 and spread > ALIKE and len(happened) >= 5 else []
    chosen = best(tried)
    if chosen is None:
        mean = float(happened.mean()) if spread <= ALIKE else mean_of(times.values, times.ended)
        return DurationFit({"model": "constant", "mean": _rounded(mean)}, tried, **kept)
    return DurationFit({"model": chosen.model, **_settings(chosen)}, tried, **kept)


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
    """Fit exponential presences and absences, and test the absences."""
    if not measured.departures or not measured.absences:
        return {}
    times = measured.times("absences", measured.absences)
    found = [one for one in candidates(times, seed) if one.model == "exponential"] if times.values.min() > 0 else []
    absent = float(times.values.sum() / times.ended.sum())
    table = {"present": _rounded(measured.present / measured.departures), "absent": _rounded(absent)}
    return {"availability": table, "absence_p": found[0].p if found and len(measured.absences) >= 5 else None}


def _faults(measured: Measurements, seed: int) -> Iterable[dict[str, Any]]:
    """List the observed faults: crashes at a rate, and the share of lost transmissions."""
    if measured.crashes and measured.alive > 0:
        back = {"restart": _restart(measured, seed)} if measured.downtimes else {}
        yield {"kind": "crash", "rate": _rounded(measured.crashes / measured.alive), **back}
    if measured.lost:
        yield {"kind": "loss", "probability": _rounded(min(1.0, measured.lost / (measured.sent or 1)))}


def _restart(measured: Measurements, seed: int) -> float | dict[str, Any]:
    """Return the law of restarts that fits; their mean where none does, or the time until a loss is noticed adds to it."""
    times, happened = measured.times("downtimes", measured.downtimes), np.array(measured.downtimes)
    varies = len(happened) >= 5 and times.values.min() > 0 and happened.std() > ALIKE * happened.mean()
    chosen = best(candidates(times, seed)) if varies and not measured.lost_steps else None
    mean = _rounded(_downtime(measured) + _unnoticed(measured))
    return mean if chosen is None else {"model": chosen.model, **_settings(chosen)}


def _downtime(measured: Measurements) -> float:
    """Return the mean time of a restart; where all that ended took as long, others take as long too."""
    happened, times = np.array(measured.downtimes), measured.times("downtimes", measured.downtimes)
    alike = happened.std() <= ALIKE * happened.mean() and times.values.max() <= happened.max() * (1 + ALIKE)
    return float(happened.mean()) if alike else mean_of(times.values, times.ended)


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
