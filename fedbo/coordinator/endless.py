"""Detection of runs that would never end, and the error that explains why.

A run progresses when a step begins or ends, when a message has been processed, when a waiting agent continues, and when an
agent leaves; when an evaluation ends, unless a step has been begun again since: that step may lose it again. A run in virtual
time is given up after too many events, or restarts of steps, without progress. Both counts are the same under every hosting
and after every resume; the real clock has no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from fedbo.coordinator.environment.faults import Preemption, Restart
from fedbo.coordinator.errors import EndlessError, ProtocolError

if TYPE_CHECKING:
    from fedbo.coordinator.kernel.core import Core

STARTS = 10_000  # steps begun again without one that ended: each has a chance below a thousandth, or there are none
STARTS_EACH = 100  # of one agent among them: where there are many, each has had its turn often
EVENTS = 300_000  # events without progress of any kind
EVENTS_EACH = 1_000  # of them for each agent
LEFT = 1e8  # events that a study may have before it until its end in time


def require_progress(core: Core, now: float, until: float) -> None:
    """Raise EndlessError if the run has gone so long without progress that it will not end by `until`."""
    progress = core.state.progress
    most = max(progress.restarts.values(), default=0)
    again = most >= STARTS_EACH and sum(progress.restarts.values()) >= STARTS
    if not again and progress.idle < max(EVENTS, EVENTS_EACH * len(core.state.rounds.active)):
        return
    last = progress.last_time
    if math.isfinite(until) and now > last and (until - now) / (now - last) * progress.idle <= LEFT:
        return  # it ends in time
    raise EndlessError(_words(core, again))


def require_end(core: Core) -> None:
    """Check that a run may end here.

    Raises:
        EndlessError: evaluations wait for a worker, or agents for the answer of lost agents or undelivered messages.
        ProtocolError: an agent still waits for an answer for another reason.
    """
    waiting = core.state.rounds.waiting
    if queued := core.evaluations.waiting(core.state):
        words = f"evaluations of {_named(queued)} wait for a worker that will never be available"
        raise EndlessError(f"{words}; make workers stay or return ([[cluster.worker]] leaves, [[fault]] duration)")
    if not waiting:
        return
    words = f"{_named(waiting)} wait for an answer that will never arrive"
    rounds = "use an exchange mode with rounds"
    if lost := [agent.number for agent in core.state.agents.every() if agent.lost]:
        remedy = f"make them return (restart, windows), or {rounds}"
        raise EndlessError(f"{words}, because {_named(lost)} will never return; {remedy}")
    if unheard := [agent.number for agent in core.state.agents.every() if agent.unheard]:
        why = f"because the last message of {_named(unheard)} was rejected or never delivered"
        raise EndlessError(f"{words}, {why}; increase [network] attempts or the bound of [exchange] staleness, or {rounds}")
    raise ProtocolError(words)


def _words(core: Core, again: bool) -> str:
    """Return the error's text: which agent is at which step, what keeps the run from ending, and a remedy."""
    progress = core.state.progress
    restarts = progress.restarts
    agent = max(restarts, key=lambda one: (restarts[one], -one)) if again else _who(core)
    step, times = core.state.agents[agent].step, restarts.get(agent, 0)
    begun = f"has restarted step {step} {times} times without finishing it" if again else f"is at step {step}"
    since = f"no progress since time {progress.last_time:g}, in {progress.idle} events"
    remedy = "allow uninterrupted periods longer than a step, or set [budget] time"
    # Events alone do not tell that a step never ends: it may be interrupted very often, and each time for very little.
    what = "the run would never end" if again else "the run was stopped, because its events make no progress"
    return f"{what}: agent {agent} {begun}, {since}; interruptions: {_causes(core, agent)}; {remedy}"


def _who(core: Core) -> int:
    """Return the agent that the error names: the first that works or is interrupted, otherwise the first that takes part."""
    active = sorted(core.state.rounds.active) or [0]
    agents = [core.state.agents[number] for number in active]
    return next((agent.number for agent in agents if agent.interruptions or agent.current is not None), active[0])


def _causes(core: Core, agent: int) -> str:
    """List the models that may keep an agent from ending its step, or its messages from passing."""
    models, found = core.environment.of(agent), list[str]()
    name = getattr(models.availability, "model", "always")
    if name != "always":
        found.append(f"availability '{name}' with leaving = \"{models.leaving}\"")
    found += [
        f"fault '{fault.kind}'"
        for fault in core.environment.plan
        if isinstance(fault, Restart | Preemption) or agent in fault.agents
    ]
    return ", ".join(found) or "none that the study defines"


def _named(agents: Collection[int]) -> str:
    """Format the numbers of the first few agents."""
    return f"agents {', '.join(map(str, sorted(agents)[:5]))}" + (" and others" if len(agents) > 5 else "")
