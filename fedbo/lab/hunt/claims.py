"""A claim about a method, and by how much a run goes beyond what it allows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbo.analysis.disruptions import staleness_of
from fedbo.lab.papers.manifest import At
from fedbo.lab.why.ends import COUNTED, NUMBER, End, EndedRun
from fedbo.settings.arguments import wrong

ENDS, SAME, STALENESS, BEST = "ends", "same", "staleness", "best"
HALF = "half"
_BY = rf"(?:\s+by\s+(?P<margin>{NUMBER}))?"
_AT = r"(?:\s+at\s+(?P<at>end|half|mean|t\s*=\s*\d+))?"
_OF = rf"(?P<what>regret|best|staleness|{'|'.join(COUNTED)}|time to (?P<level>{NUMBER})) of (?P<of>.+?)"
_FORMS = {
    "gain": re.compile(rf"(?P<of>.+?) is (?P<sign>not worse|better) than (?P<than>.+?){_BY}{_AT}"),
    "bound": re.compile(rf"{_OF} is at (?P<sign>most|least) (?P<margin>{NUMBER}){_AT}"),
    "pair": re.compile(rf"{_OF} is not (?P<sign>above|below) that of (?P<than>.+?){_BY}{_AT}"),
    SAME: re.compile(r"(?P<of>.+?) has the same results as (?P<than>.+)"),
    ENDS: re.compile(r"(?P<of>.+?) ends"),
}
EXAMPLES = (
    '"fts is not worse than ts by 0.01 at t = 10", "time to 0.9 of fts is not above that of ts by 5", '
    '"bytes of fts is at most 1e6", "staleness of fts is at most 3", "fts ends" or "fts has the same results as ts"'
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about the method `of`, which may compare it with the method `than`.

    `form` and `sign` say what is compared with `margin`; `end` is the quantity, whose place may be the half of the iterations.
    """

    words: str
    form: str
    of: str
    than: str
    sign: str
    margin: float
    end: End
    half: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the methods."""
        return (self.of, self.than) if self.than else (self.of,)

    @property
    def quantity(self) -> str:
        """Return the name of what exceeds what the claim allows."""
        if self.form in (ENDS, SAME):
            return "share of runs that break the claim, above one half"
        return f"excess of {self.end.quantity} over the claim"

    @property
    def bound(self) -> float | None:
        """Return by how much a run can stay below what the claim allows at most; None where that is not known."""
        if self.form in (ENDS, SAME):
            return 0.5
        return self.margin if self.form == "bound" and self.sign == "most" and self.end.what != BEST else None

    def check(self, labels: Sequence[str], decisions: int) -> None:
        """Check the claim against a study's labels and number of decisions; ArgumentError."""
        for label in self.labels:
            if label not in labels:
                raise wrong("claim", self.words, f"names '{label}'; choose labels of the study: {', '.join(map(repr, labels))}")
        if self.than == self.of:
            raise wrong("claim", self.words, "compares a method with itself; name two methods")
        if isinstance(self.end.at, int) and self.end.at > decisions:
            raise wrong("claim", self.words, f"is about t = {self.end.at}, but runs end at t = {decisions}; set a smaller t")

    def excess(self, runs: Mapping[str, EndedRun], decisions: int) -> float | None:
        """Return by how much the runs of one replicate go beyond what the claim allows; above 0 where they break it.

        None where they say nothing, such as a run without any value or one that could not end.
        """
        mine = runs[self.of]
        if self.form == ENDS:
            return 0.5 if mine.was_stuck else -0.5
        if any(run.was_stuck for run in runs.values()):
            return None
        if self.form == SAME:
            return (
                -0.5 if mine.observations.drop(["algorithm"]).equals(runs[self.than].observations.drop(["algorithm"])) else 0.5
            )
        other = self._value(runs[self.than], decisions) if self.than else 0.0
        found = (self._value(mine, decisions) - other) * self._direction(mine) - self._allowed
        return None if math.isnan(found) else found

    def _direction(self, run: EndedRun) -> float:
        """Return 1 where a larger quantity goes beyond the claim, and -1 where a smaller one does."""
        if self.form == "gain":
            return -run.metric.sign
        return 1.0 if self.sign in ("most", "above") else -1.0

    @property
    def _allowed(self) -> float:
        """Return the excess that the claim allows."""
        return -self.margin if self.sign in ("better", "least") else self.margin

    def _value(self, run: EndedRun, decisions: int) -> float:
        """Return the quantity of a run; a level that it never reached counts as twice the time of its end."""
        if self.end.what == STALENESS:
            return float(staleness_of(run.events).max(initial=0.0))
        end = End(self.end.words, self.end.what, at=max(1, decisions // 2), level=self.end.level) if self.half else self.end
        value = end.value(run)
        return 2.0 * End("", "end").value(run) if math.isinf(value) and end.level is not None else value


def parse_claim(words: str) -> Claim:
    """Parse a claim; ArgumentError with examples for any other text."""
    text = " ".join(words.split()) if isinstance(words, str) else ""
    for form, pattern in _FORMS.items():
        if found := pattern.fullmatch(text):
            return _claim(text, form, {name: value or "" for name, value in found.groupdict().items()})
    raise wrong("claim", words, f"must be a claim such as {EXAMPLES}")


def _claim(words: str, form: str, parts: Mapping[str, str]) -> Claim:
    what = "time to level" if parts.get("level") else parts.get("what") or BEST
    at, level = parts.get("at", ""), parts.get("level", "")
    if at and what not in (BEST, "regret"):
        raise wrong("claim", words, "has 'at' only for best and regret; remove it")
    place: At = int(at.partition("=")[2]) if at.startswith("t") else "mean" if at == "mean" else "end"
    if place == 0:
        raise wrong("claim", words, "must count iterations from 1")
    return Claim(
        words=words,
        form=form,
        of=parts["of"],
        than=parts.get("than", ""),
        sign=parts.get("sign", ""),
        margin=float(parts.get("margin") or 0.0),
        end=End(words, what, at=place, level=float(level) if level else None),
        half=at == HALF,
    )
