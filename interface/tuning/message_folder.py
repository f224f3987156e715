"""A shared folder through which ask/tell agents exchange messages, without a coordinator process.

The agent that sends a message carries out the coordinator's half of the algorithm for it, under a lock, and reads its answer.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.storage.checkpoint import read_checkpoint, write_checkpoint
from fedbo.algorithms.base import Algorithm, Inbound, Payload, Problem
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.messages import fault


class _ServerFile(NamedTuple):
    """The checkpoint of the server: digest of the terms, state, last step received from each agent, unread answers."""

    terms: str
    state: Any
    heard: dict[int, int]
    answers: dict[int, tuple[Inbound, ...]]


class Meeting:
    """A folder, possibly shared by several machines, that holds only messages and the coordinator's state."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def exchange(
        self, algorithm: Algorithm, problem: Problem, streams: Streams, terms: str, message: tuple[int, int, Payload | None]
    ) -> tuple[Inbound, ...]:
        """Bring an agent's message of a step, given as (agent, step, arrays or None), and fetch what there is for that agent.

        One that was brought before is not taken in again. ValueError when a message is not as declared, or when the agents at
        this place do not tune the same thing in the same way.
        """
        agent, step, payload = message
        path = self.folder / "coordinator.checkpoint"
        with self._locked():
            if path.exists():
                server: _ServerFile = read_checkpoint(path)
            else:
                server = _ServerFile(terms, algorithm.server_init(problem), {}, {})
            if server.terms != terms:
                raise ValueError(f"'{self.folder}': other terms hold here; let all its agents have the same space and terms")
            state, now = server.state, time.time()
            if payload is not None and server.heard.get(agent, -1) < step:
                declared = algorithm.upload(problem)
                if wrong := fault(payload, declared or {}):
                    raise ValueError(f"agent {agent}: its message of step {step} is refused: {wrong}")
                state = algorithm.receive(state, Inbound(agent, step, now, payload), now)
            worth = np.ones(problem.n_agents)
            answers, state = algorithm.broadcast(state, [agent], worth, streams.of(COORDINATOR).at(step))
            kept = dict(server.answers)
            for receiver, answer in answers.items():
                kept[receiver] = (*kept.get(receiver, ()), Inbound(COORDINATOR, step, now, answer))
            fetched = kept.pop(agent, ())
            heard = {**server.heard, agent: max(step, server.heard.get(agent, -1))}
            write_checkpoint(_ServerFile(terms, state, heard, kept), path)
        return fetched

    @contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)
