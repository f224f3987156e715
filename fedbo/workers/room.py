"""The room of evaluations that are scheduled one by one."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Schedule evaluations one by one in virtual time: they overlap, or queue for the workers of a simulated cluster.",
    tests=("workers",),
    functions={
        "evaluations": "fedbo.workers.scheduler:evaluations_of",
        "scheduled_evaluations": "fedbo.workers.scheduled:ScheduledEvaluations",
        "worker_use": "fedbo.workers.use:worker_use",
        "workers_panel": "fedbo.workers.timeline:workers_panel",
    },
    tables={"cluster": "fedbo.workers.table:ClusterTable"},
)
