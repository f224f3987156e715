"""The twin of a recorded run: the run again in virtual time, from its fitted world alone, and the errors of its predictions."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow.compute as pc
from scipy import stats

from fedbo.analysis.disruptions import staleness_of
from fedbo.analysis.grouping import by_run, column_of, of_kinds
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import placements
from fedbo.lab.twins.families import Array
from fedbo.lab.twins.fitting import fit_world
from fedbo.lab.twins.measurements import MeasurementError, most_at_once
from fedbo.lab.twins.sources import keep_durations, main_label, measured_in, require_durations
from fedbo.lab.twins.stand_ins import can_be_stood_in_for, dry_runs
from fedbo.study.document import StudyError, parse_override
from fedbo.study.study import Study, load_study

_DEFINES = ("objective", "sweep")
_KEPT = ("iterations", "pulls", "initial", "until")  # what a group's agents may do, which is no part of the world


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Results of a run that its fit has not used; None if the run has no such fact.

    `makespan` is the end of its last evaluation. `utilisation` is the share of the workers' time until then that evaluations
    used, and `steady` the share from the start of all workers until no evaluation was left to begin. Workers with several
    resources count by the busiest one. `staleness` is that of accepted messages; `order` is Kendall's tau between the order of
    step ends and that of the recorded run.
    """

    makespan: float
    utilisation: float
    steady: float | None
    evaluations: int
    messages: int
    rounds: int
    staleness: float | None
    order: float | None


@dataclass(frozen=True, slots=True)
class TwinPrediction:
    """The facts of a twin's replicates and of the recorded run; `workers` is the denominator of utilisation."""

    recorded: RunFacts
    replicates: Sequence[RunFacts]
    workers: int

    def of(self, name: str) -> Array:
        """Return one fact of every replicate that has it."""
        found = [getattr(one, name) for one in self.replicates]
        return np.array([value for value in found if value is not None], dtype=np.float64)

    def rows(self) -> list[dict[str, Any]]:
        """Return each fact: recorded, the mean of the twin, the interval of 95 % of its replicates, and the relative error."""
        return [self._row(name) for name in RunFacts.__dataclass_fields__]

    def _row(self, name: str) -> dict[str, Any]:
        recorded, twin = getattr(self.recorded, name), self.of(name)
        row: dict[str, Any] = {"fact": name, "recorded": recorded, "twin": None, "low": None, "high": None, "error": None}
        if len(twin):
            low, high = np.quantile(twin, [0.025, 0.975])
            row |= {"twin": float(twin.mean()), "low": float(low), "high": float(high)}
            if recorded and name != "order":
                row["error"] = float(twin.mean() / recorded - 1.0)
        return row


class Twin:
    """The twin of one algorithm's runs in a run directory: its fitted world, and studies made of it."""

    def __init__(self, result: Result, label: str | None, seed: int) -> None:
        study = result.study
        if study.sweep:
            raise MeasurementError(f"'{result.directory}': has a sweep; use a run without one")
        possible = [one.title for one in study.algorithm if not one.centralised and can_be_stood_in_for(one.make())]
        self.label = label or main_label(result, possible or study.labels)
        measured = require_durations(measured_in(result, self.label, 0), result.directory)
        self._seed, self._result = seed, result
        if self.label not in possible:
            words = "uses a privacy mechanism, is centralised, or chooses a varying number of points"
            raise MeasurementError(f"'{result.directory}': '{self.label}' {words}, which a twin does not support")
        self._folder = tempfile.TemporaryDirectory(prefix="fedbo-twin-")
        file = str(keep_durations(measured, Path(self._folder.name), seed))
        self.world = fit_world(measured, seed, file, resampled=True)
        pool = measured.columns()[1]
        self._pool = pool if pool.shape[1] else np.empty((0, study.problem().dim))  # sites may keep the points
        self._count = int(study.objective.settings.get("agents", max(measured.agents) + 1))
        self._table = next(table for table in study.algorithm if table.title == self.label)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self._folder.cleanup()

    @property
    def others(self) -> tuple[str, ...]:
        """List the other algorithms of the run."""
        return tuple(label for label in self._result.study.labels if label != self.label)

    @property
    def is_shared(self) -> bool:
        """Check whether evaluations were separate tasks, which any worker could run."""
        policy = self._result.study.evaluation.make()
        return policy.parallel > 1 or policy.prefetch > 0 or bool(policy.resources)

    @property
    def workers(self) -> int:
        """Count the workers: those of the cluster, or the largest number of simultaneous evaluations."""
        if (cluster := self._result.study.cluster) is not None:
            return sum(one.count for one in cluster.classes())
        places: int = (
            self._count * self._result.study.evaluation.make().parallel
        )  # clocks of several processes may show one more
        return max(1, min(self.world.workers, places))

    def document(self, replicates: int) -> dict[str, Any]:
        """Return the study of the twin: the agents and the exchange of the recorded one, in the fitted world."""
        old = self._result.study.document()
        kept: dict[str, Any] = {key: old[key] for key in ("exchange", "budget") if key in old}
        kept["budget"] = {key: value for key, value in kept["budget"].items() if key != "target"}
        if "target" in old["budget"]:  # what value is reached when is none of its business
            kept["budget"]["evaluations"] = sum(error is None for error in self._recorded()[0]["error"].to_pylist())
        world, policy = self.world.tables(), old.get("evaluation", {})
        document: dict[str, Any] = {
            "study": {"name": f"twin of {old['study']['name']}"[:200], "seed": self._seed, "replicates": replicates},
            "objective": {"name": "quadratic", "agents": self._count, "dimensions": self._pool.shape[1]},
            "agents": {key: old["agents"][key] for key in ("targets", "initial") if key in old.get("agents", {})},
            **kept,
            "algorithm": [self._table.model_dump(mode="json", exclude_none=True)],
            **world,
            "group": self._groups(old.get("group", []), world.pop("group", [])),
            "network": {key: old["network"][key] for key in ("retry", "attempts") if key in old.get("network", {})},
            "evaluation": {
                **{key: policy[key] for key in ("parallel", "prefetch", "wait", "retries") if key in policy},
                **world.get("evaluation", {}),
            },
        }
        if self.is_shared and not self.world.cluster:
            document["cluster"] = {"workers": self.workers, "startup": self.world.startup or 0.0}
        return document

    def study(self, replicates: int, overrides: Sequence[str] = ()) -> Study:
        """Load the study of the twin, with optional changes; StudyError if one of them is wrong, or needs other objectives."""
        for key in (parse_override(text)[0] for text in overrides):
            if key.partition(".")[0] in _DEFINES:
                raise StudyError(f"--set {key}: defines the agents' objectives, which a twin keeps; remove it")
        return load_study(self.document(replicates), overrides)

    def predict(self, replicates: int, overrides: Sequence[str] = ()) -> TwinPrediction:
        """Run the twin, and return its prediction."""
        study = self.study(replicates, overrides)
        with tempfile.TemporaryDirectory(prefix="fedbo-twin-") as folder:
            found = list(dry_runs(study, Path(folder), self._pool))
        recorded = self._recorded()
        arrivals = _ends(recorded[1])
        return TwinPrediction(
            run_facts(*recorded, worker_time(self._result.study, [recorded], self.workers), arrivals),
            [run_facts(*run, time, arrivals) for time in [worker_time(study, found)] for run in found],
            worker_time(study, found).workers,
        )

    def _recorded(self) -> tuple[Any, Any]:
        """Return observations and events of the algorithm's first replicate."""
        key, events = next((key, part) for key, part in by_run(self._result.events) if key.algorithm == self.label)
        return dict(by_run(self._result.observations))[key], events

    def _groups(self, before: Sequence[Mapping[str, Any]], fitted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return a separate group for every agent: its start, its speed, and its budget."""
        speeds = {table["agents"][0]: table["speed"] for table in fitted}
        own: dict[int, dict[str, Any]] = {}
        if before:
            from fedbo.study.environment.models import members_in

            groups = members_in(self._result.study, 0)
            own = {
                agent: {key: table[key] for key in _KEPT if key in table} for table in before for agent in groups[table["name"]]
            }
        found = []
        for agent in range(self._count):
            table = {**own.get(agent, {})}
            if agent in speeds:
                table["speed"] = dict(speeds[agent])
            if self.world.begins.get(agent, 0.0) > 0:
                table["from"] = self.world.begins[agent]
            if table:
                found.append({"name": f"agent {agent}", "agents": [agent], **table})
        return found


class WorkerTime(NamedTuple):
    """The time of workers: their number, and the model of their cluster if placements record the workers of evaluations."""

    workers: int
    cluster: Any  # a ClusterModel, or None

    def uses(self, evaluations: Any, events: Any) -> tuple[Array, Array, Array]:
        """Return the starts and ends of evaluations, without start-up, and their shares `(n, r)` of all workers' resources."""
        if self.cluster is None:
            begins, ends = (column_of(evaluations, name).astype(np.float64) for name in ("started", "finished"))
            return begins, ends, np.full((len(begins), 1), 1.0 / self.workers)
        placed = placements(events)
        begins, ends = (column_of(placed, name) for name in ("started_at", "ended_at"))
        startups = np.repeat([one.startup for one in self.cluster.classes], [one.count for one in self.cluster.classes])
        total = np.array(self.cluster.total)
        needs = np.array([self.cluster.need(agent) for agent in placed["agent"].to_pylist()]).reshape(-1, len(total))
        shares = np.divide(needs, total, out=np.zeros_like(needs), where=total > 0)
        return np.minimum(begins + startups[column_of(placed, "worker")], ends), ends, shares


def worker_time(study: Study, runs: Sequence[tuple[Any, Any]], workers: int | None = None) -> WorkerTime:
    """Count the workers of runs: those of a cluster, else `workers`, or the largest number of simultaneous evaluations."""
    if study.cluster is not None:
        model = study.cluster.make(study.evaluation.make().resources)
        return WorkerTime(sum(one.count for one in model.classes), model)
    return WorkerTime(workers or max(1, *(_at_once(observations) for observations, _ in runs)), None)


def _at_once(observations: Any) -> int:
    rows = observations.filter(pc.not_equal(observations["phase"], "history"))
    return most_at_once(*(column_of(rows, name).astype(np.float64) for name in ("started", "finished")))


def run_facts(observations: Any, events: Any, time: WorkerTime, arrivals: Mapping[tuple[int, int], int]) -> RunFacts:
    """Return the facts of a run."""
    rows = observations.filter(pc.not_equal(observations["phase"], "history"))
    makespan = float(column_of(rows, "finished").max(initial=0.0))
    begins, ends, shares = time.uses(rows, events)
    ordered = np.sort(begins)
    since, until = (ordered[time.workers - 1], ordered[-1]) if len(ordered) >= time.workers else (0.0, 0.0)
    used = (np.clip(np.minimum(ends, makespan) - begins, 0.0, None) @ shares).max()
    steady = (np.clip(np.minimum(ends, until) - np.maximum(begins, since), 0.0, None) @ shares).max()
    stale, own = staleness_of(events), _ends(events)
    common = [key for key in arrivals if key in own]
    tau = (
        stats.kendalltau([arrivals[key] for key in common], [own[key] for key in common]).statistic if len(common) > 2 else None
    )
    return RunFacts(
        makespan=makespan,
        utilisation=_part(used, makespan) if makespan else 0.0,
        steady=_part(steady, until - since) if until > since else None,
        evaluations=len(rows),
        messages=len(of_kinds(events, "sent")),
        rounds=len(of_kinds(events, "round")),
        staleness=float(stale.mean()) if len(stale) else None,
        order=None if tau is None else float(tau),
    )


def _part(used: float, length: float) -> float:
    return min(1.0, float(used / length))  # sums are rounded, and clocks of several processes overlap by a little


def _ends(events: Any) -> dict[tuple[int, int], int]:
    """Return the place of each agent's step in the order of their ends."""
    ended = of_kinds(events, "finished")
    return {key: place for place, key in enumerate(zip(ended["agent"].to_pylist(), ended["step"].to_pylist(), strict=True))}


def facts_of_prediction(found: TwinPrediction) -> dict[str, Any]:
    """Return a prediction as plain data."""
    return {"workers": found.workers, "rows": found.rows(), "replicates": [asdict(one) for one in found.replicates]}


def ratios(changed: TwinPrediction, unchanged: TwinPrediction) -> list[dict[str, Any]]:
    """Compare a changed twin with the unchanged one, replicate by replicate: mean ratios with intervals of 95 %."""
    found = []
    for name in ("makespan", "utilisation", "steady", "messages", "staleness"):
        one, other = changed.of(name), unchanged.of(name)
        if len(one) != len(other) or len(one) < 2 or not (other > 0).all():
            continue
        ratio = one / other
        half = float(stats.t.ppf(0.975, len(ratio) - 1) * ratio.std(ddof=1) / np.sqrt(len(ratio)))
        mean = float(ratio.mean())
        found.append({"fact": name, "from": float(other.mean()), "to": float(one.mean()), "ratio": mean, "half": half})
    return found
