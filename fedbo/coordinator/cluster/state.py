"""The state of a simulated cluster, as plain data: part of a snapshot of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedbo.coordinator.environment.worker_models import Resources

Key = tuple[int, int]
Job = tuple[int, int, int]  # agent, step, point
Place = tuple[int, Resources]  # a class of workers, and what is free of each of them


@dataclass(slots=True)
class ClusterState:
    """The workers of a cluster and the queue for them.

    - `places` has for each worker its class and what is free of it; None while it is away.
    - `away` counts what keeps a worker away.
    - `free` has a heap of workers for each place; one that is elsewhere by now is passed over.
    - `jobs` has what runs on each worker that has anything to do.
    - `queues` has what each agent waits for, with its number in the queue, first come first.
    - `heads` has for each need a heap of agents by the key of the rule; one of an older version is passed over.
    - `versions` counts the changes of each agent's key.
    - `used` counts the jobs of each agent that run.
    - `arrived` counts what has come into the queue.
    - `is_due` says that the queue is served at the end of this instant.
    """

    places: list[Place | None]
    away: list[int]
    free: dict[Place, list[int]] = field(default_factory=dict)
    jobs: dict[int, list[Job]] = field(default_factory=dict)
    queues: dict[int, list[tuple[int, Key]]] = field(default_factory=dict)
    heads: dict[Resources, list[tuple[float, int, int, int]]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    arrived: int = 0
    is_due: bool = False

    @property
    def is_waited_for(self) -> bool:
        """Say whether anything waits for a worker."""
        return bool(self.queues)
