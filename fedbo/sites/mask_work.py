"""Secure aggregation at a site: it answers the letters of the coordinator, and masks each of its messages once."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping

import numpy as np

from fedbo.algorithms.base import Array, Private, Problem
from fedbo.privacy.gaussian import clip_factors
from fedbo.privacy.secure_aggregation import contributions
from fedbo.sites.errors import PolicyError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.mask_messages import MaskingError, MaskStep, MaskTerms, head, letter_number, message
from fedbo.sites.masks import SiteRound
from fedbo.sites.outbox import JournalRecords

_NUMBERS = struct.Struct("<qq")  # the last round that the site took part in, and the last step whose message it has masked


class SiteMasks:
    """The masks of a site. Letters are answered in the thread of its connection, while its own thread may evaluate.

    - `algorithm`, `problem`: whose messages are masked; they declare how a site shortens and weighs its message.
    - `records`: keeps which round was the last, and of which step the last masked message was.
    - `admit`: raises PolicyError for a cohort that the policy of the site does not allow.
    - `refused`: called with the reason when the site drops out of a round.
    """

    def __init__(
        self,
        terms: MaskTerms,
        algorithm: Private,
        problem: Problem,
        agent: int,
        key: PrivateKey,
        records: JournalRecords,
        admit: Callable[[Mapping[int, PublicKey]], None] = lambda sites: None,
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._terms, self._algorithm, self._problem, self._agent, self._key = terms, algorithm, problem, agent, key
        self._records, self._admit, self._refused = records, admit, refused
        self._mechanism, self._lock = algorithm.mechanism(problem), threading.Lock()
        self._last, self._step = next((_NUMBERS.unpack(record) for record in reversed(records.read())), (-1, -1))
        self._round: SiteRound | None = None
        self._waits: Array | None = None  # a message whose masks are not agreed on yet

    def answer(self, letter: bytes) -> bytes:
        """Return the answer to a letter; empty if it is due later, or if the letter is unreadable."""
        with self._lock:
            try:
                kind, _, number = head(letter)
            except MaskingError as error:
                self._refused(str(error))
                return b""
            try:
                return self._answered(kind, number, letter)
            except (MaskingError, PolicyError) as error:
                self._round = self._waits = None
                self._refused(str(error))
                return message(MaskStep.GONE, self._agent, number)

    def mask(self, step: int, vector: Array) -> tuple[int, bytes] | None:
        """Mask the message `(M,)` of a step: return the number of the letter that it answers, and the answer.

        None where it leaves later, or not at all since this site is in no round. A message is masked once, as the difference of
        two sums could be that message: at a second time the site drops out of the round.
        """
        with self._lock:
            if self._round is None:
                return None
            number = letter_number(MaskStep.DELIVERED, self._round.number)
            if self._waits is not None or step <= self._step:
                gone = message(MaskStep.GONE, self._agent, self._round.number)
                self._round = self._waits = None
                return number, gone
            self._note(self._last, step)
            self._waits = vector
            return (number, self._masked()) if self._round.can_mask else None

    def _answered(self, kind: MaskStep, number: int, letter: bytes) -> bytes:
        if kind is MaskStep.OPENING:
            self._round, self._waits = None, None
            opened = SiteRound(self._terms, self._agent, self._key, letter, self._last)
            self._admit(opened.sites)
            self._note(number, self._step)
            self._round = opened
            return opened.advert()
        if self._round is None or self._round.number != number:
            return message(MaskStep.GONE, self._agent, number)  # this process was not there when the round was opened
        reply = self._round.receive(letter)
        return self._masked() if self._round.can_mask and self._waits is not None else reply

    def _masked(self) -> bytes:
        """Shorten and weigh the waiting message, as the coordinator would without masks, and mask it."""
        assert self._round is not None and self._waits is not None
        mechanism, settings = self._mechanism, self._terms.settings
        norm = np.sqrt(np.vdot(self._waits, self._waits))[None]
        scale, _ = clip_factors(norm, mechanism.clip / np.sqrt(mechanism.blocks))
        weights = self._algorithm.weights(self._problem, self._round.number)[:, [self._agent]]
        blocks = contributions(self._waits[None], weights * scale / mechanism.share)
        return self._round.mask(settings.to_fixed(blocks, len(self._round.cohort))[0])

    def _note(self, last: int, step: int) -> None:
        self._last, self._step = last, step
        write = self._records.replace if self._records.is_long else lambda records: self._records.append(records[0])
        write([_NUMBERS.pack(last, step)])
