"""The files of a host: its agents' checkpoints, their rows, and the log of their evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.agent import HostedAgent
from fedbo.actors.agent_state import AgentState, UncommittedStep
from fedbo.actors.population import HostedAgents
from fedbo.actors.storage.checkpoint import EncodedRecords, read_checkpoint, write_checkpoint
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.rows import OBSERVATIONS, Row, single_rows, write_evaluations, write_part
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.storage.snapshot_store import SnapshotIndex

_PART = 20_000  # agents in a file: while it is made it is some 10 kB for each of them


class HostConfig(NamedTuple):
    """Settings that the hosts of a run share.

    - `folder`: folder of the run.
    - `real`: time is real.
    - `lossy`: a crash may take agents back, so rows after a checkpoint may change.
    - `latest`: snapshot from which the run continues.
    - `recorded`: all evaluations are in the log already.
    - `life`: number of processes that this host has had before.
    - `dispatcher`: Ray actor that submits evaluations that are separate tasks.
    - `isolate`: other evaluations run in a separate process, which may crash.
    - `patience`: real seconds after which that process is killed.
    - `counted`: see `Evaluator`.
    - `labels`: those of the nodes of Ray on which evaluations run.
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
    counted: Callable[[int], None] | None = None
    labels: Mapping[str, str] = {}


class AgentCheckpoint(NamedTuple):
    """The checkpoint of one agent: its state, the state at its own last checkpoint, its uncommitted step, and its number."""

    state: AgentState
    saved: AgentState
    uncommitted: UncommittedStep | None
    number: int


class HostStorage:
    """The files of host `place` of a run, which holds the agents `numbers`."""

    def __init__(self, config: HostConfig, place: int, numbers: Sequence[int]) -> None:
        self.config, self._place, self._numbers = config, place, numbers
        self._encoded = EncodedRecords(Row)  # those of a run in real time stay in its agents to the end
        self.log = EvaluationLog(config.folder, self._numbers, None if config.real else config.latest.number)

    def restore(self, agents: HostedAgents) -> None:
        """Load the checkpoints of the agents that have one: of the snapshot, or in real time each agent's own last one.

        Raises DamagedError where a file belongs to another agent. No index has its sum, since agents write at
        any moment in real time.
        """
        folder = self.config.folder
        if self.config.real:
            paths = {number: folder.checkpoints(number) for number in self._numbers}
            for number, written in paths.items():
                if written:
                    _restore(agents, number, _own(written[-1], number))
            return
        for path in self.config.latest.parts(folder.path, ".agents"):
            found = read_checkpoint(path)
            if not isinstance(found, dict):
                agents.load(found, self._numbers)
                continue
            for number, kept in found.items():
                if number in self._numbers:
                    _restore(agents, number, kept)

    def write_own(self, agent: HostedAgent) -> dict[str, str]:
        """Write an agent's own checkpoint; the first one of a process replaces those of earlier processes."""
        path = self.config.folder.checkpoint(agent.number, self.config.life)
        first = not path.exists()
        digest = write_checkpoint(
            AgentCheckpoint(agent.state, agent.saved, agent.uncommitted, agent.number), path, self._encoded
        )
        for older in self.config.folder.checkpoints(agent.number) if first else ():
            if older < path:
                older.unlink(missing_ok=True)
        return {path.name: digest}

    def write_snapshot(self, agents: HostedAgents, number: int, whole: bool) -> dict[str, str]:
        """Write new rows and the committed agents, all or those that changed; return the file names with their SHA-256."""
        if whole:
            agents.unsettle()
        names = self.write_rows(agents, number, self.config.lossy)
        parts, written = agents.saved_columns(_PART), list(agents.objects.values())
        for first in range(0, len(written) if parts else max(1, len(written)), _PART):
            some = written[first : first + _PART]
            parts.append({agent.number: AgentCheckpoint(agent.committed, agent.saved, None, agent.number) for agent in some})
        for place, part in enumerate(parts):
            path = self.config.folder.agents(number, self._place, place)
            names[path.name] = write_checkpoint(part, path)
        agents.settle()
        self.log.begin(number)
        return names

    def write_rows(self, agents: HostedAgents, number: int, lossy: bool, kind: str = "observations") -> dict[str, str]:
        """Write the rows that agents release as a table of this kind, in real time also their evaluations.

        Returns the names of the files with their SHA-256.
        """
        rows, table = agents.take_rows(lossy)
        if table is None:
            return {}
        folder = self.config.folder
        path = folder.table(kind, number, self._place)
        written = {path.name: write_part(table, folder.key, OBSERVATIONS, path)}
        if not self.config.real or kind == PROVISIONAL:
            return written
        evaluations = folder.table("evaluations", number, self._place)
        begun = {(row.agent, row.started) for row in single_rows(rows)}
        return {**written, evaluations.name: write_evaluations(self.log.begun_at(begun), folder.key, evaluations)}


def _restore(agents: HostedAgents, number: int, kept: AgentCheckpoint) -> None:
    agent = agents[number]
    agent.state, agent.saved, agent.uncommitted = kept.state, kept.saved, kept.uncommitted


def _own(path: Path, number: int) -> AgentCheckpoint:
    """Read an agent's own checkpoint; DamagedError if it is of another agent."""
    found: AgentCheckpoint = read_checkpoint(path)
    if found.number != number:
        raise DamagedError(path, f"is the checkpoint of agent {found.number}; restore the checkpoint of agent {number}")
    return found
