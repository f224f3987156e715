"""The evaluations of a step in virtual time: one after the other, as segments of the step, or as a subclass schedules them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fedbo.actors.task import DecisionSize, StepReport
from fedbo.coordinator.kernel.events import Effect, Event
from fedbo.coordinator.kernel.state import AgentRecord, CoreState

if TYPE_CHECKING:
    from fedbo.coordinator.environment.durations import StepDurations
    from fedbo.coordinator.kernel.rules import Rules

Handler = Callable[[CoreState, Any, float], list[Effect]]


class StepEvaluations:
    """Nothing beside the steps themselves: a step ends when its last evaluation does, and pauses with its agent.

    A subclass schedules evaluations `one_by_one`, so that they may overlap, wait for workers, or end early. Its `handlers` are
    those of its own events.
    """

    one_by_one = False
    is_plain = True

    def __init__(self, rules: Rules, durations: StepDurations | None) -> None:
        self.handlers: Mapping[type, Handler] = {}

    def start(self, state: CoreState) -> None:
        """Enter what is shared by all agents into the state before the first event."""

    def first_effects(self) -> list[Effect]:
        """Return the effects of the start of the study."""
        return []

    def time_of(self, event: Event) -> float | None:
        """Return when an event that is drawn is due; None for all other events."""
        return None

    def waiting(self, state: CoreState) -> list[int]:
        """List the agents of which evaluations wait for a worker."""
        return []

    def decide(self, state: CoreState, agent: AgentRecord, choice: DecisionSize, now: float) -> list[Effect]:
        """Schedule the evaluations of a step, one by one."""
        raise NotImplementedError

    def taken(self, state: CoreState, agent: AgentRecord, report: StepReport, now: float) -> tuple[bool, list[Effect]]:
        """Process the report of evaluations that were scheduled one by one; return whether the step is over, and effects."""
        raise NotImplementedError

    def save(self, agent: AgentRecord) -> None:
        """Note that the agent's last step is in its checkpoint."""

    def interrupt(self, state: CoreState, agent: AgentRecord, now: float, void: bool) -> list[Effect]:
        """Pause an agent's evaluations with its first interruption; those that are `void` begin again."""
        return []

    def resume(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Resume the paused evaluations of an agent."""
        return []

    def set_pace(self, agent: AgentRecord, before: float, now: float) -> list[Effect]:
        """Continue the evaluations of an agent at its new pace, where `before` is the old one."""
        return []

    def give_up(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Drop the evaluations of an agent that has ended."""
        return []
