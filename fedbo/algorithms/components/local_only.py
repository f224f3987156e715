"""Methods without communication: every agent optimises alone, and the coordinator half is empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fedbo.algorithms.base import Array, Declaration, Inbound, Payload, Problem
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import check


class LocalOnly:
    """One point for each decision, no message, and no coordinator half."""

    __slots__ = ()
    reveals: ClassVar[Reveals] = Reveals.NOTHING

    def __post_init__(self) -> None:
        check(self)

    @property
    def queries(self) -> int | None:
        """One point for each decision."""
        return 1

    def sends(self, step: int) -> bool:
        """Return False for every step."""
        return False

    def upload(self, problem: Problem) -> Declaration | None:
        """Return None, since nothing is sent."""
        return None

    def download(self, problem: Problem) -> Declaration | None:
        """Return None, since there is no answer."""
        return None

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Send nothing."""
        return None, state

    def server_init(self, problem: Problem) -> Any:
        """Return None, since there is no coordinator half."""
        return None

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Return the state unchanged, since no message arrives."""
        return state

    def broadcast(
        self, state: Any, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Return no answers."""
        return {}, state
