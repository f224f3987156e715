"""A whole hunt: the search, verdicts on the worlds that it found, the smallest world, and a verdict on that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.summary import holm
from fedbo.execution.progress import Progress, RowInfo
from fedbo.settings.errors import ArgumentError
from fedbo.study.document import StudyError, to_toml
from fedbo.study.study import load_study
from fedbo_hunt.claims import LEVEL, Claim, lower_bound, p_value, parse_claim
from fedbo_hunt.result import FOUND, WORLD, Hunt, TriedRow, VerdictRow
from fedbo_hunt.search import WorldSearch, safe_limit
from fedbo_hunt.shrinking import shrink
from fedbo_hunt.trials import LAST, SEARCH, SHRINKING, VERDICT, Document, WorldTrials
from fedbo_hunt.worlds import Worlds

FINALISTS = 3
_VERDICT = (20, 60)  # replicates of a verdict, at least and at most
# Likewise of a world while it shrinks, and of the smallest: an excess that may be smaller takes longer to see.
_SHRINKING, _LAST = (4, 120), (20, 240)
_SHRINKING_LEVEL, _CANDIDATES = 0.02, 1000
_FIXED = ("study", "algorithm")  # the claim is about these methods, with these settings


@dataclass(frozen=True, slots=True)
class HuntQuestion:
    """The question of a hunt: the tables of a study of the claim's methods, the claim, and the way to search."""

    study: Document
    claim: str
    vary: tuple[str, ...]
    worlds: int
    seed: int
    search: str


class Hunting:
    """A hunt while it goes on. It is a function of its question, and trials in the ledger are not carried out again."""

    def __init__(self, place: Path, question: HuntQuestion, progress: Progress | None = None) -> None:
        self._place, self._question, self._progress = place, question, progress
        self._claim: Claim = parse_claim(question.claim)
        self._trials = WorldTrials(place, self._claim, question.seed, self._show)
        self._carried_out = 0

    def run(self) -> Hunt:
        """Carry the hunt out and return its result."""
        if self._progress is not None:
            self._progress.start([RowInfo(0, "trials", 1)])
        try:
            return self._result()
        finally:
            if self._progress is not None:
                self._progress.finish()

    def _show(self) -> None:
        self._carried_out += 1
        if self._progress is not None:
            expected = max(4 * (self._question.worlds + _VERDICT[1]), self._carried_out)
            self._progress.update(RunKey(0, "trials", 0), self._carried_out, expected, None)

    def _result(self) -> Hunt:
        asked, trials = self._question, self._trials
        search = WorldSearch(Worlds(asked.study, asked.vary, asked.seed), trials, asked.worlds, asked.seed)
        finalists = search.run(asked.search)[:FINALISTS]
        documents = [one.world.document(asked.study) for one in finalists]
        tests = len(finalists) + 1
        verdicts = [
            self._verdict(document, (one.world.how, VERDICT), search.limit(one), (LEVEL / tests, *_VERDICT))
            for one, document in zip(finalists, documents, strict=True)
        ]
        hunt = Hunt(
            directory=self._place,
            claim=self._claim.words,
            quantity=self._claim.quantity,
            search=asked.search,
            level=LEVEL,
            worlds=search.count,
            left_out=search.left_out,
            trials=(0, 0, 0),
            tried=tuple(
                TriedRow(one.world.how, ", ".join(one.world.changes), len(one.excesses), one.mean, one.low)
                for one in search.tried
            ),
        )
        chosen = self._chosen(verdicts)
        if chosen is not None:
            hunt = self._shrunk(hunt, verdicts, documents[chosen], chosen)
        else:
            hunt = replace(hunt, verdicts=tuple(_corrected([*verdicts], tests)))
        made = trials.count(SEARCH), trials.count(VERDICT) + trials.count(LAST), trials.count(SHRINKING)
        return replace(hunt, trials=made)

    def _chosen(self, verdicts: Sequence[VerdictRow]) -> int | None:
        """Return the place of the world to shrink: of those in which the claim fails the one with the fewest lines."""
        corrected = _corrected(verdicts, len(verdicts) + 1)
        broken = [place for place, row in enumerate(corrected) if row.corrected <= LEVEL]
        return min(broken, key=lambda place: (verdicts[place].lines, -verdicts[place].low), default=None)

    def _shrunk(self, hunt: Hunt, verdicts: Sequence[VerdictRow], document: Document, chosen: int) -> Hunt:
        """Shrink a world in which the claim fails, and report the smallest one, or that world if its verdict differs."""
        limit, study = verdicts[chosen].limit, self._question.study
        # What the study itself says may go as well, but not where the claim would then fail without any world.
        fails_anyway = self._breaks(study, limit)
        least = shrink(
            document,
            lambda one: self._breaks(one, limit) and (fails_anyway or not self._breaks(self._at_home(one), limit)),
            _CANDIDATES,
            _FIXED,
        )
        rows, place, tests = [*verdicts], chosen, len(verdicts) + 1
        reported = (document, VERDICT)
        if least != document:
            if self._claim.bound is None:
                own = self._trials.excesses(least, SHRINKING, _SHRINKING[0]) or [limit]
                limit = max(limit, safe_limit(own, own))
            rows.append(self._verdict(least, ("shrunk", LAST), limit, (LEVEL / tests, *_LAST)))
        rows = _corrected(rows, tests)
        if least != document and rows[-1].corrected <= LEVEL:
            place, reported = len(verdicts), (least, LAST)
        atomic.write_text(self._place / FOUND, self._toml(document, VERDICT, len(rows[chosen].excesses)))
        world = self._toml(*reported, len(rows[place].excesses))
        atomic.write_text(self._place / WORLD, world)
        return replace(hunt, verdicts=tuple(rows), verdict=place, world=world)

    def _at_home(self, document: Document) -> Document:
        """Return the study of a world without what the world varies."""
        study, varied = self._question.study, {"group" if name == "agents" else name for name in self._question.vary}
        kept = {name: table for name, table in document.items() if name not in varied}
        kept |= {name: study[name] for name in varied if name in study}
        if "agents" in self._question.vary and "agents" in study["objective"]:
            kept["objective"] = {**document["objective"], "agents": study["objective"]["agents"]}
        return kept

    def _breaks(self, document: Document, limit: float) -> bool:
        """Check whether the claim fails in a world, on the seeds of the shrinking."""
        try:
            self._claim.check(self._claim.labels, load_study(document, trust=True).budget.decisions)
            found = self._until_decided(document, SHRINKING, limit, (_SHRINKING_LEVEL, *_SHRINKING))
        except (StudyError, ArgumentError):
            return False
        return found is not None and p_value(found, limit) <= _SHRINKING_LEVEL

    def _verdict(self, document: Document, named: tuple[str, str], limit: float, until: tuple[float, int, int]) -> VerdictRow:
        how, purpose = named
        found = self._until_decided(document, purpose, limit, until) or []
        p, low = p_value(found, limit), lower_bound(found, limit)
        lines = len([line for line in self._toml(document, purpose, len(found)).splitlines() if line])
        varied = ", ".join(name for name, table in document.items() if table != self._question.study.get(name))
        return VerdictRow(
            how=how, tables=varied, lines=lines, excesses=tuple(found), limit=limit, low=low, p_value=p, corrected=p
        )

    def _until_decided(
        self, document: Document, purpose: str, limit: float, until: tuple[float, int, int]
    ) -> list[float] | None:
        """Return the excesses of a world, until their p-value is reached or their mean speaks for the claim.

        `until` has the p-value, and the least and the largest number of replicates; None where a run says nothing.
        """
        level, least, most = until
        found: list[float] | None = []
        while found is not None and len(found) < most:
            found = self._trials.excesses(document, purpose, min(most, max(least, len(found) + 2)))
            if found and (p_value(found, limit) <= level or sum(found) <= 0):
                break
        return found

    def _toml(self, document: Document, purpose: str, replicates: int) -> str:
        header = {"name": "hunt", "seed": self._trials.seed(purpose), "replicates": replicates}
        return to_toml({"study": header, **{name: table for name, table in document.items() if name != "study"}})


def _corrected(rows: Sequence[VerdictRow], tests: int) -> list[VerdictRow]:
    """Return verdicts with p-values corrected for this number of tests, of which those to come count with 1."""
    found = holm([*(row.p_value for row in rows), *[1.0] * (tests - len(rows))])
    return [replace(row, corrected=p) for row, p in zip(rows, found, strict=False)]
