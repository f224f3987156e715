"""The files of a host of agents: its agents' checkpoints, their rows, and the log of their evaluations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.agent import HostedAgent
from fedbo.actors.agent_state import AgentState, UncommittedStep
from fedbo.actors.lazy_records import LazyRecords
from fedbo.actors.storage.checkpoint import EncodedRecords, read_checkpoint, write_checkpoint
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.rows import Row, single_rows, write_evaluations, write_rows
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder
from fedbo.actors.storage.sealed import Damaged
from fedbo.actors.storage.snapshot_store import SnapshotIndex

_PART = 20_000  # agents in a file: while it is made it is some 10 kB for each of them


class HostConfig(NamedTuple):
    """Settings that the hosts of a run share: the run's folder, whether time is real, and whether agents may forget rows.

    `latest` is the snapshot from which they go on. `recorded` says that all evaluations are in the log already. `life` counts
    the processes that a host has had. `dispatcher` is the Ray actor that submits evaluations that are tasks of their own. With
    `isolate` others have a process of their own, which may die, and is ended after `patience` real seconds.
    """

    folder: RunFolder
    real: bool = False
    lossy: bool = False
    latest: SnapshotIndex = SnapshotIndex()
    recorded: bool = False
    life: int = 0
    dispatcher: Any = None
    isolate: bool = False
    patience: float | None = None


class AgentCheckpoint(NamedTuple):
    """The checkpoint of one agent: its state, its own last checkpoint, a step that does not count yet, and its number."""

    state: AgentState
    saved: AgentState
    uncommitted: UncommittedStep | None
    number: int


class HostStorage:
    """The files of the host at place `place` of a run, of the agents with these numbers."""

    def __init__(self, config: HostConfig, place: int, numbers: Sequence[int]) -> None:
        self.config, self._place, self._numbers = config, place, numbers
        self._encoded = EncodedRecords(Row)  # those of a run in real time stay in its agents to the end
        self.log = EvaluationLog(config.folder, self._numbers, None if config.real else config.latest.number)

    def checkpoints(self) -> dict[int, AgentCheckpoint]:
        """Read the agents as they were at the snapshot, or where time is real as they noted themselves; some have none.

        Damaged where a file is that of another agent: no index has its sum, as agents write in real time when they like.
        """
        folder = self.config.folder
        if self.config.real:
            paths = {number: folder.checkpoints(number) for number in self._numbers}
            return {number: _own(written[-1], number) for number, written in paths.items() if written}
        found: dict[int, AgentCheckpoint] = {}
        for path in self.config.latest.parts(folder.path, ".agents"):
            found |= {number: kept for number, kept in read_checkpoint(path).items() if number in self._numbers}
        return found

    def write_own(self, agent: HostedAgent) -> dict[str, str]:
        """Write the checkpoint that an agent makes for itself, the first of a process in place of its predecessors'."""
        path = self.config.folder.checkpoint(agent.number, self.config.life)
        first = not path.exists()
        digest = write_checkpoint(
            AgentCheckpoint(agent.state, agent.saved, agent.uncommitted, agent.number), path, self._encoded
        )
        for older in self.config.folder.checkpoints(agent.number) if first else ():
            if older < path:
                older.unlink(missing_ok=True)
        return {path.name: digest}

    def write_snapshot(self, agents: LazyRecords[HostedAgent], number: int, whole: bool) -> dict[str, str]:
        """Write new rows and the agents by what counts, all or those that changed; give the names of the files with SHA-256."""
        if whole:
            agents.unsettle()
        names = self.write_rows(agents, number, self.config.lossy)
        written = list(agents.values())
        for part in range(max(1, math.ceil(len(written) / _PART))):
            path, some = self.config.folder.agents(number, self._place, part), written[part * _PART : (part + 1) * _PART]
            kept = {agent.number: AgentCheckpoint(agent.committed, agent.saved, None, agent.number) for agent in some}
            names[path.name] = write_checkpoint(kept, path)
        agents.settle()
        self.log.begin(number)
        return names

    def write_rows(
        self, agents: dict[int, HostedAgent], number: int, lossy: bool, kind: str = "observations"
    ) -> dict[str, str]:
        """Write the rows that agents may part with, as a table of this kind, and in real time their evaluations too."""
        rows = [row for agent in sorted(agents) for row in agents[agent].take(lossy)]
        if not rows:
            return {}
        folder = self.config.folder
        path = folder.table(kind, number, self._place)
        written = {path.name: write_rows(rows, folder.key, path)}
        if not self.config.real or kind == PROVISIONAL:
            return written
        evaluations = folder.table("evaluations", number, self._place)
        begun = {(row.agent, row.started) for row in single_rows(rows)}
        return {**written, evaluations.name: write_evaluations(self.log.begun_at(begun), folder.key, evaluations)}


def _own(path: Path, number: int) -> AgentCheckpoint:
    """Read the checkpoint that an agent made for itself."""
    found: AgentCheckpoint = read_checkpoint(path)
    if found.number != number:
        raise Damaged(path, f"is the checkpoint of agent {found.number}; put that of agent {number} back")
    return found
