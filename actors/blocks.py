"""The steps of a block of agents at once, where the algorithm decides for several in less time than for one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from fedbo.actors.agent import HostedAgent
from fedbo.actors.agent_state import AgentState
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Blockwise

Learned = tuple[HostedAgent, StepRequest, AgentState, StepResult]


def work_together(algorithm: Blockwise, agents: Sequence[HostedAgent], requests: Sequence[StepRequest]) -> list[StepReport]:
    """Carry out a step of each of these agents, all of them different, as `HostedAgent.work` does; failures are reported."""
    reports = {agent.number: agent.begin(request) for agent, request in zip(agents, requests, strict=True)}
    begun = [(agent, request) for agent, request in zip(agents, requests, strict=True) if reports[agent.number] is None]
    asking = [(agent, request) for agent, request in begun if agent.asks(request)]
    asked = algorithm.ask_each([(agent.state.algorithm, request.inbox, agent.streams(request)) for agent, request in asking])
    decided = {agent.number: found for (agent, _), found in zip(asking, asked, strict=True)}
    learned: list[Learned] = []
    for agent, request in begun:
        try:
            learned.append((agent, request, *agent.evaluate(request, decided.get(agent.number))))
        except EvaluationError as error:
            reports[agent.number] = failure(request, error)
    sending = [(agent, request, state) for agent, request, state, _ in learned if agent.sends(request)]
    written = algorithm.outbox_each([(state.algorithm, agent.streams(request)) for agent, request, state in sending])
    sent = {agent.number: found for (agent, _, _), found in zip(sending, written, strict=True)}
    for agent, request, state, result in learned:
        reports[agent.number] = agent.end(request, state, result, sent.get(agent.number))
    return [report for report in reports.values() if report is not None]


def failure(request: StepRequest, error: EvaluationError) -> StepReport:
    """Report what ends the run; it is told when this step is due, and not with the steps of its neighbours."""
    return StepReport(request.agent, request.step, 0, None, request.lease, failure=str(error))
