"""The agent half of a federated prior with several metrics: one prior and one draw for each; messages have a block for each.

Draws are compared after a power transform and the standardisation of the agent's observations of each metric, so that no metric
rules by its units. Margins are compared as in `several_models`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log, sqrt

import numpy as np
import scipy

from fedbo.algorithms.base import Algorithm, Array, Decision, Inbound, Origin, Payload
from fedbo.algorithms.components.coordinates import distance
from fedbo.algorithms.components.draw_search import Judge, SearchBox, best_of_draws, make_judge
from fedbo.algorithms.components.inner_search import projected
from fedbo.algorithms.components.several import Several, scoped
from fedbo.algorithms.components.several_models import resolved_margins
from fedbo.algorithms.components.surrogate import Surrogate, evaluable, first_point
from fedbo.algorithms.learned_prior.learned_prior import Belief, residual_kernel, rows_of
from fedbo.algorithms.learned_prior.prior_agent import PriorAgent, PriorState, belief_of
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.gp import POWERS, distances_below, warp, warp_like

Function = Callable[[Array], Array]
PLAIN = Surrogate(coordinates="plain")
FEATURES = 200  # of the prior draw of the residual process


def ask(
    method: PriorAgent, scalarise: str, state: Several, inbox: Sequence[Inbound], streams: Streams
) -> tuple[Decision, Several]:
    """Find the best point of one draw for each metric under the priors of the others, or under flat ones."""
    for message in inbox:
        parts = split(message.payload, len(state.states))
        state = _each(state, [own._replace(answer=part) for own, part in zip(state.states, parts, strict=True)])
    state = _each(state, [own._replace(t=own.t + 1) for own in state.states])
    first = state.states[0]
    local, is_federated = first.local, first.answer is not None and not (first.t > method.alone_after and first.t % 2)
    if is_federated and method.control == "uniform":
        return Decision(evaluable(local, streams.rng("uniform instead").random((1, local.u.shape[1]))), "uniform"), state
    if not all(len(own.local.u) for own in state.states):
        return Decision(first_point(local, streams), "own"), state
    states, functions = [], []
    for metric, own in enumerate(state.states):
        fitted, function = _drawn(method, own, is_federated, scoped(streams, metric))
        states.append(fitted)
        functions.append(_in_own_units(state, metric, function))
    judge, dim = _judge(scalarise, state, streams), local.u.shape[1]
    room = SearchBox(np.zeros(dim), np.ones(dim), None if local.lattice is None else projected(local, "plain"))
    x = best_of_draws(functions, judge, room, local.taken, streams)
    origin: Origin = "federated" if is_federated else "own"
    return PLAIN.unrepeated(x[None, :], distance(local.taken, x), local, streams, origin), _each(state, states)


def outbox(method: Algorithm, state: Several, streams: Streams) -> tuple[Payload | None, Several]:
    """Write one message of all metrics; the block of a metric without observations has no certainty."""
    written = [method.outbox(own, scoped(streams, metric)) for metric, own in enumerate(state.states)]
    state = _each(state, [after for _, after in written])
    known = [payload for payload, _ in written if payload is not None]
    if not known:
        return None, state
    nothing = {name: np.zeros_like(array) for name, array in known[0].items()}
    return joined([nothing if payload is None else payload for payload, _ in written]), state


def joined(payloads: Sequence[Payload]) -> Payload:
    """Join the messages about each metric along their last axes; rows of directions are filled up with zeros."""
    rows = max((len(one["directions"]) for one in payloads if "directions" in one), default=0)
    filled = [
        {
            **one,
            "directions": np.vstack([one["directions"], np.zeros((rows - len(one["directions"]), one["directions"].shape[1]))]),
        }
        if "directions" in one
        else one
        for one in payloads
    ]
    return {name: np.concatenate([one[name] for one in filled], axis=-1) for name in filled[0]}


def split(payload: Payload, count: int) -> list[Payload]:
    """Return the messages about each metric of a joined one."""
    blocks = {name: np.split(array, count, axis=-1) for name, array in payload.items()}
    return [{name: np.ascontiguousarray(parts[metric]) for name, parts in blocks.items()} for metric in range(count)]


def likely_power(y: Array) -> float:
    """Return the power of the transform after which values `(n,)` are likeliest as normal ones (Box and Cox 1964)."""
    q, _ = distances_below(y)
    logarithms = float(np.log(q).sum())

    def likelihood(power: float) -> float:
        spread = float(warp(y, power).std())
        return (power - 1.0) * logarithms - len(y) * log(spread) if spread > 0.0 else -inf

    return max(POWERS, key=likelihood)


def in_scores(values: Array, y: Array, power: float) -> Array:
    """Transform values `(k,)` by the power and the standardisation of `y (n,)`, n > 0, an increasing function."""
    known = warp(y, power)
    return np.asarray((warp_like(values, y, power) - known.mean()) / (known.std() or 1.0))


def _each(state: Several, states: Sequence[PriorState]) -> Several:
    return state._replace(states=tuple(states))


def _drawn(method: PriorAgent, state: PriorState, is_federated: bool, streams: Streams) -> tuple[PriorState, Function]:
    """Fit the process of a metric, and draw a function of points of the unit cube under its prior."""
    local = state.local.cautious()
    state = method._fitted(state._replace(local=local), streams, for_choice=True)._replace(local=state.local)
    space, fitted = method._chosen(state)
    seen = local.turned(space.seen)
    prior = method._prior(state.answer if is_federated else None, seen, space)
    belief = belief_of(prior._replace(lengths=space.lengths(fitted)), seen)
    draw = drawn_function(belief, streams.rng("own draw"))
    return state, lambda x: draw(space.seen(x))


def _in_own_units(state: Several, metric: int, function: Function) -> Function:
    """Return a drawn function in units in which metrics compare."""
    known = state.states[metric].local.y
    if metric < state.objectives:
        power = likely_power(known)
        return lambda x: in_scores(function(x), known, power)
    return lambda x: resolved_margins(function(x), known)


def _judge(scalarise: str, state: Several, streams: Streams) -> Judge:
    m, bounds, ideal, references = state.objectives, len(state.states) - state.objectives, [], []
    for metric, own in enumerate(state.states[:m]):
        y, power = own.local.y, likely_power(own.local.y)
        ideal.append(float(in_scores(y, y, power).max()))
        references += in_scores(np.array(state.references[metric : metric + 1]), y, power).tolist()
    return make_judge(scalarise, state, (np.array([ideal]), np.array(references), np.zeros(bounds)), streams)


def drawn_function(belief: Belief, rng: np.random.Generator) -> Callable[[Array], Array]:
    """Draw a function from a belief by pathwise conditioning (Wilson et al. 2020): values `(n,)` at points `(n, e)`.

    Values are in the units of the observations. The prior draw has normal weights of the directions, and random features in
    place of the residual process; only these are approximate.
    """
    prior, parameters = belief.prior, belief.parameters
    kernel, dim = residual_kernel(prior, parameters), belief.x.shape[1]
    features = draw_features(rng, dim, FEATURES, kernel.length_scale, "matern52", variance=parameters.variance, normalise=False)
    weights, along = rng.standard_normal(FEATURES), sqrt(parameters.tau) * rng.standard_normal(prior.rank)
    noise = sqrt(parameters.noise_variance) * rng.standard_normal(len(belief.x))
    v = belief.alpha
    if len(belief.x):
        drawn = belief.rows[:, 1:] @ along + phi(features, belief.x) @ weights + noise
        v = v - scipy.linalg.cho_solve((belief.factor, True), drawn)

    def values(u: Array) -> Array:
        rows = rows_of(prior, u)
        found = rows[:, 0] + rows[:, 1:] @ along + phi(features, u) @ weights
        if len(belief.x):
            found = found + (parameters.tau * rows[:, 1:] @ belief.rows[:, 1:].T + kernel(u, belief.x)) @ v
        return np.asarray(prior.centre + prior.scale * found)

    return values
