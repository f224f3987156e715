"""Steps of several agents at once, for algorithms that decide faster for many agents together than one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple, cast

import numpy as np

from fedbo.actors.agent import HostedAgent
from fedbo.actors.agent_state import AgentState
from fedbo.actors.evaluation.batches import BatchEvaluation
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Array, Blockwise, Decision
from fedbo.objectives.base import LARGEST_VALUE, Joint
from fedbo.objectives.space import from_unit


class LearnedStep(NamedTuple):
    """An evaluated step of an agent: its request, the state that learned from the evaluations, and their result."""

    agent: HostedAgent
    request: StepRequest
    state: AgentState
    result: StepResult


@cache
def serves_blocks(kind: type) -> bool:
    """Return whether algorithms of a class serve several agents at once."""
    return issubclass(kind, Blockwise) and _agree(kind, (("ask", "ask_each"), ("outbox", "outbox_each")))


@cache
def _evaluates_blocks(kind: type) -> bool:
    """Return whether objectives of a class can be evaluated for several agents at once."""
    return hasattr(kind, "scores_each") and _agree(kind, (("score", "scores_each"), ("evaluate", "scores_each")))


def _agree(kind: type, pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether a class defines the methods of each pair, for one and for several agents, together.

    False if a subclass overrides the rule for one agent only, which the inherited rule for several would ignore.
    """
    for one, each in pairs:
        first = next(base for base in kind.__mro__ if one in vars(base) or each in vars(base))
        if each not in vars(first):
            return False
    return True


def work_together(algorithm: Any, agents: Sequence[HostedAgent], requests: Sequence[StepRequest]) -> list[StepReport]:
    """Run one step of each of these different agents, as `HostedAgent.work` does, and return the reports.

    A failed evaluation becomes a report. `serves_blocks` must be true of the algorithm's class.
    """
    reports = {agent.number: agent.begin(request) for agent, request in zip(agents, requests, strict=True)}
    begun = [(agent, request) for agent, request in zip(agents, requests, strict=True) if reports[agent.number] is None]
    asking = [(agent, request) for agent, request in begun if request.step > 0 and agent.state.decision is None]
    asked = algorithm.ask_each(
        [(agent.state.algorithm, request.inbox, agent.streams.at(request.step)) for agent, request in asking]
    )
    given = {agent.number: found for (agent, _), found in zip(asking, asked, strict=True)}
    decided = [agent.decided(request, given.get(agent.number)) for agent, request in begun]
    natives = _natives([agent for agent, _ in begun], [decision for _, decision in decided])
    learned: list[LearnedStep] = []
    known = _known([agent for agent, _ in begun], [decision for _, decision in decided], natives)
    for place, ((agent, request), (state, decision), points) in enumerate(zip(begun, decided, natives, strict=True)):
        try:
            result = agent.evaluate(request, state, decision, points, known.get(place))
            learned.append(LearnedStep(agent, request, state, result))
        except EvaluationError as error:
            reports[agent.number] = failure(request, error)
    sending = [one for one in learned if one.request.speaks and algorithm.sends(one.request.step)]
    written = algorithm.outbox_each([(one.state.algorithm, one.agent.streams.at(one.request.step)) for one in sending])
    sent = {one.agent.number: found for one, found in zip(sending, written, strict=True)}
    for one in learned:
        number = one.agent.number
        reports[number] = one.agent.end(one.request, one.state, one.result, sent.get(number))
    return [report for report in reports.values() if report is not None]


def _natives(agents: Sequence[HostedAgent], decisions: Sequence[Decision]) -> list[Array]:
    """Return the points of each decision in native units."""
    if not agents:
        return []
    points = from_unit(agents[0].task.federation.parameters, np.concatenate([decision.x for decision in decisions]))
    ends = accumulate(len(decision.x) for decision in decisions)
    return [points[end - len(decision.x) : end] for end, decision in zip(ends, decisions, strict=True)]


def _known(
    agents: Sequence[HostedAgent], decisions: Sequence[Decision], natives: Sequence[Array]
) -> dict[int, BatchEvaluation]:
    """Evaluate decisions of one point in one call where the objectives can be; return what was found, by place."""
    kinds = {type(agent.objective) for agent in agents}
    if len(kinds) != 1 or not all(map(_evaluates_blocks, kinds)):
        return {}
    objectives = [cast(Joint, agent.objective) for agent in agents]
    places = [
        place
        for place, (agent, decision) in enumerate(zip(agents, decisions, strict=True))
        if len(decision.x) == 1 and decision.pulls is None and agent.evaluates_at_once and objectives[place].is_exact
    ]
    if len(places) < 2:
        return {}
    try:
        points = np.concatenate([natives[place] for place in places])
        scores = type(objectives[0]).scores_each([objectives[place] for place in places], points)
    except Exception:  # one by one, it shows at which one
        return {}
    usable = np.abs(scores) <= LARGEST_VALUE
    return {place: BatchEvaluation(one, one) for place, one, good in zip(places, scores[:, None], usable, strict=True) if good}


def failure(request: StepRequest, error: EvaluationError) -> StepReport:
    """Return the report of an error that ends the run. It is raised when this step is due, not when the steps beside it are."""
    return StepReport(request.agent, request.step, queries=0, payload=None, lease=request.lease, failure=str(error))
