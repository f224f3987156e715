"""The result of attacks on the methods of a study, as plain data that a file keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.algorithms.reveals import Reveals
from fedbo.analysis.finished_run import ResultError
from fedbo.figures.reports.tables import plain, table_of
from fedbo.settings.arguments import path
from fedbo.settings.shown import quoted
from fedbo_leak.attacks import best_point, counts, identity, observations
from fedbo_leak.measuring import LeakRow
from fedbo_leak.readings import COORDINATOR
from fedbo_leak.room import ANSWER

EXACT = 1e-6  # of the box: a best point to within this is one that was said
CLEAR = 0.05  # leakage of which the interval begins above this is clear


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method: what it declares to reveal, what attacks have found, its epsilon, and its gain.

    - `measured`: a word as of the declaration, by what is clear; of a private method by what agents receive.
    - `epsilon`: of the agent that has spent most, by the ledger; NaN where messages are not private.
    - `best`: mean over agents and runs of the noise-free score of the best point.
    """

    algorithm: str
    declared: str
    measured: str
    epsilon: float
    best: float
    runs: int

    @property
    def is_honest(self) -> bool:
        """Check that no more was found than is declared."""
        return not Reveals(self.measured).exceeds(Reveals(self.declared))


@dataclass(frozen=True, slots=True, repr=False)
class Leak:
    """The result of attacks on the messages of a study: one row for each method, and one for each attack."""

    directory: Path
    study: str
    methods: tuple[MethodRow, ...] = ()
    rows: tuple[LeakRow, ...] = ()

    def __repr__(self) -> str:
        """Return a sentence on each method."""
        return "\n".join(self.sentence(row.algorithm) for row in self.methods)

    @property
    def strongest(self) -> list[LeakRow]:
        """Return the rows of the strongest attacks."""
        return [row for row in self.rows if row.strongest]

    def sentence(self, algorithm: str) -> str:
        """Return what the attack with the largest clear leakage has found of a method."""
        own = [row for row in self.strongest if row.algorithm == algorithm]
        clear = [row for row in own if row.leakage_low > CLEAR]
        if not own:
            return f"{algorithm} sends nothing."
        if not clear:
            return f"{algorithm}: no attack is clearly better than a guess."
        # What it finds of the best point is what people ask about first.
        points = [row for row in clear if row.target == best_point.BEST]
        return f"{algorithm}: {max(points or clear, key=lambda row: row.leakage_low).sentence}."

    def save(self) -> Leak:
        """Write the result into its directory, and return it."""
        atomic.write_text(self.directory / ANSWER.file, seal(as_document(self), indent=2))
        return self

    @classmethod
    def open(cls, directory: str | Path) -> Leak:
        """Read a result; ResultError where the attacks have not ended."""
        folder = Path(path("directory", directory))
        if not ANSWER.is_in(folder):
            has_begun = ANSWER.has_begun_in(folder)
            remedy = f"continue with: fedbo resume {quoted(folder)}" if has_begun else "pass the directory of fedbo leak"
            raise ResultError(f"'{directory}': contains no result of fedbo leak; {remedy}")
        return of_document(folder, unseal(folder / ANSWER.file))


def as_document(leak: Leak) -> dict[str, Any]:
    """Return the result for a file; NaN and infinity are null."""
    return {
        "study": leak.study,
        "methods": [_written(row) for row in leak.methods],
        "rows": [_written(row) for row in leak.rows],
    }


def _written(row: MethodRow | LeakRow) -> dict[str, Any]:
    return {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in asdict(row).items()}


def of_document(folder: Path, document: dict[str, Any]) -> Leak:
    """Return the result that a file holds."""

    def read(row: dict[str, Any]) -> dict[str, Any]:
        return {name: math.nan if one is None else one for name, one in row.items()}

    methods = tuple(MethodRow(**read(row)) for row in document["methods"])
    return Leak(folder, document["study"], methods, tuple(LeakRow(**read(row)) for row in document["rows"]))


def measured(rows: Sequence[LeakRow], is_private: bool, view: str = COORDINATOR) -> str:
    """Return what attacks by a view have clearly found of a method, in the words of declarations."""
    # That an agent takes part, and how often it sends, is no part of any declaration.
    public = (identity.SENDER, identity.LINKED, counts.NUMBER)
    clear = [row for row in rows if row.view == view and row.leakage_low > CLEAR and row.target not in public]
    points = [row for row in clear if row.target in (observations.POINTS, observations.OBSERVED)]
    best = [row for row in rows if (row.view, row.target, row.attack) == (view, best_point.BEST, "said")]
    if any(row.high < EXACT for row in best) or any(row.attack == "said" for row in points):
        return str(Reveals.OBSERVATIONS)
    if points:
        return str(Reveals.COMPUTABLE)
    if is_private:  # its epsilon bounds what is learned from what has noise, and does not forbid it
        return str(Reveals.NOISY_SUMS)
    return str(Reveals.DRAWS if clear else Reveals.NOTHING)


def leak_table(leak: Leak) -> RenderableType:
    """Format the sentences, the methods, and the strongest attack on each target."""
    methods = [
        (row.algorithm, row.declared, row.measured, _number(row.epsilon), f"{row.best:.4g}", str(row.runs))
        for row in leak.methods
    ]
    rows = [
        (
            row.algorithm,
            row.view,
            row.target,
            row.attack,
            f"{row.value:.2g}",
            f"{row.low:.2g} to {row.high:.2g}",
            _number(row.guess),
            _number(row.others),
            f"{row.leakage:.2f}",
        )
        for row in leak.strongest
    ]
    columns = ("algorithm", "view", "target", "strongest attack", "value", "95 %", "guess", "others'", "leakage")
    heads = ("algorithm", "messages reveal", "measured", "epsilon", "best score", "runs")
    return Group(
        Text(str(leak)),
        table_of("Methods", heads, methods, "methods"),
        table_of("What the strongest attacks have found", columns, rows, "attacks"),
        Text("leakage: share of the way from a guess, or from another agent's messages, to the truth", style="dim"),
    )


def _number(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "-"


def leak_facts(leak: Leak) -> dict[str, Any]:
    """Return the result as plain data."""
    return {**plain(leak), "directory": str(leak.directory), "sentences": str(leak).splitlines()}
