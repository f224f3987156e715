"""What an agent's own surrogate believed of its objective before a decision, computed anew from its observations.

The surrogates of these methods are fitted at every decision, on schedule, with draws of the agent's stream of that step. So the
study and the agent's observations determine the posterior of the run to the bit. Other methods have no such belief here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.actors.storage.rows import RunKey
from fedbo.algorithms.base import Algorithm, Array, Problem
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.federated import Federated
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.gp import GP, incumbent
from fedbo.algorithms.streams import Streams
from fedbo.algorithms.ts import TS
from fedbo.analysis.finished_run import FinishedRun, configurations, parameters
from fedbo.analysis.grouping import grouped
from fedbo.settings.errors import FedboError
from fedbo.surrogates.acquisition import expected_improvement, prediction, upper_confidence_bound
from fedbo.surrogates.draws import value
from fedbo.surrogates.gp import predict

MOST = 12  # moments of an agent at which its belief is shown
SIDES = {1: 81, 2: 25}  # points of each input at which it is evaluated, by the number of inputs


@dataclass(frozen=True, slots=True)
class AgentBelief:
    """The belief of an agent before the decision of a step, at a grid of the unit cube.

    - `time`: the start of the step's evaluation, or of the decision's first one.
    - `mean (n,)`, `spread (n,)`: mean and standard deviation, in units of that of the values as the surrogate models them.
    - `acquisition (n,)`: the function that the agent's own query maximises, named `name`; `origin`: the source of its choice.
    - `x (k, d)`, `y (k,)`: its observations, in the same units; `chosen (d,)`: the point that it chose.

    The grid runs over the last input first; its sides are `SIDES`.
    """

    time: float
    step: int
    name: str
    origin: str
    mean: Array
    spread: Array
    acquisition: Array
    x: Array
    y: Array
    chosen: Array


def no_belief(run: FinishedRun, key: RunKey) -> str:
    """Return why the agents of a run have no belief that can be computed anew; "" where they have one."""
    try:
        study = run.study.cells()[key.cell].study
        table = next(one for one in study.algorithm if one.title == key.algorithm)
        model = _model(table.make())
    except FedboError:
        return "the study names code of its own"
    dim, space = len(parameters(run, key.cell)), configurations(run, key.cell).space
    if model is None:
        return f"the surrogate of {table.name} cannot be computed anew from an agent's observations"
    if dim not in SIDES or space is not None:
        return "the objective has more than two inputs, or a typed space"
    if model.surrogate == "features" or table.centralised:
        return "only a Gaussian process of a single agent is drawn"
    if study.agents.history is not None or any(group.history is not None for group in study.group):
        return "agents began with an earlier task"
    if study.metric:
        return "agents model several metrics"
    if study.evaluation.make().overlaps or study.stopping is not None or study.budget.pulls:
        return "evaluations overlap, stop early or are repeated"
    return ""


def beliefs_of(run: FinishedRun, key: RunKey, agent: int, rows: Sequence[Any], most: int = MOST) -> list[AgentBelief]:
    """Return the beliefs of an agent at up to `most` of its decisions, evenly spaced; `rows` are its observations as dicts.

    The run must have beliefs (`no_belief`). An agent that forgot observations in a crash has none.
    """
    if any((row["error"] or "").startswith("forgotten") for row in rows):
        return []
    study = run.study.cells()[key.cell].study
    table = next(one for one in study.algorithm if one.title == key.algorithm)
    model = _model(table.make())
    assert model is not None
    streams = Streams(study.study.seed, key.replicate).of(agent)
    avoids = study.evaluation.make().failure == "avoid"
    problem = Problem(len(parameters(run, key.cell)), 1, (agent,), initial=0, iterations=0, agent=agent)
    steps = grouped(sorted(rows, key=lambda row: (row["step"], row["query"])), lambda row: row["step"])
    decided = [step for step in steps if step]
    shown = {decided[round(place)] for place in np.linspace(0, len(decided) - 1, most).tolist()} if decided else set()
    state, failed, found = model.begin(problem), list[Any](), list[AgentBelief]()
    for step, mine in steps.items():
        if step:
            known = model.fit(state.cautious(), streams.at(step))
            state = state.fitted_by(known)
            if step in shown and known.hyper is not None:
                found.append(_belief(model, known, mine[0], streams.at(step)))
        good = [row for row in mine if row["error"] is None]
        if good:
            state = model.tell(state, np.array([row["u"] for row in good]), np.array([row["value"] for row in good]))
        failed += [row["u"] for row in mine if row["error"] is not None]
        if avoids and failed:
            state = model.avoiding(state, np.array(failed))
    return found


def _model(algorithm: Algorithm) -> TS | GP | None:
    """Return the surrogate that a method fits on schedule at every decision, whatever the messages; None for other methods."""
    own = algorithm.own if isinstance(algorithm, Federated) else algorithm
    return own if isinstance(own, TS | GP) else None


def _belief(model: TS | GP, known: LocalState, row: Any, streams: Streams) -> AgentBelief:
    """Return the belief of a fitted state before the decision on the point of `row`."""
    seen, dim = model.seen(known), known.u.shape[1]
    assert seen.hyper is not None
    grid = to_coordinates(np.array(list(_grid(dim))), known.axes or model.coordinates)
    posterior = model.posterior(seen)
    mean, variance = predict(posterior, grid)
    if isinstance(model, GP):
        best = incumbent(posterior, model.incumbent, len(seen.u))
        at = prediction(posterior, grid)
        ei = model.acquisition == "ei"
        acquisition = (expected_improvement(at, best) if ei else upper_confidence_bound(at, model.beta))[0]
        name = "expected improvement" if ei else "upper confidence bound"
    else:
        acquisition, name = (
            (value(model.function(seen, streams), grid) - seen.hyper.offset) / seen.hyper.scale,
            "posterior draw",
        )
    count = len(known.y) - known.supposed
    return AgentBelief(
        time=row["started"],
        step=row["step"],
        name=name,
        origin=row["origin"],
        mean=mean,
        spread=np.sqrt(variance),
        acquisition=acquisition,
        x=from_coordinates(known.u[:count], model.coordinates),
        y=posterior.y[:count],
        chosen=np.array(row["u"]),
    )


def _grid(dim: int) -> Iterator[tuple[float, ...]]:
    side = np.linspace(0.0, 1.0, SIDES[dim]).tolist()
    return ((one,) for one in side) if dim == 1 else ((one, other) for one in side for other in side)
