"""The state machine between agents: what it refuses, and that what it refuses changes nothing."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from small_runs import Setting, fts, logged

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.actors.task import StepReport
from fedbo.algorithms.base import Decision
from fedbo.coordinator.errors import ProtocolError
from fedbo.coordinator.kernel.events import ConnectionChanged, Finished, Message, MessageReceived, ProcessDied, StudyStarted
from fedbo.coordinator.kernel.exchange import Barrier
from fedbo.coordinator.kernel.interruptions import Interruptions
from fedbo.coordinator.kernel.state import ProgressCounter
from fedbo.settings.own_code import CodeError, ReturnError

GOOD = {"omega": np.arange(20.0)}
BAD = {
    "an undeclared field": (Message(1, 1, 3, 0, 0.5, {**GOOD, "y": np.ones(1)}), "malformed", "undeclared field 'y'"),
    "a wrong shape": (Message(1, 1, 3, 0, 0.5, {"omega": np.ones(21)}), "malformed", "shape (21,), declared (20,)"),
    "a NaN": (Message(1, 1, 3, 0, 0.5, {"omega": np.full(20, np.nan)}), "malformed", "not finite"),
    "a wrong sender": (Message(2, 1, 3, 0, 0.5, GOOD), "forged", ""),
    "a sender who does not exist": (Message(77, 77, 3, 0, 0.5, GOOD), "unknown_agent", ""),
    "a list for an array": (Message(1, 1, 3, 0, 0.5, {"omega": [1.0] * 20}), "malformed", "is a list, not an array"),
    "nothing for an array": (Message(1, 1, 3, 0, 0.5, {"omega": None}), "malformed", "is a NoneType, not an array"),
    "something that is no message": (Message(1, 1, 3, 0, 0.5, b"\x80\x04."), "malformed", "payload is a bytes"),  # type: ignore[arg-type]
}


def _everything(core) -> bytes:
    return pickle.dumps(replace(core.state, progress=ProgressCounter()))  # that it was counted is no effect


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_message_becomes_an_event_and_changes_nothing(kind: str) -> None:
    core = Setting(fts()).core()
    core.handle(StudyStarted(), 0.0)
    before = _everything(core)
    core.rules.log.clear()
    message, reason, words = BAD[kind]
    assert core.handle(MessageReceived(message), 1.0) == []
    assert _everything(core) == before
    (record,) = logged(core.rules.log)
    assert (record.kind, record.reason) == ("rejected", reason) and words in (record.message or "")
    assert record.claimed_agent == (message.claimed_sender if reason == "forged" else None)


def test_a_second_copy_of_a_message_becomes_an_event_and_changes_nothing() -> None:
    core = Setting(fts()).core()
    core.handle(StudyStarted(), 0.0)
    core.handle(Finished(1, 1, StepReport(1, 0, 2, GOOD)), 0.5)
    arrived = MessageReceived(Message(1, 1, 0, 0, 0.5, GOOD))
    core.handle(arrived, 1.0)
    before = _everything(core)
    core.rules.log.clear()
    assert core.handle(arrived, 2.0) == []
    assert _everything(core) == before
    assert [line.reason for line in logged(core.rules.log)] == ["duplicate"]


def test_a_round_does_not_hang_on_an_agent_whose_message_was_refused() -> None:
    core = Setting(fts(), agents=2, exchange=Barrier()).core()
    core.handle(StudyStarted(), 0.0)
    for agent, payload in ((0, GOOD), (1, {"omega": np.full(20, np.inf)})):
        core.handle(Finished(agent, 1, StepReport(agent, 0, 2, payload)), 0.5)
        effects = core.handle(MessageReceived(Message(agent, agent, 0, 0, 0.5, payload)), 0.6)
    assert {effect.event.answer.agent for effect in effects} == {0, 1}
    assert not core.state.server.held[1]


@pytest.mark.parametrize("payload", [{"omega": [1.0] * 20}, {"omega": None}, {"y": np.ones(3)}, [1.0]])
def test_a_method_that_sends_nonsense_ends_the_run_with_its_name(payload: Any) -> None:
    algorithm = fts()

    class Garbled(type(algorithm)):  # type: ignore[misc]
        def outbox(self, state, streams):
            return payload, state

    garbled = Garbled(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    with pytest.raises(CodeError, match=r"test_core.py:\d+: Garbled.outbox \(agent 0, step 0\) returned .*message"):
        Setting(garbled).run()


def test_an_answer_that_is_not_as_declared_ends_the_run_with_the_reason() -> None:
    algorithm = fts()

    class Liar(type(algorithm)):  # type: ignore[misc]
        def broadcast(self, state, recipients, worth, streams):
            return {agent: {"omega": np.ones(3)} for agent in recipients}, state

    liar = Liar(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    with pytest.raises(ReturnError, match=r"Liar.broadcast \(to agent ., answer .\) returned an answer unlike its declaration"):
        Setting(liar).run()


def test_the_core_makes_the_same_of_its_state_as_a_snapshot_has_it() -> None:
    first, second = Setting(fts()).core(), Setting(fts()).core()
    event = Finished(0, 1, StepReport(0, 0, 2, GOOD))
    first.handle(StudyStarted(), 0.0)
    second.handle(StudyStarted(), 0.0)
    kept = unpack(pack(replace(first.state, agents=dict(first.state.agents))))
    second.state.agents.update(kept.agents)
    second.state = replace(kept, agents=second.state.agents)
    assert repr(first.handle(event, 1.0)) == repr(second.handle(event, 1.0))


def test_an_agent_that_waits_for_an_answer_that_never_comes_ends_the_run_with_its_name() -> None:
    algorithm = fts()

    class Silent(type(algorithm)):  # type: ignore[misc]
        queries = None

        def ask(self, state, inbox, streams):
            return Decision(np.empty((0, 2)), "none"), state

        def outbox(self, state, streams):
            return None, state

    silent = Silent(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    with pytest.raises(ProtocolError, match="agents 0, 1, 2, 3, 4 wait for an answer that will never arrive"):
        Setting(silent).run()


def test_an_agent_that_does_not_ask_for_as_many_points_as_declared_ends_the_run_with_the_reason() -> None:
    algorithm = fts()

    class Shy(type(algorithm)):  # type: ignore[misc]
        def ask(self, state, inbox, streams):
            return Decision(np.empty((0, 2)), "none"), state

    shy = Shy(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    with pytest.raises(CodeError, match=r"Shy.ask \(agent ., step 1\) .* x has 0 points, but the method declares queries = 1"):
        Setting(shy).run()


def test_an_agent_whose_process_dies_while_it_is_interrupted_begins_again_only_when_that_is_over() -> None:
    core = Setting(fts()).core()
    core.handle(StudyStarted(), 0.0)
    core.handle(ConnectionChanged(1, away=True), 0.5)
    before, lines = _everything(core), len(core.rules.log)
    assert core.handle(ProcessDied(1), 0.6) == []
    assert (_everything(core), len(core.rules.log)) == (before, lines)
    core.handle(ConnectionChanged(1, away=False), 0.7)
    assert core.handle(ProcessDied(1), 0.8) != []
    assert [line.kind for line in logged(core.rules.log)][-3:] == ["crashed", "restarted", "started"]


def test_a_connection_that_is_told_twice_is_noted_once_and_never_after_the_end_of_its_agent() -> None:
    core = Setting(fts()).core()
    core.handle(StudyStarted(), 0.0)
    core.handle(ConnectionChanged(1, away=True), 0.5)
    core.state.agents[2].ended = True
    before, lines = _everything(core), len(core.rules.log)
    for agent, away in ((1, True), (2, True), (3, False)):
        assert core.handle(ConnectionChanged(agent, away), 0.6) == []
    assert (_everything(core), len(core.rules.log)) == (before, lines)


def test_restarts_are_counted_from_one_until_a_message_is_processed() -> None:
    core = Setting(fts()).core()
    core.handle(StudyStarted(), 0.0)
    core.handle(Finished(1, 1, StepReport(1, 0, 2, GOOD)), 0.5)
    (interruptions,) = [part for part in core.parts if isinstance(part, Interruptions)]
    agent = core.state.agents[2]
    for time in (0.6, 0.7):
        interruptions.interrupt(core.state, agent, time, known=True, void=True)
        interruptions.resume(core.state, agent, time, restore="")
    assert core.state.progress.restarts == {2: 2}
    core.handle(MessageReceived(Message(1, 1, 0, 0, 0.5, GOOD)), 1.0)
    assert core.state.progress.restarts == {}


def test_a_report_that_comes_twice_or_without_a_step_is_discarded_and_changes_nothing() -> None:
    core = Setting(fts()).core()
    core.handle(StudyStarted(), 0.0)
    again = Finished(1, 1, StepReport(1, 0, 2, GOOD))
    core.handle(again, 0.5)
    idle = core.state.agents[0]
    idle.current = None
    for event in (again, Finished(0, idle.lease, StepReport(0, 0, 2, GOOD))):
        before = _everything(core)
        core.rules.log.clear()
        assert core.handle(event, 0.6) == []
        assert _everything(core) == before
        assert [(line.kind, line.agent, line.step) for line in logged(core.rules.log)] == [("discarded", event.agent, 0)]
