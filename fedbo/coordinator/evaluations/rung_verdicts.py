"""What agents say of evaluations at rungs, carried out: they go on, stop, pause, or go on from a pause."""

from __future__ import annotations

from fedbo.actors.task import RungVerdict, StepReport
from fedbo.coordinator.evaluations.pending import PendingEvaluation
from fedbo.coordinator.evaluations.running import RunningEvaluations
from fedbo.coordinator.events import Effect, EventLine
from fedbo.coordinator.state import AgentRecord, CoreState


class RungVerdicts:
    """The verdicts of agents on their evaluations at rungs; each is a line of the event log."""

    def __init__(self, running: RunningEvaluations, log: list[EventLine]) -> None:
        self._running, self._log = running, log

    def carry_out(self, state: CoreState, agent: AgentRecord, report: StepReport, told: int, now: float) -> list[Effect]:
        """Do what an agent says of the first `told` ends, as far as it has not been done; end by end."""
        found = agent.evaluations
        assert found is not None
        effects, said = list[Effect](), dict[int, list[RungVerdict]]()
        for verdict in report.verdicts:
            said.setdefault(verdict.end, []).append(verdict)
        for place in range(found.heard, told):
            one, verdicts = found.ended[place], said.get(place, [])
            what = next((verdict for verdict in verdicts if verdict.what != "promote"), None)
            effects += self._passed(state, agent, one, what, now)
            for verdict in verdicts:
                if verdict.what == "promote":
                    self._promote(agent, verdict, now)
        return effects

    def _passed(
        self, state: CoreState, agent: AgentRecord, one: PendingEvaluation, verdict: RungVerdict | None, now: float
    ) -> list[Effect]:
        """Let an evaluation go on from its rung, or give its place to others."""
        found, (step, point) = agent.evaluations, one.key
        assert found is not None
        words = verdict.what if verdict is not None else "failed" if one.held else "end"
        self._log.append((now, "rung", agent.number, step, 0, f"{point} {one.request.fidelity} {words}"))
        if not one.held:
            return []
        if verdict is not None and verdict.what == "go":
            return self._running.go_on(state, agent, one, verdict.fidelity, now)
        if verdict is not None and verdict.what == "pause":
            found.paused[one.key] = one
        held = found.running.pop(one.key, None)
        return [] if held is None else self._running.release(state, [(agent.number, held)], now)

    def _promote(self, agent: AgentRecord, verdict: RungVerdict, now: float) -> None:
        """Let an evaluation wait for a place to go on from its pause."""
        found = agent.evaluations
        assert found is not None
        one = found.paused.pop((verdict.step, verdict.point))
        request = one.request._replace(since=one.request.fidelity, fidelity=verdict.fidelity)
        found.waiting[one.key] = self._running.segment(request, one.length, resumed=True)
        self._log.append((now, "promoted", agent.number, verdict.step, 0, f"{verdict.point} {verdict.fidelity}"))
