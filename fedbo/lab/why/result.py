"""The answer to why a run ended as it did, as plain data that a file keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.analysis.finished_run import ResultError
from fedbo.lab.why.curve import wilson
from fedbo.lab.why.room import ANSWER
from fedbo.lab.why.shares import Share, Spread
from fedbo.settings.shown import quoted


@dataclass(frozen=True, slots=True)
class MomentRow:
    """A moment: of `draws` branches that redraw all that follows, `bad` ended badly; `low`, `high`: the 95 % interval."""

    time: float
    bad: int
    draws: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JumpRow:
    """A window of time in which the probability of a bad end jumped, with its most unusual events.

    `sure` says whether the intervals at both ends have nothing in common.
    """

    start: float
    stop: float
    before: float
    after: float
    sure: bool
    events: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source of luck. Of `anew` branches that redraw only it, `anew_bad` ended badly.

    Of `others` branches that redraw everything else, `others_bad` ended badly.
    """

    source: str
    anew_bad: int
    anew: int
    others_bad: int
    others: int

    @property
    def weight(self) -> float:
        """Return how much the bad end needs this source and how far it suffices, from 0 to 2."""
        return 1 - (self.anew_bad + 0.5) / (self.anew + 1) + (self.others_bad + 0.5) / (self.others + 1)

    @property
    def anew_interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the probability of a bad end when only this source is redrawn."""
        return wilson(self.anew_bad, self.anew)

    @property
    def others_interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the probability of a bad end when everything else is redrawn."""
        return wilson(self.others_bad, self.others)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Why:
    """Why a run ended badly, and which luck spreads its quantity.

    - `run`: cell, algorithm and replicate; the replicate is None if all were asked. `value` is that of the run.
    - `end`: the statement of the bad end, empty if only the spread was asked for; `same_end`: runs that end so, of `runs`.
    - `moments`, `jumps`: the probability of a bad end over `time`. `sources`, `agents`: whose luck it was, strongest first.
    - `constant`: sources that draw nothing that matters here. `spread`: the shares of the quantity's spread, if asked for.
    """

    directory: Path
    run: tuple[int, str, int | None]
    end: str = ""
    quantity: str
    value: float | None = None
    is_bad: bool = False
    same_end: int = 0
    runs: int
    stop: float = 0.0
    time: str = "time"
    branches: int
    moments: tuple[MomentRow, ...] = ()
    jumps: tuple[JumpRow, ...] = ()
    sources: tuple[SourceRow, ...] = ()
    agents: tuple[SourceRow, ...] = ()
    constant: tuple[str, ...] = ()
    spread: Spread | None = None

    def __repr__(self) -> str:
        """Return a line with the question and the strongest sources of luck."""
        asked = f'"{self.end}"' if self.end else f"the spread of the {self.quantity}"
        first = f", first {' and '.join(self.causes[:2])}" if self.sources else ""
        return f"<Why {asked} of {self.run[1]!r}: {self.branches} branches{first}; {str(self.directory)!r}>"

    @property
    def causes(self) -> tuple[str, ...]:
        """Return the sources, strongest first."""
        return tuple(row.source for row in self.sources)

    def save(self) -> Why:
        """Write the answer into its directory, and return it."""
        document = asdict(self)
        del document["directory"]
        atomic.write_text(self.directory / ANSWER.file, seal(document, indent=2))
        return self

    @classmethod
    def open(cls, directory: str | Path) -> Why:
        """Read an answer; ResultError where it has not been found yet."""
        folder = Path(directory)
        if not ANSWER.is_in(folder):
            remedy = (
                f"continue with: fedbo resume {quoted(folder)}"
                if ANSWER.has_begun_in(folder)
                else "pass the directory of fedbo why"
            )
            raise ResultError(f"'{directory}': contains no answer of fedbo why; {remedy}")
        return cls(directory=folder, **_read(unseal(folder / ANSWER.file)))


def _read(document: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: document[name] for name in Why.__dataclass_fields__ if name in document}
    found["run"], found["constant"] = tuple(found["run"]), tuple(found["constant"])
    found["moments"] = tuple(MomentRow(**row) for row in found["moments"])
    found["jumps"] = tuple(JumpRow(**{**row, "events": tuple(row["events"])}) for row in found["jumps"])
    for name in ("sources", "agents"):
        found[name] = tuple(SourceRow(**row) for row in found[name])
    if spread := found["spread"]:
        found["spread"] = Spread(**{**spread, "shares": tuple(Share(**row) for row in spread["shares"])})
    return found


def answers_beside(run: Path) -> list[Why]:
    """Return the answers about a run that are kept with it."""
    return [Why.open(path.parent) for path in sorted((run / "why").glob(f"*/{ANSWER.file}"))]
