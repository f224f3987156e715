"""Watched runs of a method by itself, in lock-step: without a study, its files and its world, and so in little time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbo.actors.storage.rows import RunKey
from fedbo.actors.task import objective_of
from fedbo.algorithms.base import Algorithm, Array, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation
from fedbo.objectives.space import from_unit
from fedbo.testing.lockstep import Lockstep, noisy
from fedbo_leak.listening import Heard, Letter
from fedbo_leak.watched import Truth, WatchedRun

Values = Callable[[Array, int], Array]  # the values (n,) of an agent's function at points (n, d) of the unit cube

Hide = Callable[[Inbound], Payload]


def values_of(federation: Federation, seed: int) -> Values:
    """Return the noise-free functions of the agents of a federation, those of the study's streams with this seed."""
    objectives = [objective_of(federation, agent, Streams(seed)) for agent in range(federation.n_agents)]

    def values(x: Array, agent: int) -> Array:
        return np.array([objectives[agent].score(native) for native in from_unit(federation.parameters, x)])

    return values


def watch_lockstep(
    algorithm: Algorithm,
    problem: Problem,
    values: Values,
    seed: int,
    federation: Federation | None = None,
    hide: Hide | None = None,
) -> WatchedRun:
    """Run a method with all messages and the truth; without a `federation` no optimum is known.

    `hide` changes every message before anybody sees it.
    """
    run = Lockstep(algorithm, problem, noisy(values), seed)
    sent: list[dict[int, Payload]] = []

    def changed(messages: list[Inbound]) -> list[Inbound]:
        seen = messages if hide is None else [message._replace(payload=hide(message)) for message in messages]
        sent.extend({} for _ in range(run.step + 1 - len(sent)))
        sent[run.step] = {message.sender: message.payload for message in seen}
        return seen

    run.transmit = changed
    run.begin()
    run.exchange()
    run.run(None if problem.pulls else problem.iterations)
    agents = {agent: _truth(found, 0 if len(run.initial[agent]) else 1) for agent, found in enumerate(run.observed)}
    heard = Heard(_letters(sent), _letters(run.answers))
    return WatchedRun(RunKey(0, "", seed), algorithm, problem, run.streams, federation, heard, agents)


def _letters(rounds: Sequence[dict[int, Payload]]) -> list[Letter]:
    return [
        Letter(agent, step, float(step), payload)
        for step, sent in enumerate(rounds)
        for agent, payload in sent.items()
        if payload
    ]


def _truth(observed: Sequence[tuple[Array, Array]], first: int) -> Truth:
    """Return what an agent was told, step after step."""
    x, y = (np.concatenate([told[place] for told in observed]) for place in (0, 1))
    step = np.repeat(np.arange(first, first + len(observed), dtype=np.float64), [len(told[1]) for told in observed])
    return Truth(x, y, step, float(y.max()))
