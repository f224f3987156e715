"""The fronts of agents in a study with several objectives, and the share of evaluations that keep all limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedbo.algorithms.streams import Streams
from fedbo.analysis.finished_run import ResultError, own_metric, trusted_cells
from fedbo.analysis.grouping import by_run, column_of, one_run
from fedbo.analysis.indicators import FEASIBLE, column_name
from fedbo.objectives.base import Array, Enumerable, Federation, LibraryMissingError
from fedbo.objectives.datasets.data import DataMissingError
from fedbo.objectives.goals import Goals, goals_in
from fedbo.settings.trust import UntrustedError
from fedbo.study.document import StudyError
from fedbo.surrogates.fronts import non_dominated

if TYPE_CHECKING:
    from fedbo.actors.storage.rows import RunKey
    from fedbo.analysis.result import Result
    from fedbo.analysis.traces import IncumbentTrace

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AgentFront:
    """The outcomes of one agent in one run, or of all agents where `agent` is None.

    - `values (n, m)`: the objectives in native units, NaN where one is not known.
    - `feasible (n,)`: whether all limits are kept; `best (n,)`: whether the outcome is in the front of the feasible ones.
    """

    agent: int | None
    values: Array
    feasible: Mask
    best: Mask


def goals_of(result: Result, cell: int) -> Goals | None:
    """Return the objectives and limits of a cell's agents without their own; None without [[metric]]."""
    known = goals_in(result.manifest)
    return known[cell].common if known else None


def agent_fronts(result: Result, key: RunKey) -> list[AgentFront]:
    """Return the front of each agent in a run, and at last that of all agents; ResultError with one objective."""
    known = goals_of(result, key.cell)
    if known is None or not known.several:
        raise ResultError(f"no fronts of cell {key.cell}: its study has one objective; add a [[metric]] with a mode")
    rows = one_run(result.observations, *key)
    rows = rows.filter(pc.not_equal(rows["phase"], "history"))
    metric = own_metric(result, key.cell)
    own = metric.native(column_of(rows, "score").astype(np.float64))  # by which points are judged: it has no noise
    others = [column_of(rows, column_name(goal.name)).astype(np.float64) for goal in known.objectives[1:]]
    values, agents = np.column_stack([own, *others]), column_of(rows, "agent").astype(np.int64)
    # A failed evaluation has no place in a front, although some of its metrics may be known.
    values[~np.asarray(rows["error"].is_null())] = np.nan
    feasible = column_of(rows, FEASIBLE).astype(np.bool_)
    signs = np.array([goal.sign for goal in known.objectives])
    found = [
        _front(agent, values[mine], feasible[mine], signs)
        for agent, mine in [(int(agent), agents == agent) for agent in np.unique(agents)]
    ]
    return [*found, _front(None, values, feasible, signs)]


def _front(agent: int | None, values: Array, feasible: Mask, signs: Array) -> AgentFront:
    best = non_dominated(np.where(feasible[:, None], signs * values, np.nan))
    return AgentFront(agent=agent, values=values, feasible=feasible, best=best)


def exact_fronts(result: Result, cell: int, replicate: int) -> dict[int | None, Array]:
    """Return the exact front `(k, m)` of each agent that knows it, in native units, and under None that of all agents.

    The front is that of the agent's own limits. It is empty where the objective is not available, or where a published problem
    has other limits in the study.
    """
    known = goals_in(result.manifest)
    if not known or not known[cell].common.several:
        return {}
    found: dict[int | None, Array] = {}
    try:
        study = trusted_cells(result)[cell].study
        federation, streams = study.federation(), Streams(study.study.seed, replicate)
        for agent in study.targets:
            objective = federation.objective(agent, streams.shared("objective"), streams.of(agent).rng("objective"))
            if not isinstance(objective, Enumerable) or not _is_published(federation, known[cell].of(agent)):
                return {}
            found[agent] = exact_front(known[cell].of(agent), objective.outcomes())
    except (ResultError, StudyError, UntrustedError, LibraryMissingError, DataMissingError):
        return {}  # a figure without them is still a figure
    together, signs = np.concatenate(list(found.values())), np.array([goal.sign for goal in known[cell].common.objectives])
    return {**found, None: np.unique(together[non_dominated(signs * together)], axis=0)}


def exact_front(known: Goals, outcomes: dict[str, Array]) -> Array:
    """Return the front `(k, m)` of outcomes `(n,)` by name, each once, in native units, among those that keep all limits."""
    kept = np.ones(len(next(iter(outcomes.values()))), dtype=np.bool_)
    for limit in known.limits:
        kept &= outcomes[limit.name] <= (np.inf if limit.at_most is None else limit.at_most)
        kept &= outcomes[limit.name] >= (-np.inf if limit.at_least is None else limit.at_least)
    values = np.column_stack([outcomes[goal.name] for goal in known.objectives])[kept]
    signs = np.array([goal.sign for goal in known.objectives])
    return np.unique(values[non_dominated(signs * values)], axis=0)


def feasible_traces(result: Result, cell: int) -> list[IncumbentTrace]:
    """Return the share of its evaluations so far that were feasible, for each trace of a cell and in place of its incumbent."""
    shares = dict[tuple[str, int, int], Array]()
    observations = result.observations
    searched = pc.and_(pc.equal(observations["cell"], cell), pc.not_equal(observations["phase"], "history"))
    for key, rows in by_run(observations.filter(searched)):
        feasible, agents = column_of(rows, FEASIBLE).astype(np.float64), column_of(rows, "agent")
        order = np.argsort(column_of(rows, "finished"), kind="stable")
        for agent in np.unique(agents):
            mine = feasible[order[agents[order] == agent]]
            shares[key.algorithm, key.replicate, int(agent)] = np.cumsum(mine) / np.arange(1, len(mine) + 1)
    found = []
    for trace in (trace for trace in result.traces if trace.cell == cell):
        share = shares[trace.algorithm, trace.replicate, trace.agent]
        found.append(replace(trace, best=share, row=np.zeros_like(trace.row), score=share))
    return found


def _is_published(federation: Federation, known: Goals) -> bool:
    """Return whether the goals are those for which a federation knows the exact front: those of its source, if it has some."""
    tables: Sequence[dict[str, Any]] = getattr(federation, "metric_tables", ())
    published = {table["name"]: (table.get("mode"), table.get("at_most"), table.get("at_least")) for table in tables}
    modes = {goal.name: "max" if goal.sign > 0 else "min" for goal in known.objectives}
    limits = {limit.name: limit for limit in known.limits}
    asked = {
        name: (modes.get(name), limits[name].at_most, limits[name].at_least) if name in limits else (modes[name], None, None)
        for name in known.names
    }
    return not published or asked == published
