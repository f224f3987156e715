"""The entry of this room: windows for the loop of virtual time, and columns for the agents of a host, where these are plain.

Windows repeat the rules of cores of which each part is plain and known; columns hold agents of tasks whose steps are plain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.hosts import Hosts
from fedbo.actors.task import Task
from fedbo.coordinator.kernel.agent_processes import AgentProcesses
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.downlink import Downlink
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Rounds
from fedbo.coordinator.kernel.fault_injection import FaultInjector
from fedbo.coordinator.kernel.interruptions import Interruptions, Presence
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Receipt, Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.step_scheduler import StepEvaluations, StepScheduler
from fedbo.coordinator.kernel.uplink import Uplink
from fedbo.coordinator.modes import MODES
from fedbo.settings.rooms import optional

if TYPE_CHECKING:
    from fedbo.actors.agent import HostedAgent
    from fedbo.fast.population import AgentsInColumns
    from fedbo.fast.windows import Windows

_FEWEST = 3  # agents of a run for which columns and windows take less time than objects and single events


def are_few(task: Task) -> bool:
    """Return whether a run has so few agents that they take less time one by one."""
    return task.problem.n_agents < _FEWEST


def is_plain(task: Task) -> bool:
    """Check whether steps of a task are plain as far as it says: what it has besides makes them unusual."""
    return (
        not are_few(task)
        and task.checkpoint == 1
        and task.early_end is None
        and task.stopping is None
        and task.reported is None
        and task.history is None
        and not task.problem.pulls
        and task.goals is None
        and task.cost == math.inf
    )


def _functions(kind: type) -> dict[str, Any]:
    """Return the functions of a class by their names."""
    found = ((name, value) for base in reversed(kind.__mro__) for name, value in vars(base).items())
    return {name: value for name, value in found if callable(value) or isinstance(value, property | classmethod)}


# The classes whose rules windows repeat, with the functions that they have there.
_PORTS: tuple[Any, ...] = (Receipt, *filter(None, [optional("private_receipt")]), StepEvaluations)
_PARTS = (*_PORTS, Network, Server, StepScheduler, AgentProcesses, Uplink, Downlink, Interruptions, Presence, FaultInjector)
_REPEATED: dict[type, dict[str, Any]] = {kind: _functions(kind) for kind in (Core, Rules, Rounds, *_PARTS, *MODES.values())}


def _is_known(part: object) -> bool:
    """Check whether windows repeat the rules of an object: its class is no other, and no function was replaced."""
    known, found = _REPEATED.get(type(part), {}), _functions(type(part))
    return known == found and known.keys().isdisjoint(getattr(part, "__dict__", ()))


def has_windows(core: Core) -> bool:
    """Check whether a run qualifies for windows: its agents are not few, and each part of its core is plain and known."""
    if are_few(core.rules.task) or not all(part.is_plain for part in core.parts):
        return False
    return all(map(_is_known, (core, core.rules, core.state.rounds, core.exchange, *core.parts)))


def windows_of(core: Core, hosts: Hosts, queue: EventQueue) -> Windows | None:
    """Return the windows of a run in virtual time; None where a part of its core is not plain."""
    if not has_windows(core):
        return None
    from fedbo.fast.windows import Windows

    return Windows(core, hosts, queue)


def agents_in_columns(
    task: Task, make: Callable[..., HostedAgent], evaluator: Evaluator, clock: Callable[[], float], usual: bool
) -> AgentsInColumns | None:
    """Return the agents of a host, in columns while they are plain; None where the algorithm's steps never are."""
    from fedbo.fast.column_agents import ColumnAgents
    from fedbo.fast.overlapping import OverlappingAgents
    from fedbo.fast.population import AgentsInColumns, states_of
    from fedbo.fast.slots import is_single
    from fedbo.fast.together import JointEvaluator

    states = states_of(task)
    if states is None and not is_single(task):
        return None
    columns = (OverlappingAgents if task.overlaps else ColumnAgents)(task, states, JointEvaluator(task, evaluator, clock))
    return AgentsInColumns(task, make, columns, usual and is_plain(task) and (not task.overlaps or hasattr(states, "pending")))


def compile_routines() -> None:
    """Compile the routines of this room."""
    import fedbo.fast.window_kernel  # noqa: F401
