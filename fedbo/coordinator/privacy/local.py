"""Local differential privacy: agents make messages private before sending them."""

from __future__ import annotations

from typing import Any

from fedbo.algorithms.base import Algorithm, Disclosure, LocallyPrivate, Payload
from fedbo.algorithms.returned import wrong
from fedbo.coordinator.kernel.state import CoreState
from fedbo.coordinator.privacy.ledger import LedgerEntry, local_entry


class DisclosureLog:
    """The ledger entries of messages that their senders made private; a message that never arrives counts too.

    They are `secure` where senders draw with secrets of their own.
    """

    def __init__(self, algorithm: Algorithm, secure: bool = False) -> None:
        # Asked once: to find out whether something keeps a protocol takes longer than to handle an event.
        self._algorithm = algorithm if isinstance(algorithm, LocallyPrivate) else None
        self._secure, self.entries = secure, list[LedgerEntry]()

    def record(self, state: CoreState, agent: int, payload: Payload, now: float) -> None:
        """Enter a message in the privacy ledger, if its sender has made it private."""
        if self._algorithm is None or not payload:
            return
        try:
            disclosure: Any = self._algorithm.disclosure(state.server, payload)
        except Exception:  # noqa: BLE001 -- its sender does not keep to the method, which then promises it nothing
            return
        if not isinstance(disclosure, Disclosure | None):
            words = f"returned a {type(disclosure).__name__}; it must return a Disclosure or None"
            error = wrong(self._algorithm, "disclosure", words)
            error.fedbo_step = f"message of agent {agent}"
            raise error
        if disclosure is not None:
            entry = local_entry(agent, state.disclosures, disclosure, now)
            self.entries.append(entry._replace(secure=self._secure))
            state.disclosures += 1
