"""The task of a run, and the requests and reports that agents and the coordinator exchange."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.base import Algorithm, Array, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation, Objective
from fedbo.objectives.derived.federation import Centralised
from fedbo.objectives.goals import Goals
from fedbo.settings.own_code import CodeError
from fedbo.settings.rooms import optional


class EvaluationEnd(NamedTuple):
    """The end of the evaluation of point `point` of step `step`: its start, its end, and whether it was `in_time`.

    `copied` is the time that its other copy took on a worker of a cluster.
    """

    step: int
    point: int
    started: float
    finished: float
    in_time: bool = True
    copied: float = 0.0


@dataclass(slots=True)
class StepRequest:
    """A request to an agent for step number `step`, with the messages that arrived before.

    - `lease`: number of the request; a report of another lease is outdated.
    - `speaks`: whether the step sends a message.
    - `restore`: state to return to first: "before" the present step, or the last "checkpoint".
    - `priced`: whether the costs of the points are needed.
    - `tries`: duration of each evaluation, where one may take too long, at cost 1 if there are `costs` of the points.
    - `ended`: evaluations that ended since the last step, in order, where the coordinator schedules them one by one.
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
    ended: tuple[EvaluationEnd, ...] | None = None


class RungVerdict(NamedTuple):
    """The verdict on the evaluation of point `point` of step `step`, after end number `end` of those its agent received.

    `what` is "go", "stop" or "pause" at a rung, and "promote" for a paused one; one that continues ends at `fidelity`.
    """

    end: int
    step: int
    point: int
    what: Literal["go", "stop", "pause", "promote"]
    fidelity: int = 0


class DecisionSize(NamedTuple):
    """The size of a decision: the number of points, the cost of each if requested, and how often each is evaluated."""

    queries: int
    costs: tuple[float, ...] | None = None
    pulls: tuple[int, ...] | None = None


@dataclass(slots=True)
class StepReport:
    """The report of a finished step to the coordinator: the number of points and the message, but no observations.

    - `t_n`: the agent's observations.
    - `retried`: points evaluated again, by number.
    - `failed`: one line for each failed evaluation.
    - `failure`: why the run cannot continue, which is raised when this step is due, not when those beside it are.
    - `pulled`: evaluations of the agent so far, failed points included, retries and those that a crash cut short not.
    - `again`: failed evaluations to repeat, by step and point, where they are scheduled one by one.
    - `reached`: whether a value reached the study's target.
    - `verdicts`: verdicts on evaluations at rungs, in order.
    - `spent`: time of its evaluations so far, where limited and known, else 0; infinite if its decision was its last.
    """

    agent: int
    step: int
    queries: int
    payload: Payload | None
    lease: int = 0
    t_n: int = 0
    retried: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()
    failure: str | CodeError | None = None
    pulled: int = 0
    again: tuple[tuple[int, int], ...] = ()
    reached: bool = False
    verdicts: tuple[RungVerdict, ...] = ()
    spent: float = 0.0


class AgentBudget(NamedTuple):
    """The budget of one agent: initial points, decisions after them, and evaluations in all (0: not counted)."""

    initial: int
    iterations: int
    pulls: int = 0


class BudgetUse(NamedTuple):
    """What an agent has used of its budget: its evaluations that count, and their time."""

    pulled: int = 0
    time: float = 0.0


class EarlyEnd(NamedTuple):
    """The condition for a run in virtual time to end early: a value of `target`, or successful `evaluations` of all agents."""

    target: float | None = None
    evaluations: int | None = None


class HistoryFiles(NamedTuple):
    """The folder of the agents' observations of an earlier task; for agents in `warm` the earlier task was this very task."""

    folder: Path
    warm: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Task:
    """All data from which the agents of one run are created; it is the same in every process.

    - `noise`: variance of the noise that is added to evaluations.
    - `initial`: points `(n, d)` before the first decision, by agent; other agents start with uniform ones.
    - `history`: observations of agents in an earlier task, None where there was none.
    - `checkpoint`: steps between two checkpoints of an agent, to which a crash may take it back.
    - `budgets`: budgets of all agents that optimise, where these are unequal.
    - `early_end`: condition for a run in virtual time to end before its budget.
    - `stopping`: the `Stopping` rules of virtual time; `reported`: those of real time, by reported values; None without.
    - `slopes`: an evaluation at the point u costs exp(slopes . (u - 1/2)), whatever the objective reports.
    - `noise_scope`: the run's name within its study. Private noise is drawn from streams of this scope, so
      that no two runs share it.
    - `code`: places of Python code that its processes may import, with the hashes of that code.
    - `goals`: objectives and limits of the agents, if the study names metrics; `own_goals`: those of agents with other limits
      or weights.
    - `cost`: time of an agent's evaluations with which its decisions end.
    - `has_secret_draws`: whether each agent draws with a secret of its own, as at sites.
    """

    federation: Federation
    algorithm: Algorithm
    problem: Problem
    streams: Streams
    noise: float = 0.0
    initial: dict[int, Array] = field(default_factory=dict)
    history: HistoryFiles | None = None
    phase: str = "search"
    policy: Policy = Policy()
    checkpoint: int = 1
    budgets: Mapping[int, AgentBudget] = field(default_factory=dict)
    early_end: EarlyEnd | None = None
    stopping: Any = None
    reported: Any = None
    slopes: tuple[float, ...] = ()
    noise_scope: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    goals: Goals | None = None
    own_goals: Mapping[int, Goals] = field(default_factory=dict)
    cost: float = math.inf
    has_secret_draws: bool = False

    def goals_of(self, agent: int) -> Goals | None:
        """Return the objectives and limits of an agent; None where the study names no metrics."""
        return self.own_goals.get(agent, self.goals) if self.own_goals else self.goals

    @property
    def calls_user_code(self) -> bool:
        """Return whether objectives may run code that is not part of fedbo: of the study, or of a plug-in."""
        return bool(self.code) or not type(self.federation).__module__.startswith("fedbo.")

    def phase_of(self, step: int) -> str:
        """Return the phase of the rows of a step."""
        return "initial" if step == 0 and self.phase == "search" else self.phase

    def costs_at(self, u: Array) -> tuple[float, ...] | None:
        """Return the costs of points `(q, d)` of the unit cube; None where the objective determines them."""
        if not self.slopes:
            return None
        logs = ((u - 0.5) * np.array(self.slopes)).sum(axis=1)
        return tuple(np.exp(logs).tolist())

    def budget_of(self, agent: int) -> AgentBudget:
        """Return the budget of an agent that optimises."""
        problem = self.problem
        return self.budgets.get(agent) or AgentBudget(problem.initial, problem.iterations, problem.pulls)

    @property
    def whole_budget(self) -> int:
        """Return the number of decisions of all agents that optimise, or of their evaluations where those are counted."""
        if not self.budgets:
            return (self.problem.pulls or self.problem.iterations) * len(self.problem.targets)
        return sum(own.pulls or own.iterations for own in self.budgets.values())

    @property
    def overlaps(self) -> bool:
        """Return whether evaluations of several steps of an agent may be pending at once."""
        algorithm, several = self.algorithm, self.policy.most_pending > 1 or self.stopping is not None
        return several and algorithm.queries == 1 and hasattr(algorithm, "pending")  # Overlapping, quickly

    def least_pending(self, agent: int, step: int, decided: int, t_n: int, used: BudgetUse) -> int:
        """Return the number of pending evaluations below which a step of an `agent` with `t_n` observations ends.

        `decided` is the number pending just after the step's decision; `used` is what the agent has used of its budget so far.
        """
        policy, sends = self.policy, self.algorithm.sends
        if not self.overlaps or (policy.wait == "all" and (step == 0 or decided >= policy.most_pending)):
            return 1
        if step == 0 and (not t_n or (sends(0) and not sends(1))):  # a first message alone tells of all initial points
            return 1
        own = self.budget_of(agent)
        is_spent = step >= own.iterations or 0 < own.pulls <= used.pulled or used.time >= self.cost
        return 1 if is_spent else policy.most_pending


def reported_stopping(task: Task, folder: Path) -> Any:
    """Return the `ReportedStopping` of a run, with its files in a folder; None where no evaluation stops or is restored."""
    made, restores = optional("reported_stopping"), getattr(task.federation, "takes_restore", False)
    if made is None or (task.reported is None and not restores):
        return None
    return made(task.reported, folder, task.federation.metric.sign)


def objective_of(federation: Federation, number: int, world: Streams) -> Objective:
    """Return an agent's objective, with draws that are the same in every run of a replicate; `world` is the study's stream."""
    if isinstance(federation, Centralised):
        agents = range(federation.federation.n_agents)
        return federation.mean([objective_of(federation.federation, agent, world) for agent in agents])
    return federation.objective(number, world.shared("objective"), world.of(number).rng("objective"))
