"""The entry of this room: windows for the loop of virtual time, and columns for the agents of a host.

Each function imports what it needs, as compiled routines take time to load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.hosts import Hosts
from fedbo.actors.task import Task
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.fast.plain import has_windows

if TYPE_CHECKING:
    from fedbo.actors.agent import HostedAgent
    from fedbo.fast.population import AgentsInColumns
    from fedbo.fast.windows import Windows


def windows_of(core: Core, hosts: Hosts, queue: EventQueue) -> Windows | None:
    """Return the windows of a run in virtual time; None where a part of its core is not plain."""
    if not has_windows(core):
        return None
    from fedbo.fast.windows import Windows

    return Windows(core, hosts, queue)


def agents_in_columns(
    task: Task, make: Callable[[int], HostedAgent], evaluator: Evaluator, clock: Callable[[], float], usual: bool
) -> AgentsInColumns | None:
    """Return the agents of a host, in columns while they are plain; None where the algorithm has no columns."""
    from fedbo.fast.column_agents import ColumnAgents
    from fedbo.fast.population import AgentsInColumns, states_of
    from fedbo.fast.together import JointEvaluator

    states = states_of(task)
    if states is None:
        return None
    return AgentsInColumns(task, make, ColumnAgents(task, states, JointEvaluator(task, evaluator, clock)), usual)


def compile_routines() -> None:
    """Compile the routines of this room."""
    import fedbo.fast.window_kernel  # noqa: F401
