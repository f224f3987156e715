"""Lines of the event log about agents, their evaluations, and the workers of a cluster."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.logged.kinds import logged_as

Verdict = Literal["go", "stop", "pause", "end", "failed"]


@logged_as("started")
class StepStarted(NamedTuple):
    """A step of an agent starts, for the first time or `again`."""

    time: float
    agent: int
    step: int
    again: bool = False


@logged_as("finished")
class StepFinished(NamedTuple):
    """A step of an agent is over."""

    time: float
    agent: int
    step: int


@logged_as("failed")
class EvaluationFailed(NamedTuple):
    """An evaluation of the step returned no value; `message` has the error."""

    time: float
    agent: int
    step: int
    message: str


@logged_as("rung")
class RungReached(NamedTuple):
    """An evaluation that may stop early has reached a rung, or its end."""

    time: float
    agent: int
    step: int
    query: int
    fidelity: int
    verdict: Verdict


@logged_as("promoted")
class EvaluationPromoted(NamedTuple):
    """A paused evaluation waits for a place to continue to its next rung, at `fidelity`."""

    time: float
    agent: int
    step: int
    query: int
    fidelity: int


@logged_as("done")
class AgentDone(NamedTuple):
    """An agent has used its budget."""

    time: float
    agent: int
    step: int


@logged_as("absent")
class AgentAbsent(NamedTuple):
    """An agent leaves for a while."""

    time: float
    agent: int
    step: int


@logged_as("returned")
class AgentReturned(NamedTuple):
    """An absent agent is back."""

    time: float
    agent: int
    step: int


@logged_as("suspected")
class AgentSuspected(NamedTuple):
    """The coordinator takes an agent for dead, since no heartbeat came."""

    time: float
    agent: int
    step: int


@logged_as("trusted")
class AgentTrusted(NamedTuple):
    """The coordinator believes again that an agent is there."""

    time: float
    agent: int
    step: int


@logged_as("crashed")
class AgentCrashed(NamedTuple):
    """An agent's process dies; `state` is null if that is permanent or unplanned."""

    time: float
    agent: int
    step: int
    permanent: bool
    state: str | None = None


@logged_as("restarted")
class AgentRestarted(NamedTuple):
    """A crashed process is back."""

    time: float
    agent: int
    step: int


@logged_as("hung")
class AgentHung(NamedTuple):
    """An agent stops, unknown to the coordinator."""

    time: float
    agent: int
    step: int


@logged_as("woke")
class AgentWoke(NamedTuple):
    """An agent that hung continues."""

    time: float
    agent: int
    step: int


@logged_as("slowed")
class AgentSlowed(NamedTuple):
    """An agent works `factor` times slower."""

    time: float
    agent: int
    step: int
    factor: float


@logged_as("recovered")
class AgentRecovered(NamedTuple):
    """A slowed agent works at its earlier pace."""

    time: float
    agent: int
    step: int


@logged_as("placed")
class EvaluationPlaced(NamedTuple):
    """An evaluation that waited in the queue since `queued_at` starts on a worker."""

    time: float
    agent: int
    step: int
    query: int
    copy: bool | None
    worker: int
    queued_at: float


@logged_as("released")
class EvaluationReleased(NamedTuple):
    """An evaluation leaves its worker at its end."""

    time: float
    agent: int
    step: int
    query: int
    copy: bool | None
    worker: int


@logged_as("preempted")
class EvaluationPreempted(NamedTuple):
    """An evaluation leaves its worker before its end; `lost` is the time there in vain."""

    time: float
    agent: int
    step: int
    query: int
    copy: bool | None
    worker: int
    lost: float


@logged_as("job_placed")
class JobPlaced(NamedTuple):
    """A part of a job that waited since `queued_at` starts on a worker."""

    time: float
    job: int
    cpus: float
    worker: int
    queued_at: float
    agent: int = COORDINATOR


@logged_as("job_left")
class JobLeft(NamedTuple):
    """A part of a job leaves its worker; `lost` is the time there in vain."""

    time: float
    job: int
    cpus: float
    worker: int
    lost: float | None
    agent: int = COORDINATOR


@logged_as("workers_joined")
class ClassJoined(NamedTuple):
    """All workers of a class join the cluster, or one `worker` for the queue."""

    time: float
    worker_class: str
    agent: int = COORDINATOR
    worker: int | None = None


@logged_as("workers_left")
class ClassLeft(NamedTuple):
    """All workers of a class leave for good, or one `worker` that was idle."""

    time: float
    worker_class: str
    agent: int = COORDINATOR
    worker: int | None = None


@logged_as("worker_preempted")
class WorkerTaken(NamedTuple):
    """A preemption takes a worker away."""

    time: float
    worker: int
    worker_class: str
    agent: int = COORDINATOR


@logged_as("worker_returned")
class WorkerRestored(NamedTuple):
    """A worker that was taken away is back."""

    time: float
    worker: int
    worker_class: str
    agent: int = COORDINATOR
