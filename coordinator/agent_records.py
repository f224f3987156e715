"""The records of a run's agents, made when they are first asked for."""

from __future__ import annotations

from fedbo.coordinator.state import AgentRecord


class AgentRecords(dict[int, AgentRecord]):
    """The records by agent; an agent to which nothing has happened has none, so that a registered one costs nothing."""

    def __missing__(self, number: int) -> AgentRecord:
        record = self[number] = AgentRecord(number)
        return record
