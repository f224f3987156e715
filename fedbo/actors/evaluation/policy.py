"""The evaluation policy of a study: what happens when an evaluation fails, and which resources it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy for evaluations that raise an error, return no finite number, take too long or exhaust their memory.

    A failed evaluation is retried up to `retries` times. `failure` applies when every try failed. With "avoid", the agent does
    not evaluate the point again and avoids its surroundings (see `failed_points`). With "drop", the agent learns nothing; with
    "stop", the run ends. An evaluation may take `time_limit` units of time, and in real time `memory_limit` MiB of memory.

    In real time, up to `parallel` evaluations of one agent run at once. Up to `prefetch` more are decided in advance, so that
    the next one starts as soon as one ends. With more than one pending, or with `resources`, each evaluation is a task on the
    Ray cluster. It reserves the resources of one evaluation: "CPU" (default 1), "GPU", "memory" in MiB, and custom resources of
    the machines. There is one such table for all agents, or one for each.

    An infeasible point, which breaks a limit of a [[metric]], is no failure. A method that learns no limits observes the worst
    value of its agent in its place, or with `infeasible` = "drop" nothing.

    With `wait` = "any" an agent decides again when one of its evaluations has ended and there is room (asynchronous). With
    "all" it decides when all of them have ended (synchronous batches).
    """

    retries: Annotated[int, Ge(0)] = 0
    """Further tries of an evaluation that failed."""
    failure: Annotated[str, OneOf(("avoid", "drop", "stop"))] = "avoid"
    """When all tries failed: avoid the point's surroundings, drop it, or stop the run."""
    time_limit: Annotated[float, Gt(0)] | None = None
    """Time that an evaluation may take [units of time; seconds in real time]."""
    memory_limit: Annotated[int, Ge(1), "it is in MiB"] | None = None
    """Memory that an evaluation may take [MiB]; real time only."""
    parallel: Annotated[int, Ge(1)] = 1
    """Evaluations of one agent that run at once."""
    prefetch: Annotated[int, Ge(0)] = 0
    """Evaluations decided ahead, so that one begins when another ends."""
    resources: tuple[dict[str, float], ...] = ()
    """Needs of one evaluation ("CPU", "GPU", "memory", …): one table, or one per agent."""
    wait: Annotated[str, OneOf(("any", "all"))] = "any"
    """Decide again after any evaluation (asynchronous), or after all (batches)."""
    infeasible: Annotated[str, OneOf(("worst", "drop"))] | None = None
    """What methods without limits observe at infeasible points: the worst value (default), or nothing."""

    def __post_init__(self) -> None:
        check(self)
        for table in self.resources:
            if wrong := [name for name, amount in table.items() if not (name and 0 <= amount < math.inf)]:
                raise SettingError("resources", "must be numbers of at least 0", f"{wrong[0]} = {table[wrong[0]]}")

    @property
    def overlaps(self) -> bool:
        """Return whether evaluations are separate tasks."""
        return self.most_pending > 1 or bool(self.resources)

    @property
    def most_pending(self) -> int:
        """Return the largest number of pending evaluations of one agent, running or decided."""
        return self.parallel + self.prefetch

    def wanted(self, agent: int) -> dict[str, float]:
        """Return the resources that one evaluation of an agent needs."""
        if not self.resources:
            return {}
        return self.resources[agent if len(self.resources) > 1 else 0]
