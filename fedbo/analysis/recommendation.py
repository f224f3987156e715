"""The best configuration of each agent, and one recommended for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.described import best_points
from fedbo.analysis.finished_run import FinishedRun, ResultError, configurations, own_metric
from fedbo.analysis.grouping import by_run, grouped
from fedbo.analysis.indicators import is_plain
from fedbo.analysis.records.records import ResultTable, column_array
from fedbo.analysis.trials import COMPLETE, trials
from fedbo.objectives.typed_spaces.declared_space import flattened
from fedbo.surrogates.gp import ROBUST, FittedParameter, GPSettings, NotPositiveDefinite, condition, fit_gp, predict

Array = npt.NDArray[np.float64]
Row = Mapping[str, Any]

EVALUATED, ESTIMATED, UNKNOWN = "evaluated", "estimated", "unknown"
# Good evaluations of an agent: from which its function is estimated, and that are used for it or are candidates.
_FEWEST, _MOST = 2, 300
_NOISY = replace(ROBUST, noise_variance=FittedParameter(0.1, (1e-4, 10.0), prior=(0.1, 2.0)))  # docs/results.md has its effect
_PLACE = ("cell", "algorithm", "replicate", "agent", "step", "query", "finished")  # which tell evaluations of a run apart


@dataclass(frozen=True, kw_only=True)
class BestConfiguration:
    """A configuration of one run: the best of an `agent`, or with None the one recommended for all.

    `value` is in native units, for all agents their mean. `known` is the source of the value: "evaluated", "estimated" with the
    standard deviation `error`, or "unknown" for the reason `why`. `evaluated` counts the agents that evaluated it. `metrics`
    are those of the study; with several objectives an agent has a front of such configurations.
    """

    cell: int
    algorithm: str
    replicate: int
    agent: int | None = None
    value: float | None = None
    error: float | None = None
    known: str = UNKNOWN
    evaluated: int = 0
    configuration: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return the fields by name, without metrics where the study names none."""
        found = asdict(self)
        return found if self.metrics else {name: value for name, value in found.items() if name != "metrics"}


def best_configurations(result: FinishedRun, algorithm: str | None = None) -> list[BestConfiguration]:
    """List, for every run, the best configuration of each agent, and one recommended for all if there are several."""
    best = grouped(best_points(result, "agent"), lambda one: (one["cell"], one["algorithm"], one["replicate"]))
    found = list[BestConfiguration]()
    for key, rows, good in _runs(result):
        mine = best.get((key.cell, key.algorithm, key.replicate))
        if mine is None or algorithm not in (None, key.algorithm):
            continue
        records = ({name: value for name, value in one.items() if name != "step"} for one in mine)
        found += [BestConfiguration(**one, known=EVALUATED, evaluated=1) for one in records]
        agents = sorted({row["agent"] for row in rows.select(["agent"]).to_pylist()})
        if len(agents) > 1:
            found.append(_recommended(result, key, agents, good))
    return found


def best_by_model(result: FinishedRun, each: str) -> list[dict[str, Any]]:
    """List the points that are best by a Gaussian process of their agent; ResultError with limits or several objectives."""
    found = dict[tuple[Any, ...], BestConfiguration]()
    for key, _, good in _runs(result):
        if not is_plain(result.manifest, key.cell):
            raise ResultError("by = 'model': is for one objective without limits; use by = 'value'")
        metric, declared = own_metric(result, key.cell), configurations(result, key.cell).declared
        for agent, rows in grouped(good, lambda row: row["agent"]).items():
            points = list({tuple(row["x"]): row for row in rows}.values())
            place, mean, variance = best_by_gp(rows, points)
            told = float(metric.native(mean[place])), float(np.sqrt(variance[place]))
            known, point = dict(value=told[0], error=told[1], known=ESTIMATED, evaluated=1), declared(points[place]["x"])
            one = BestConfiguration(**key._asdict(), agent=agent, configuration=point, **known)  # type: ignore[arg-type]
            group = (key, agent) if each == "agent" else (key.cell, key.algorithm)
            found[group] = max(found.get(group, one), one, key=lambda one: metric.sign * (one.value or 0.0))
    return [one.facts() for one in found.values()]


def recommended(result: FinishedRun) -> list[dict[str, Any]]:
    """List the configuration recommended for all agents of each run, in the form of `Result.best`; of one agent its best."""
    last = {(one.cell, one.algorithm, one.replicate): one for one in best_configurations(result)}  # the one for all comes last
    return [one.facts() for one in last.values()]


def best_table(result: FinishedRun, algorithm: str | None = None) -> ResultTable:
    """Return the best configurations as a table with a column for each parameter; `agent` is missing in those for all."""
    rows = best_configurations(result, algorithm)
    names = ("cell", "algorithm", "replicate", "agent", "value", "error", "known", "evaluated")
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    for metric in dict.fromkeys(name for row in rows for name in row.metrics):
        columns[f"metric_{metric}"] = [row.metrics.get(metric) for row in rows]
    flat = [flattened(row.configuration) for row in rows]
    for parameter in dict.fromkeys(name for one in flat for name in one):
        name = f"param_{parameter}" if parameter in names else parameter
        columns[name] = [one.get(parameter) for one in flat]
    return ResultTable("best", pa.table({name: column_array(values) for name, values in columns.items()}))


def _runs(result: FinishedRun) -> Iterator[tuple[RunKey, pa.Table, list[Row]]]:
    """Yield the evaluations of each run as a table, and those that succeeded as rows."""
    places = map(_key, result.observations.select([*_PLACE]).to_pylist())
    statuses = dict(zip(places, trials(result).to_arrow()["status"].to_pylist(), strict=True))
    for key, rows in by_run(result.observations):
        yield key, rows, [row for row in rows.to_pylist() if statuses[_key(row)] == COMPLETE]


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _PLACE)


def _recommended(result: FinishedRun, key: RunKey, agents: Sequence[int], good: Sequence[Row]) -> BestConfiguration:
    """Return the point with the best mean over all agents: among those that all have evaluated, or otherwise by estimates."""
    chosen, nowhere = partial(BestConfiguration, **key._asdict()), "no configuration was evaluated by all agents"
    if not is_plain(result.manifest, key.cell):
        return chosen(why="with limits or several objectives, agents have no common mean to compare")
    if good and not good[0]["x"]:
        return chosen(why="sites keep the points of their evaluations")
    points = grouped(good, lambda row: tuple(row["x"]))
    tried = {x: {row["agent"] for row in rows} for x, rows in points.items()}
    metric, everywhere = own_metric(result, key.cell), [x for x, who in tried.items() if len(who) == len(agents)]
    declared = configurations(result, key.cell).declared
    if everywhere:
        x = max(everywhere, key=lambda x: _mean(points[x], "value"))
        value = float(metric.native(_mean(points[x], "score")))
        return chosen(value=value, known=EVALUATED, evaluated=len(agents), configuration=declared(list(x)))
    mine = grouped(good, lambda row: row["agent"])
    if poor := [agent for agent in agents if len(mine.get(agent, ())) < _FEWEST]:
        return chosen(why=f"{nowhere}, and agent {poor[0]} has fewer than {_FEWEST} successful evaluations")
    best = (sorted(rows, key=lambda row: -row["value"])[:_MOST] for rows in mine.values())
    candidates = list(dict.fromkeys(tuple(row["x"]) for rows in best for row in rows))
    try:
        mean, variance = estimates([mine[agent] for agent in agents], np.array([points[x][0]["u"] for x in candidates]))
    except NotPositiveDefinite:
        return chosen(why=f"{nowhere}, and no estimate could be computed")
    place = int(mean.argmax())
    x = candidates[place]
    value, error = float(metric.native(mean[place])), float(np.sqrt(variance[place]))
    return chosen(value=value, error=error, known=ESTIMATED, evaluated=len(tried[x]), configuration=declared(list(x)))


def _mean(rows: Sequence[Row], name: str) -> float:
    """Average over agents; repeated evaluations of an agent count once."""
    by_agent = grouped(rows, lambda row: row["agent"])
    return float(np.mean([np.mean([row[name] for row in mine]) for mine in by_agent.values()]))


def best_by_gp(rows: Sequence[Row], points: Sequence[Row]) -> tuple[int, Array, Array]:
    """Return the place of the point with the largest mean less its standard deviation, which luck alone does not make.

    With it come means and variances `(n,)` of all points, by a Gaussian process of noisy `rows` with "u" and "value".
    """
    mean, variance = estimates([rows], np.array([row["u"] for row in points]), _NOISY)
    return int((mean - np.sqrt(variance)).argmax()), mean, variance


def estimates(by_agent: Sequence[Sequence[Row]], u: Array, settings: GPSettings = ROBUST) -> tuple[Array, Array]:
    """Return the mean over agents of their functions at points `u (n, d)`, with its variance, by a Gaussian process of each."""
    mean, variance = np.zeros((2, len(u)))
    for rows in by_agent:
        places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST)).round().astype(int))
        x, y = (np.array([rows[place][name] for place in places]) for name in ("u", "value"))
        hyper = fit_gp(x, y, settings, np.random.default_rng(0))
        own, spread = predict(condition(hyper, x, y), u)
        mean, variance = mean + own / len(by_agent), variance + spread / len(by_agent) ** 2
    return mean, variance
