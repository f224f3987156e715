"""A listener at the coordinator of a run: it keeps every message that arrives and every answer, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from fedbo.algorithms.base import Array, Payload
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.events import Message
from fedbo.coordinator.kernel.state import CoreState


class Letter(NamedTuple):
    """A message of an agent after one of its steps, or the answer of a round to an agent, with its time and its arrays."""

    agent: int
    step: int
    time: float
    payload: Payload


class Heard(NamedTuple):
    """All messages that arrived, and all answers."""

    up: list[Letter]
    down: list[Letter]


_HEARD: ContextVar[Heard | None] = ContextVar("_HEARD", default=None)


@contextmanager
def listening() -> Iterator[Heard]:
    """Keep the messages of the runs that this process carries out within."""
    heard = Heard([], [])
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def listen(core: Core) -> None:
    """Listen at the receipt of a core; fedbo calls this for every run, and nothing happens outside of `listening`.

    A receipt of which a function was replaced is unknown to windows. So messages pass one by one, and a run has the same bytes.
    """
    heard = _HEARD.get()
    if heard is None:
        return
    receipt: Any = core.rules.receipt
    accept, answer = receipt.accept, receipt.answer

    def noted(state: CoreState, message: Message, asked: bool, now: float) -> Any:
        refusal = accept(state, message, asked, now)
        if refusal is None and message.payload:
            heard.up.append(Letter(message.claimed_sender, message.step, now, message.payload))
        return refusal

    def told(state: CoreState, recipients: Sequence[int], weights: Array, now: float) -> dict[int, Any]:
        answers: dict[int, Any] = answer(state, recipients, weights, now)
        number = state.rounds.number
        heard.down.extend(Letter(agent, number, now, payload) for agent, payload in answers.items() if payload)
        return answers

    receipt.accept, receipt.answer = noted, told
