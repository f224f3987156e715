"""The rounds of secure aggregation of a study at sites, as its coordinator carries them out by letters."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from fedbo.privacy.mask_sizes import Unmasking
from fedbo.privacy.secure_aggregation import SiteSums
from fedbo.sites.keys import PublicKey
from fedbo.sites.mask_messages import MaskingError, MaskStep, MaskTerms, head, letter_number, opening, read_opening
from fedbo.sites.mask_sums import CoordinatorRound
from fedbo.sites.outbox import JournalRecords

_POLL = 0.02  # seconds between two looks at whether letters were answered
_AGENT, _RESULT = struct.Struct("<I"), struct.Struct("<QIIII?")  # the last: round, needed, three counts, whether there is a sum


class LetterBoxes(Protocol):
    """Letters to the sites, and the answers that come at any time later, or never."""

    def letter(self, agent: int, number: int, data: bytes) -> None:
        """Send an agent's site a letter in place of its earlier one."""

    def replies(self) -> list[tuple[int, int, bytes]]:
        """Return the new answers: agent, number of the letter, and answer."""

    def replied(self, agent: int, number: int) -> None:
        """Acknowledge the answer to a letter."""


class MaskRounds(SiteSums):
    """One round at a time; all that has come is on the disk before it is acknowledged, so a killed coordinator goes on.

    - `records`: journal of the rounds, with the sum of each.
    - `keys`: returns the keys of the agents' sites as they are now.
    - `is_there`: whether an agent's site was heard of within its lease: others have dropped out.
    - `lease`: seconds after which a site that is there and does not answer has dropped out, too.
    - `refused`: called with the reason when a site's message is not legal; it has dropped out, too.
    """

    def __init__(
        self,
        terms: MaskTerms,
        records: JournalRecords,
        letters: LetterBoxes,
        keys: Callable[[], Mapping[int, PublicKey]],
        is_there: Callable[[int], bool],
        lease: float,
        refused: Callable[[str, int], None] = lambda why, agent: None,
    ) -> None:
        self._terms, self._records, self._letters = terms, records, letters
        self._keys, self._is_there, self._lease, self._refused = keys, is_there, lease, refused
        self._since = time.monotonic()  # when the open phase began to wait
        self._ended: dict[int, Unmasking] = {}
        self._round: CoordinatorRound | None = None
        self._gone: set[int] = set()
        self._restore(records.read())

    def open(self, release: int, cohort: Sequence[int]) -> None:
        """Open the round of a release, once, for those of its cohort whose keys are known; it fails if they are too few."""
        if release in self._ended or (self._round is not None and self._round.number >= release):
            return
        known = self._keys()
        keys = {agent: known[agent] for agent in cohort if agent in known}
        needed = self._terms.needed(len(keys))
        if len(keys) < needed:
            self._end(release, Unmasking(list(cohort), [], [], needed))
            return
        self._records.append(b"O" + opening(0, release, keys))
        self._begin(release, keys)

    def turn(self) -> None:
        """Process what has arrived, and go on to the next phase of the setup once nobody is waited for."""
        self._take_replies()
        if self._round is not None and self._round.phase in ("advertise", "share") and not self._awaited():
            self._advance(None)

    def unmask(self, release: int, arrived: Sequence[int]) -> Unmasking:
        """Wait until the sum of a release is there, or too few sites are left for it."""
        self._since = time.monotonic()
        while release not in self._ended:
            if self._round is None or self._round.number != release:  # its opening was lost with the disk
                self._end(release, Unmasking(list(arrived), [], [], self._terms.needed(len(arrived))))
                break
            self._take_replies()
            if self._round.can_sum or not self._awaited(arrived):
                self._advance(arrived if self._round.phase == "mask" else None)
            else:
                time.sleep(_POLL)
        return self._ended[release]

    def _awaited(self, arrived: Collection[int] | None = None) -> list[int]:
        """List the agents that the open phase waits for; a vector only of those whose report has arrived."""
        assert self._round is not None
        senders = self._round.cohort if arrived is None or self._round.phase != "mask" else arrived
        missing = (agent for agent in self._round.missing if agent in senders and agent not in self._gone)
        waits = time.monotonic() - self._since <= self._lease
        return [agent for agent in missing if waits and self._is_there(agent)]

    def _take_replies(self) -> None:
        for agent, number, data in self._letters.replies():
            try:
                self._take(agent, data)
            except MaskingError as error:
                self._gone.add(agent)
                self._refused(str(error), agent)
            self._letters.replied(agent, number)

    def _take(self, agent: int, data: bytes) -> None:
        kind, sender, number = head(data)
        if self._round is None or number != self._round.number:
            return
        if kind is MaskStep.GONE and sender == agent:
            self._gone.add(agent)
        elif self._round.receive(agent, data):
            self._records.append(b"M" + _AGENT.pack(agent) + data)

    def _advance(self, only: Collection[int] | None) -> None:
        """End a phase, which is on the disk before anybody hears of it."""
        listed = b"" if only is None else b"".join(map(_AGENT.pack, only))
        self._records.append((b"A" if only is None else b"S") + listed)
        self._go_on(only)

    def _begin(self, release: int, keys: Mapping[int, PublicKey]) -> None:
        self._round, self._gone = CoordinatorRound(self._terms, release, keys), set()
        self._post(self._round.open())
        self._since = time.monotonic()

    def _go_on(self, only: Collection[int] | None) -> None:
        assert self._round is not None
        self._post(self._round.advance(only))
        self._since = time.monotonic()
        if self._round.phase in ("summed", "failed"):
            cohort, needed, members = self._round.cohort, self._round.needed, self._round.members
            answering = [cohort[place] for place in members]
            if self._round.total is None:
                answering = answering[: needed - 1]
            found = Unmasking(cohort, self._round.senders, answering, needed, self._round.total)
            self._end(self._round.number, found)

    def _end(self, release: int, found: Unmasking) -> None:
        self._records.append(b"D" + _packed(release, found))
        self._ended[release] = found
        if self._records.is_long:
            self._records.replace([b"D" + _packed(*one) for one in self._ended.items()])

    def _post(self, messages: Mapping[int, bytes]) -> None:
        for agent, data in messages.items():
            kind, _, number = head(data)
            self._letters.letter(agent, letter_number(kind, number), data)

    def _restore(self, records: Sequence[bytes]) -> None:
        """Go on where an earlier process ended; the letters of the open phase leave again."""
        self._ended = dict(_unpacked(record[1:]) for record in records if record[:1] == b"D")
        begun = [place for place, record in enumerate(records) if record[:1] == b"O"]
        opened = [] if not begun else list(records[begun[-1] :])
        if not opened:
            return
        release, _, keys = read_opening(opened[0][1:], self._terms)
        if release in self._ended:
            return
        self._begin(release, keys)
        for kind, data in ((record[:1], record[1:]) for record in opened[1:]):
            assert self._round is not None
            if kind == b"M":
                (agent,) = _AGENT.unpack_from(data)
                self._round.receive(agent, data[_AGENT.size :])
            else:
                self._go_on([agent for (agent,) in _AGENT.iter_unpack(data)] if kind == b"S" else None)


def _packed(release: int, found: Unmasking) -> bytes:
    lists, total = (found.cohort, found.sent, found.answering), found.total
    head = _RESULT.pack(release, found.needed, *map(len, lists), total is not None)
    agents = b"".join(_AGENT.pack(agent) for each in lists for agent in each)
    return head + agents + (b"" if total is None else total.astype("<u8").tobytes())


def _unpacked(data: bytes) -> tuple[int, Unmasking]:
    release, needed, *counts, has_total = _RESULT.unpack_from(data)
    words = np.frombuffer(data, "<u4", sum(counts), _RESULT.size).tolist()
    cohort, sent, answering = (words[sum(counts[:k]) : sum(counts[: k + 1])] for k in range(3))
    rest = data[_RESULT.size + _AGENT.size * len(words) :]
    total = np.frombuffer(rest, "<u8").astype(np.uint64) if has_total else None
    return release, Unmasking(cohort, sent, answering, needed, total)
