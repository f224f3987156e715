"""Decision times: one target of an algorithm runs alone, after every other agent has sent it one message."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.actors.threads import blas_threads
from fedbo.algorithms.base import Algorithm, Array, Inbound, Private, Problem
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.study.agents.histories import most_observed
from fedbo.study.document import StudyError
from fedbo.study.study import Study

MAX_REPETITIONS = 5  # repetitions; more would not tell more


@dataclass(frozen=True, slots=True)
class Times:
    """The CPU time of each decision in seconds, `seconds[cell][label] (r, T)`, and each cell's number of other agents."""

    others: tuple[int, ...]
    seconds: Mapping[int, Mapping[str, Array]]


def measure(study: Study, path: Path, notify: Callable[[int, int], None] | None = None) -> Times:
    """Time the decisions of every algorithm in every cell of a study; times in the file are not measured again.

    The file is written after each algorithm. There are as many repetitions as replicates, but at most `MAX_REPETITIONS`.
    `notify` is called with the number of finished measurements and their total.
    """
    found, cells = _stored(path), study.cells()
    total = len(cells) * len(study.labels)
    for place, cell in enumerate(cells):
        for number, table in enumerate(cell.study.algorithm):
            key = f"{cell.number} {table.title}"
            if key not in found:
                repeats = range(min(MAX_REPETITIONS, study.study.replicates))
                found[key] = [decisions(cell.study, table.make(), repeat).tolist() for repeat in repeats]
                atomic.write_text(path, json.dumps(found))
            if notify is not None:
                notify(place * len(study.labels) + number + 1, total)
    seconds = {cell.number: {label: np.array(found[f"{cell.number} {label}"]) for label in study.labels} for cell in cells}
    return Times(tuple(cell.study.federation().n_agents - 1 for cell in cells), seconds)


def is_measured(study: Study, path: Path) -> bool:
    """Check whether a file has the times of every algorithm in every cell."""
    return {f"{cell.number} {label}" for cell in study.cells() for label in study.labels} <= {*_stored(path)}


def _stored(path: Path) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def decisions(study: Study, algorithm: Algorithm, repeat: int = 0) -> Array:
    """Return the CPU seconds of each decision `(T,)` of the first target, on one thread.

    Inputs, agents, targets, the length of histories and the budget are those of the study. Instead of its objective each agent
    has a bowl with a centre of its own, and histories are of uniform points: evaluations are not timed, and need no data. All
    agents send one message before the first decision.

    Raises:
        StudyError: the messages of the algorithm are private.
    """
    if isinstance(algorithm, Private):
        raise StudyError(
            "decision times of private algorithms cannot be measured, because single messages are not available; remove them"
        )
    federation, target = study.federation(), study.targets[0]
    dim, agents, streams = len(federation.parameters), federation.n_agents, Streams(study.study.seed, repeat)
    problem = Problem(dim, agents, study.targets, study.agents.initial, study.budget.decisions)
    observations = most_observed(study)
    with blas_threads().limit(limits=1):
        inbox, state = _first_round(problem, algorithm, observations, streams)
        mine, spent = streams.of(target), np.empty(problem.iterations)
        for step in range(1, problem.iterations + 1):
            begun = time.thread_time()
            decision, state = algorithm.ask(state, inbox, mine.at(step))
            spent[step - 1] = time.thread_time() - begun
            inbox = ()
            state = algorithm.tell(state, decision.x, _bowl(decision.x, mine))
    return spent


def _first_round(
    problem: Problem, algorithm: Algorithm, observations: int, streams: Streams
) -> tuple[tuple[Inbound, ...], object]:
    """Run the first exchange: agents learn and send, the coordinator answers; return the first target's inbox and state."""
    target, state, server = problem.targets[0], None, algorithm.server_init(problem)
    for agent in range(problem.n_agents):
        mine, own = streams.of(agent), replace(problem, agent=agent)
        if observations:
            x = mine.rng("history points").random((observations, problem.dim))
            own = replace(own, history_x=x, history_y=_bowl(x, mine))
        knows = algorithm.agent_init(own, mine.at(0))
        if agent in problem.targets and problem.initial:
            x = mine.rng("initial points").random((problem.initial, problem.dim))
            knows = algorithm.tell(knows, x, _bowl(x, mine))
        if algorithm.sends(0):
            payload, knows = algorithm.outbox(knows, mine.at(0))
            if payload is not None:
                server = algorithm.receive(server, Inbound(agent, 0, 0.0, payload), 0.0)
        state = knows if agent == target else state
    worth, answering = np.ones(problem.n_agents), streams.of(COORDINATOR).at(0)
    answers, _ = algorithm.broadcast(server, problem.targets, worth, answering)
    inbox = (Inbound(COORDINATOR, 0, 0.0, answers[target]),) if target in answers else ()
    return inbox, state


def _bowl(x: Array, streams: Streams) -> Array:
    """Return values `(n,)` at `x (n, d)`, about as large as those of a classifier."""
    centre = 0.2 + 0.3 * streams.at(0).rng("centre of a bowl").random(x.shape[1])
    values: Array = 0.9 - 0.5 * ((x - centre) ** 2).mean(axis=1)
    return values
