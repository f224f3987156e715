"""Federated Thompson sampling with several metrics: a message has one block of M numbers for each, and weights stay private.

Messages hold the shapes of functions, and no weights or limits. A receiver therefore gives each received function the mean and
the spread of its own observations of that metric, and then compares points by its own bounds and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedbo.algorithms.base import Array, Decision, Inbound, Payload
from fedbo.algorithms.components.coordinates import distance, from_coordinates
from fedbo.algorithms.components.draw_search import Judge, SearchBox, Values, best_of_draws, make_judge
from fedbo.algorithms.components.inner_search import projected
from fedbo.algorithms.components.schedules import probability
from fedbo.algorithms.components.several import Several, scoped
from fedbo.algorithms.components.several_models import fitted, resolved_margins, standard, standard_units, unclipped, with_fits
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed

Method = Any  # a method on `Federated`, which imports this module


def ask(method: Method, state: Several, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Several]:
    """Follow the agent's draws or the messages of others, as with one metric: one coin decides for all metrics."""
    for message in inbox:
        state = _received(method, state, message.payload)
    state = state._replace(states=tuple(changed(each, t=each.t + 1) for each in state.states))
    local = state._replace(states=tuple(each.local for each in state.states))
    if not all(len(each.u) for each in local.states):
        return method.own.ask(local, (), streams)[0], state
    own, known = unclipped(method.own), fitted(unclipped(method.own), local, streams)
    local = local._replace(states=with_fits(local.states, known))
    first = state.states[0]
    if np.count_nonzero(first.weight) and streams.uniform("coin") > probability(method.p, first.t):
        judge = make_judge(own.scalarise, local, standard_units(own, local, known), streams)
        surfaces, states = method._surfaces(state.states, streams)
        state = state._replace(states=tuple(states))
        u = _best(own, (local, known, judge), surfaces, streams)
        far = distance(first.local.taken, u)
        if far >= method.apart and not first.local.is_near_failure(u):
            point = from_coordinates(u[None, :], own.coordinates)
            return method._followed(point, far, state.states[0], streams), _with_local(state, local)
    decision, local = method.own.ask(local, (), streams)
    return decision, _with_local(state, local)


def outbox(method: Method, state: Several, streams: Streams) -> tuple[Payload | None, Several]:
    """Write one message of all metrics; the block of a metric without observations is 0."""
    written = [method.outbox(each, scoped(streams, metric)) for metric, each in enumerate(state.states)]
    state = state._replace(states=tuple(after for _, after in written))
    if all(payload is None for payload, _ in written):
        return None, state
    nothing = np.zeros(method.features)
    return {"omega": np.concatenate([nothing if payload is None else payload["omega"] for payload, _ in written])}, state


def _received(method: Method, state: Several, payload: Payload) -> Several:
    """Give the state of each metric its block of an answer."""
    m, states = method.features, []
    for metric, each in enumerate(state.states):
        block = {**payload, "omega": payload["omega"][..., metric * m : (metric + 1) * m]}
        omega, weight = method.held(block)
        states.append(changed(each, omega=omega, weight=weight))
    return state._replace(states=tuple(states))


def _with_local(state: Several, local: Several) -> Several:
    states = zip(state.states, local.states, strict=True)
    return state._replace(states=tuple(changed(each, local=own) for each, own in states))


def _best(
    own: Any, about: tuple[Several, Sequence[LocalState], Judge], surfaces: Sequence[Callable[[Array], Array]], streams: Streams
) -> Array:
    """Return the best point `(d,)`, in coordinates, by one function for each metric, in units of the agent's models."""
    local, known, judge = about
    first, dim = local.states[0], local.states[0].u.shape[1]
    space = None if first.lattice is None else projected(first, own.coordinates)
    room = SearchBox(np.zeros(dim), np.ones(dim), space)
    sample = room.candidates(streams.rng("sample"))
    functions = [
        _in_own_units(own, each, fit, surface, sample, metric >= local.objectives)
        for metric, (each, fit, surface) in enumerate(zip(local.states, known, surfaces, strict=True))
    ]
    return best_of_draws(functions, judge, room, first.taken, streams)


def _in_own_units(own: Any, local: LocalState, known: LocalState, surface: Values, sample: Array, is_margin: bool) -> Values:
    """Return a function with mean and spread of the agent's observations, in units of its model of the metric."""
    over, spread = float(surface(local.u).mean()), float(surface(sample).std()) or 1.0
    level, scale = float(local.y.mean()), float(local.y.std()) or 1.0

    def values(u: Array) -> Array:
        native = level + scale * (surface(u) - over) / spread
        return standard(own, known, resolved_margins(native, local.y) if is_margin else native)

    return values
