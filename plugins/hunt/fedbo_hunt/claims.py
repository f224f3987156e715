"""A claim about a method, by how much a run goes beyond what it allows, and a sequential test of the mean excess.

The test bets against "the mean is at most 0". After n values its wealth is the mean over bets b of the products of
1 + b v / L, where L bounds the values from below by -L. Under the claim the wealth is a nonnegative supermartingale that starts
at 1, so it ever reaches 1 / alpha with probability at most alpha (Ville 1939; Waudby-Smith & Ramdas 2023), whenever one looks.
Nothing else is assumed of the values but that they are independent and alike. A value below -L shows that L was wrong, and the
claim then stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.analysis.comparison import At
from fedbo.analysis.disruptions import staleness_of
from fedbo.lab.why.ends import COUNTED, NUMBER, End, EndedRun
from fedbo.settings.arguments import wrong

Array = npt.NDArray[np.float64]
LEVEL = 0.05
_BETS = np.linspace(0.05, 0.95, 19)[:, None]
_STEPS = 60  # of the bisection for a bound
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
        found = (self._value(mine, decisions) - other) * self._direction(mine)
        found -= -self.margin if self.sign in ("better", "least") else self.margin
        return None if math.isnan(found) else found

    def _direction(self, run: EndedRun) -> float:
        """Return 1 where a larger quantity goes beyond the claim, and -1 where a smaller one does."""
        if self.form == "gain":
            return -run.metric.sign
        return 1.0 if self.sign in ("most", "above") else -1.0

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


def wealth(values: Sequence[float] | Array, limit: float, mean: float = 0.0) -> Array:
    """Return the wealth `(n,)` of a bet that the mean is above `mean`, after each of `values (n,)` of at least -`limit`."""
    ratio = (np.asarray(values, dtype=np.float64) - mean) / (limit + mean)
    product = np.exp(np.cumsum(np.log1p(_BETS * ratio), axis=1))
    found: Array = product.mean(axis=0)
    return found


def p_value(values: Sequence[float] | Array, limit: float) -> float:
    """Return the p-value of "the mean is at most 0" that holds at any time; 1 without values."""
    if not len(values) or min(values) < -limit:
        return 1.0
    return min(1.0, 1.0 / float(wealth(values, limit).max()))


def lower_bound(values: Sequence[float] | Array, limit: float, level: float = LEVEL) -> float:
    """Return the lower end of the one-sided confidence sequence of the mean: the least mean that is not refuted.

    It is minus infinity where a value is below -`limit`.
    """
    if len(values) and min(values) < -limit:
        return -math.inf
    low, high = -limit, float(max(values, default=-limit))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        refuted = limit + middle > 0 and wealth(values, limit, middle).max() >= 1 / level
        low, high = (middle, high) if refuted else (low, middle)
    return low
