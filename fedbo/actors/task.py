"""The task of a run, and what agents and coordinator exchange: requests for a step, and reports of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.stopping.stopping import Stopping
from fedbo.algorithms.base import Algorithm, Array, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation, Objective
from fedbo.objectives.derived.centralised import Centralised


class EvaluationEnd(NamedTuple):
    """The end of an evaluation, of point `point` of step `step`: when it began and ended, and whether that was `in_time`."""

    step: int
    point: int
    started: float
    finished: float
    in_time: bool = True


@dataclass(slots=True)
class StepRequest:
    """A request to an agent for step number `step`, with the messages that came in before.

    `lease` is the number of the request; `speaks` says whether a message is asked for. `restore` is what the agent shall go
    back to first: "before" its present step, or its last "checkpoint". `priced` says whether the points' costs are asked for.
    `tries` has how long each evaluation takes, where one may take too long, at cost 1 if there are `costs` of the points.
    `ended`, where the coordinator schedules evaluations one by one, are those that have ended since the last step, in order.
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
    """What becomes of evaluation `point` of step `step`, said after end number `end` of those that its agent was told of.

    `what` is "go", "stop" or "pause" at a rung, and "promote" of one that was paused; one that goes on ends at `fidelity`.
    """

    end: int
    step: int
    point: int
    what: Literal["go", "stop", "pause", "promote"]
    fidelity: int = 0


class DecisionSize(NamedTuple):
    """The size of a decision: how many points, what each costs if asked, and how often each is evaluated."""

    queries: int
    costs: tuple[float, ...] | None = None
    pulls: tuple[int, ...] | None = None


@dataclass(slots=True)
class StepReport:
    """The report of a finished step to the coordinator: how many points there were, and the message. No observations.

    `t_n` counts the agent's observations, `retried` are the points evaluated again, by number, and `failed` says in a few
    words what was wrong with each evaluation that failed. `failure` says why the run cannot go on. `pulled` counts all
    evaluations of the agent so far, those of failed points with them, but neither what was retried nor what a crash cut short.
    `again` are the evaluations by step and point that failed and are to be made again, where they are scheduled one by one; and
    `reached` says whether a value was as good as the study's target. `verdicts` are on evaluations at rungs, in their order.
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
    again: tuple[tuple[int, int], ...] = ()
    reached: bool = False
    verdicts: tuple[RungVerdict, ...] = ()


class AgentBudget(NamedTuple):
    """The budget of one agent: initial points, decisions after them, and evaluations in all, 0 where those are not counted."""

    initial: int
    iterations: int
    pulls: int = 0


class EarlyEnd(NamedTuple):
    """When a run in virtual time ends early: at a value of `target`, or after successful `evaluations` of all agents."""

    target: float | None = None
    evaluations: int | None = None


class HistoryFiles(NamedTuple):
    """The folder where agents keep what they learned in an earlier task; `warm` ones learned it in this very task."""

    folder: Path
    warm: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that the agents of one run are made from; it is the same in every process.

    - `noise`: variance of the noise that is added to evaluations.
    - `initial`: points `(n, d)` before the first decision by agent; uniform ones for an agent that it does not name.
    - `history`: what agents learned in an earlier task, None where there was none.
    - `checkpoint`: steps between two checkpoints of an agent, to which a crash may take it back.
    - `budgets`: budgets of all agents that optimise, where these are unequal.
    - `early_end`: when a run in virtual time ends before its budget.
    - `stopping`: which evaluations stop early; in real time `reported`, by what they report.
    - `slopes`: an evaluation at the point u costs exp(slopes . (u - 1/2)), whatever the objective reports.
    - `noise_scope`: the run's name within its study. Private noise is drawn from streams of this scope, so that no two runs
      share it.
    - `code`: places of Python code that its processes may import.
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
    stopping: Stopping | None = None
    reported: Stopping | None = None
    slopes: tuple[float, ...] = ()
    noise_scope: str = ""
    code: tuple[str, ...] = ()

    @property
    def calls_user_code(self) -> bool:
        """Return whether objectives may run code that is not fedbo's: of a place that the study names, or of a plug-in."""
        return bool(self.code) or not type(self.federation).__module__.startswith("fedbo.")

    def costs_at(self, u: Array) -> tuple[float, ...] | None:
        """Give what evaluations cost at points `(q, d)` of the unit cube, where that is not for the objective to say."""
        if not self.slopes:
            return None
        logs = ((u - 0.5) * np.array(self.slopes)).sum(axis=1)
        return tuple(np.exp(logs).tolist())

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

    @property
    def overlaps(self) -> bool:
        """Say whether evaluations of several steps of an agent may be pending at once."""
        algorithm, several = self.algorithm, self.policy.most_pending > 1 or self.stopping is not None
        return several and algorithm.queries == 1 and hasattr(algorithm, "pending")  # Overlapping, quickly

    def least_pending(self, agent: int, step: int, decided: int, t_n: int, pulled: int = 0) -> int:
        """Give the number of pending evaluations below which a step of an `agent` with `t_n` observations ends.

        `decided` were pending when it had been decided on, and `pulled` counts all evaluations until then, as a budget may.
        """
        policy, sends = self.policy, self.algorithm.sends
        if not self.overlaps or (policy.wait == "all" and (step == 0 or decided >= policy.most_pending)):
            return 1
        rare = sends(0) and not sends(1)  # such a first message tells of all initial points
        own = self.budget_of(agent)
        spent = step >= own.iterations or 0 < own.pulls <= pulled
        drains = spent or (step == 0 and (rare or not t_n))
        return 1 if drains else policy.most_pending


def objective_of(federation: Federation, number: int, world: Streams) -> Objective:
    """Build an agent's objective, with the draws that it has in every run of a replicate; `world` is the study's own stream."""
    if isinstance(federation, Centralised):
        agents = range(federation.federation.n_agents)
        return federation.mean([objective_of(federation.federation, agent, world) for agent in agents])
    return federation.objective(number, world.shared("objective"), world.of(number).rng("objective"))
