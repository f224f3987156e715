"""The task of a run, and what agents and coordinator exchange: requests for a step, and reports of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.base import Algorithm, Array, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation


class StepRequest(NamedTuple):
    """A request to an agent for step number `step`, with the messages that came in before.

    `lease` is the number of the request; `speaks` says whether a message is asked for. `restore` is what the agent shall go
    back to first: "before" its present step, or its last "checkpoint". `priced` says whether the points' costs are asked for.
    `tries` has how long each evaluation takes, where one may take too long, at cost 1 if there are `costs` of the points.
    """

    agent: int
    step: int
    lease: int = 0
    inbox: tuple[Inbound, ...] = ()
    speaks: bool = True
    restore: str = ""
    tries: tuple[float, ...] | None = None
    costs: tuple[float, ...] | None = None
    priced: bool = False


class DecisionSize(NamedTuple):
    """The size of a decision: how many points, what each costs if asked, and how often each is evaluated."""

    queries: int
    costs: tuple[float, ...] | None = None
    pulls: tuple[int, ...] | None = None


class StepReport(NamedTuple):
    """The report of a finished step to the coordinator: how many points there were, and the message. No observations.

    `t_n` counts the agent's observations, `retried` are the points evaluated again, by number, and `failed` says in a few
    words what was wrong with each evaluation that failed. `failure` says why the run cannot go on. `pulled` counts all
    evaluations of the agent so far, those of failed points with them, but neither what was retried nor what a crash cut short.
    """

    agent: int
    step: int
    queries: int
    payload: Payload | None
    lease: int = 0
    t_n: int = 0
    retried: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()
    failure: str | None = None
    pulled: int = 0


class AgentBudget(NamedTuple):
    """The budget of one agent: initial points, decisions after them, and evaluations in all, 0 where those are not counted."""

    initial: int
    iterations: int
    pulls: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that the agents of one run are made from; it is the same in every process.

    `initial` maps an agent to its points `(n, d)` before the first decision; for one that it does not name uniform ones are
    drawn. `histories` is the folder where agents keep what they learned in an earlier task. Every `checkpoint` steps an agent
    makes a checkpoint, to which a crash may take it back. `budgets` has those of all agents that optimise, where these are
    unequal.
    """

    federation: Federation
    algorithm: Algorithm
    problem: Problem
    streams: Streams
    noise: float = 0.0
    initial: dict[int, Array] = field(default_factory=dict)
    histories: Path | None = None
    phase: str = "search"
    policy: Policy = Policy()
    checkpoint: int = 1
    budgets: Mapping[int, AgentBudget] = field(default_factory=dict)

    def budget_of(self, agent: int) -> AgentBudget:
        """Give the budget of an agent that optimises."""
        problem = self.problem
        return self.budgets.get(agent) or AgentBudget(problem.initial, problem.iterations, problem.pulls)

    @property
    def whole_budget(self) -> int:
        """Count the decisions of all agents that optimise, or their evaluations where those are counted."""
        if not self.budgets:
            return (self.problem.pulls or self.problem.iterations) * len(self.problem.targets)
        return sum(own.pulls or own.iterations for own in self.budgets.values())
