"""The replay of a run that was made in real time, and its extension by a larger budget, which begins with such a replay.

An extended run is replayed in segments, each under the budget that held then: `EXTENDED` separates them in its record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import InlineHosts, WallClockState
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.rows import single_rows
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import reported_stopping
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import EXTENDED, RecordedEvent, RunHooks, apply_effects
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import Effect
from fedbo.coordinator.runtime.actor import Run
from fedbo.coordinator.runtime.event_log import EventLog
from fedbo.coordinator.runtime.replay_log import replay_events
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter


class ReplayedHosts(InlineHosts):
    """All agents of a run in this process; the log has their evaluations. `earlier` hosts hand over their agents."""

    def __init__(self, run: Run, home: RunFolder, earlier: ReplayedHosts | None = None) -> None:
        numbers = range(run.task.problem.n_agents)
        super().__init__(run.task, numbers, HostConfig(home, recorded=True))
        self.live: WallClockState = WallClockState({}, {}, {}) if earlier is None else earlier.live
        if earlier is not None:
            for number in numbers:
                agent, before = self.host.agents[number], earlier.host.agents[number]
                agent.state, agent.saved, agent.uncommitted = before.state, before.saved, before.uncommitted
            earlier.close()

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Count the step, and record its number."""
        super().commit(agent, times)
        self.live.counted[agent] = self.host.agents[agent].state.step

    def snapshot(self, number: int, whole: bool) -> None:
        """Write the checkpoints that agents keep in real time."""
        self.host.write_checkpoints()

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Return no file, since the checkpoints are in no index."""
        return {}


def replayed(
    segments: Sequence[Run], record: Sequence[RecordedEvent], evaluations: Iterable[EvaluationRecord], home: RunFolder
) -> RunParts:
    """Replay a run from its record in this process, without waiting; return its parts in their final state.

    `segments` has the run with each of its budgets, one more than there are `EXTENDED` in the record.

    Raises:
        ReplayError: a recorded event could not happen.
    """
    log = EvaluationLog(home, range(segments[0].task.problem.n_agents), None)
    log.append(evaluations)
    log.close()
    event_log, queue = EventLog(home), EventQueue()
    core: Core | None = None
    hosts: ReplayedHosts | None = None
    for run, events in zip(segments, _split(record), strict=True):
        before, core = core, assembled(run.task, run.exchange, run.environment, run.budget)
        hosts = ReplayedHosts(run, home, hosts)
        if before is not None:
            before.flush(event_log)
            core.state = before.state
            for order in core.orders():
                hosts.submit(order)
            apply_effects(_continue(core, queue.time), queue.time, hosts, queue)
        replay_events(core, hosts, RunHooks(event_log.extend), queue, events)
    assert core is not None and hosts is not None
    return RunParts(core, queue, event_log, hosts)


def replay_run(segments: Sequence[Run], record: Sequence[RecordedEvent], evaluations: Sequence[EvaluationRecord]) -> None:
    """Replay a run, and write its tables."""
    run = segments[-1]
    snapshots = Snapshotter(RunFolder.of(run.folder, run.key), math.inf, None)
    parts = replayed(segments, record, evaluations, snapshots.home)
    snapshots.finish(parts, ended=True)
    parts.hosts.close()


def extend_run(segments: Sequence[Run], record: Sequence[RecordedEvent], evaluations: Sequence[EvaluationRecord]) -> None:
    """Turn an ended run of real time into an interrupted one, with the budget of the last of its segments."""
    run = segments[-1]
    snapshots = Snapshotter(RunFolder.of(run.folder, run.key), math.inf, None)
    record = [*record, RecordedEvent(record[-1].time if record else 0.0, EXTENDED)]
    parts = replayed(segments, record, evaluations, snapshots.home)
    for recorded in record:
        parts.event_log.record(recorded)
    assert isinstance(parts.hosts, ReplayedHosts)
    if (rules := reported_stopping(run.task, snapshots.home.path)) is not None:
        for agent in parts.hosts.host.agents.objects.every():
            places = {row.started: (row.step, row.query) for row in single_rows(agent.state.rows)}
            rules.recall(agent.streams, places, [one for one in evaluations if one.agent == agent.number])
    snapshots.start(parts)
    parts.event_log.close()
    parts.hosts.close()


def _split(record: Iterable[RecordedEvent]) -> list[list[RecordedEvent]]:
    """Split a record where the run was extended."""
    segments: list[list[RecordedEvent]] = [[]]
    for extended, events in groupby(record, lambda recorded: recorded.number == EXTENDED):
        if extended:
            segments += [[] for _ in events]
        else:
            segments[-1] += events
    return segments


def _continue(core: Core, now: float) -> list[Effect]:
    """Start the next step of every agent that had spent its budget and now has a larger one."""
    state, processes = core.state, core.processes
    ended = sorted(agent.number for agent in state.agents.every() if agent.ended and not agent.lost)
    agents = [agent for agent in map(state.agents.__getitem__, ended) if agent.number in core.rules.targets]
    agents = [agent for agent in agents if not processes.is_last(state, agent, agent.step)]
    for agent in agents:
        agent.ended = False
        state.rounds.active.add(agent.number)
    state.progress.note(now)
    effects = core.server.open(state, [agent.number for agent in agents], now)
    return effects + [effect for agent in agents for effect in processes.request_step(state, agent, agent.step + 1, now)]
