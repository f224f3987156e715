"""The result of a hunt, as plain data that a file keeps."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.analysis.finished_run import ResultError
from fedbo.figures.reports.tables import plain, table_of
from fedbo.settings.arguments import path
from fedbo.settings.shown import quoted
from fedbo_hunt.room import ANSWER

FOUND, WORLD, REPLAY = "found.toml", "world.toml", "replay"


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A world that was tried: how it was found, its tables, and the excess on the seeds of the search."""

    how: str
    tables: str
    replicates: int
    mean: float
    low: float


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """The verdict on a world, on seeds of its own.

    - `how`: "drawn", "guided" or "shrunk"; `lines`: those of its study file.
    - `excesses`: by how much each replicate went beyond the claim; `low`: the end of the 95 % confidence sequence of the mean.
    - `p_value`: of the sequential test; `corrected`: for all worlds with a verdict (Holm). `limit`: the bound of the test.
    """

    how: str
    tables: str
    lines: int
    excesses: tuple[float, ...]
    limit: float
    low: float
    p_value: float
    corrected: float

    @property
    def mean(self) -> float:
        """Return the mean excess; NaN where a run of the world said nothing."""
        return sum(self.excesses) / len(self.excesses) if self.excesses else math.nan


@dataclass(frozen=True, slots=True, repr=False)
class Hunt:
    """The result of a hunt for a world in which a claim fails.

    - `broken`: whether a verdict refuted the claim in some world; `verdict` is the place of the reported one in `verdicts`.
    - `worlds`: how many were tried, of which `left_out` say nothing, since a run of theirs failed or could not end.
    - `trials`: replicates of a world that the search, the verdicts and the shrinking carried out.
    - `world`: the reported study as the text of a study file; empty where the claim stands.
    - `reported`: the verdict on it, None where the claim stands.
    """

    directory: Path
    claim: str
    quantity: str
    search: str
    level: float
    worlds: int
    left_out: int
    trials: tuple[int, int, int]
    tried: tuple[TriedRow, ...] = ()
    verdicts: tuple[VerdictRow, ...] = ()
    verdict: int | None = None
    world: str = ""

    def __repr__(self) -> str:
        """Return one sentence on whether the claim fails, and where."""
        tried = f"{self.worlds} worlds were tried" + (f", {self.left_out} of which say nothing" if self.left_out else "")
        if (row := self.reported) is None:
            return f'No world breaks the claim "{self.claim}" beyond doubt: {tried}.'
        where = f"a world of {row.lines} lines" + (", the smallest found" if row.how == "shrunk" else "")
        return (
            f'The claim "{self.claim}" fails in {where}: mean excess {row.mean:.3g} over {len(row.excesses)} fresh replicates, '
            f"at least {row.low:.3g} (95 %), p = {row.corrected:.2g} corrected for {len(self.verdicts)} worlds; {tried}."
        )

    @property
    def broken(self) -> bool:
        """Check whether the claim fails in a world."""
        return self.verdict is not None

    @property
    def reported(self) -> VerdictRow | None:
        """Return the verdict on the reported world."""
        return None if self.verdict is None else self.verdicts[self.verdict]

    def save(self) -> Hunt:
        """Write the result into its directory, and return it."""
        document = asdict(self)
        del document["directory"]
        atomic.write_text(self.directory / ANSWER.file, seal(document, indent=2))
        return self

    @classmethod
    def open(cls, directory: str | Path) -> Hunt:
        """Read a result; ResultError where the hunt has not ended."""
        folder = Path(path("directory", directory))
        if not ANSWER.is_in(folder):
            remedy = (
                f"continue with: fedbo resume {quoted(folder)}"
                if ANSWER.has_begun_in(folder)
                else "pass the directory of a hunt"
            )
            raise ResultError(f"'{directory}': contains no result of fedbo hunt; {remedy}")
        document: dict[str, Any] = unseal(folder / ANSWER.file)
        document["trials"] = tuple(document["trials"])
        for name, row in (("tried", TriedRow), ("verdicts", VerdictRow)):
            listed = ({**one, **{key: tuple(one[key]) for key in ("excesses",) if key in one}} for one in document[name])
            document[name] = tuple(row(**one) for one in listed)
        return cls(directory=folder, **{name: document[name] for name in cls.__dataclass_fields__ if name in document})


def hunt_table(hunt: Hunt) -> RenderableType:
    """Format the sentence, the verdicts, and the reported world."""
    parts = list[RenderableType]([Text(str(hunt))])
    rows = [
        (
            row.how + (" *" if place == hunt.verdict else ""),
            row.tables or "as the study",
            str(row.lines),
            str(len(row.excesses)),
            f"{row.mean:.3g}",
            f"{row.low:.3g}",
            f"{row.corrected:.2g}",
        )
        for place, row in enumerate(hunt.verdicts)
    ]
    columns = ("world", "its tables", "lines", "replicates", "mean excess", "at least (95 %)", "p, corrected")
    if rows:
        parts.append(table_of(f"Verdicts on fresh seeds: {hunt.quantity}", columns, rows, "verdicts"))
    if hunt.broken:
        last = hunt.verdicts[-1]
        if last.how != "shrunk":
            parts.append(Text("no smaller world was found in which the claim fails as clearly"))
        elif hunt.reported is not last:
            parts.append(Text("the shrunk world does not break the claim on fresh seeds, so the world before it is reported"))
        world = quoted(hunt.directory / WORLD)
        parts.append(Text(hunt.world.rstrip()))
        parts.append(Text(f"run it again: fedbo run {world}; before shrinking: {hunt.directory / FOUND}", style="dim"))
        parts.append(Text(f"replay: {hunt.directory / REPLAY}", style="dim"))
    search, verdicts, shrinking = hunt.trials
    parts.append(Text(f"trials: {search} of the search, {verdicts} of verdicts, {shrinking} of the shrinking", style="dim"))
    return Group(*parts)


def hunt_facts(hunt: Hunt) -> dict[str, Any]:
    """Return the result as plain data."""
    return {**plain(hunt), "directory": str(hunt.directory), "broken": hunt.broken, "sentence": str(hunt)}
