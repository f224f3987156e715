"""The catalogue of event kinds: the record of each, whose fields are the columns of `events.parquet` that it fills.

A new kind is one record, and its name in the three lists below. A field means the same in all records: `step` is a step of
`agent`, `round` a round, `answer` the number of an answer of the coordinator to `agent`, and `query` the place of a point in
its step.
"""

from __future__ import annotations

from typing import Final, Literal

from fedbo.coordinator.logged import agents, messages

# A record of its fields, `make(StepFinished, (time, agent, step))`, in half the time of a call of its class, for every step.
make: Final = tuple.__new__

Kind = Literal[
    "started",
    "finished",
    "failed",
    "rung",
    "promoted",
    "done",
    "absent",
    "returned",
    "crashed",
    "restarted",
    "hung",
    "woke",
    "slowed",
    "recovered",
    "placed",
    "released",
    "preempted",
    "workers_joined",
    "workers_left",
    "worker_preempted",
    "worker_returned",
    "cut",
    "joined",
    "down",
    "up",
    "falsified",
    "sent",
    "lost",
    "arrived",
    "late",
    "rejected",
    "discarded",
    "unmasked",
    "aborted",
    "round",
    "delivered",
    "missed",
]
EventLine = (
    agents.StepStarted
    | agents.StepFinished
    | agents.EvaluationFailed
    | agents.RungReached
    | agents.EvaluationPromoted
    | agents.AgentDone
    | agents.AgentAbsent
    | agents.AgentReturned
    | agents.AgentCrashed
    | agents.AgentRestarted
    | agents.AgentHung
    | agents.AgentWoke
    | agents.AgentSlowed
    | agents.AgentRecovered
    | agents.EvaluationPlaced
    | agents.EvaluationReleased
    | agents.EvaluationPreempted
    | agents.ClassJoined
    | agents.ClassLeft
    | agents.WorkerTaken
    | agents.WorkerRestored
    | messages.LinkCut
    | messages.LinkJoined
    | messages.CoordinatorDown
    | messages.CoordinatorUp
    | messages.MessageFalsified
    | messages.MessageSent
    | messages.TransmissionLost
    | messages.MessageArrived
    | messages.MessageLate
    | messages.TransmissionRejected
    | messages.ReportDiscarded
    | messages.SumUnmasked
    | messages.SumAborted
    | messages.RoundClosed
    | messages.AnswerDelivered
    | messages.AnswerMissed
)
KINDS: Final[dict[Kind, type[EventLine]]] = {
    "started": agents.StepStarted,
    "finished": agents.StepFinished,
    "failed": agents.EvaluationFailed,
    "rung": agents.RungReached,
    "promoted": agents.EvaluationPromoted,
    "done": agents.AgentDone,
    "absent": agents.AgentAbsent,
    "returned": agents.AgentReturned,
    "crashed": agents.AgentCrashed,
    "restarted": agents.AgentRestarted,
    "hung": agents.AgentHung,
    "woke": agents.AgentWoke,
    "slowed": agents.AgentSlowed,
    "recovered": agents.AgentRecovered,
    "placed": agents.EvaluationPlaced,
    "released": agents.EvaluationReleased,
    "preempted": agents.EvaluationPreempted,
    "workers_joined": agents.ClassJoined,
    "workers_left": agents.ClassLeft,
    "worker_preempted": agents.WorkerTaken,
    "worker_returned": agents.WorkerRestored,
    "cut": messages.LinkCut,
    "joined": messages.LinkJoined,
    "down": messages.CoordinatorDown,
    "up": messages.CoordinatorUp,
    "falsified": messages.MessageFalsified,
    "sent": messages.MessageSent,
    "lost": messages.TransmissionLost,
    "arrived": messages.MessageArrived,
    "late": messages.MessageLate,
    "rejected": messages.TransmissionRejected,
    "discarded": messages.ReportDiscarded,
    "unmasked": messages.SumUnmasked,
    "aborted": messages.SumAborted,
    "round": messages.RoundClosed,
    "delivered": messages.AnswerDelivered,
    "missed": messages.AnswerMissed,
}
