"""The room of evaluations that are scheduled one by one."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Overlap evaluations of an agent, and queue them for workers of a simulated cluster.",
    tests=("workers",),
    functions={
        "dispatcher": "fedbo.workers.ray_pool:start_dispatcher",
        "evaluations": "fedbo.workers.scheduler:evaluations_of",
        "overlapping_evaluations": "fedbo.workers.overlap:overlapping_evaluations",
        "scheduled_evaluations": "fedbo.workers.scheduled:ScheduledEvaluations",
        "worker_use": "fedbo.workers.use:worker_use",
        "workers_panel": "fedbo.workers.timeline:workers_panel",
    },
    tables={"cluster": "fedbo.workers.table:ClusterTable"},
)
