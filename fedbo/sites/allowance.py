"""What a site has spent of a study: evaluations, steps and messages, in a journal from which no order takes anything back."""

from __future__ import annotations

import struct

from fedbo.sites.errors import PolicyError, SitesError
from fedbo.sites.outbox import JournalRecords

_NUMBERS = struct.Struct("<QQqq")  # evaluations, messages, the last step, and the step of the last message


class Allowance:
    """The evaluations, steps and messages of a site, of which its policy and its study allow so many.

    - `most`: evaluations that the policy allows; `last`: the last step of the study's budget.
    - `evaluations`: those that have begun; `messages`: those that differ.

    What is counted is on the disk first. A step that is carried out again has the message that it had before.
    """

    def __init__(self, records: JournalRecords, most: int, last: int) -> None:
        self._records, self._most, self._last = records, most, last
        self.evaluations, self.messages, self._step, self._spoken, self._message = 0, 0, -1, -1, b""
        for record in records.read():
            kind, numbers, message = record[:1], record[1 : 1 + _NUMBERS.size], record[1 + _NUMBERS.size :]
            self.evaluations, self.messages, self._step, self._spoken = _NUMBERS.unpack(numbers)
            self._message = message if kind == b"M" else self._message

    def evaluate(self, times: int) -> None:
        """Count evaluations that are about to begin; PolicyError where these are more than the policy allows."""
        if self.evaluations + times > self._most:
            words = f"the coordinator asks for more than the {self._most} evaluations that the policy of this site allows"
            raise PolicyError(f"{words}, repeated ones included; raise `evaluations` in policy.toml, and run fedbo join again")
        self.evaluations += times
        self._write(b"N")

    def begin(self, step: int) -> None:
        """Begin a step, perhaps again; SitesError for one beyond the study's budget, or before the last one."""
        if not max(0, self._step) <= step <= self._last:
            words = f"the terms of the study end with step {self._last}, and this site is at step {self._step}"
            raise SitesError(f"the coordinator orders step {step}, but {words}; ask whoever runs the coordinator why")
        if step > self._step:
            self._step = step
            self._write(b"N")

    def message(self, step: int, data: bytes) -> bytes:
        """Return the message of a step: `data`, or what the step has sent before."""
        if step > self._spoken:
            self._spoken, self._message, self.messages = step, data, self.messages + 1
            self._write(b"M")
        return self._message

    def _write(self, kind: bytes) -> None:
        numbers = _NUMBERS.pack(self.evaluations, self.messages, self._step, self._spoken)
        if self._records.is_long:
            self._records.replace([b"M" + numbers + self._message])
        else:
            self._records.append(kind + numbers + (self._message if kind == b"M" else b""))
