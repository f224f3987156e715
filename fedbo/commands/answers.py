"""What `show` and `plot` do with a directory that is no run but an answer: a fork, why a run ended so, or a hunt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbo.commands.arguments import TableFormat, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedbo.analysis.result import Choices


class StoredAnswer(NamedTuple):
    """An answer: what it is, where, its table, its facts, the class and rows of its CSV, and what draws its figure."""

    what: str
    directory: Path
    table: RenderableType
    facts: dict[str, Any]
    rows: tuple[str, type[Any], Sequence[Any]]
    draw: Callable[[Path | None, int, Choices], Path]


def answer_in(folder: Path, trust: bool) -> StoredAnswer | None:
    """Return the answer in a directory; None in that of a run."""
    from fedbo.lab.fork.result import is_fork
    from fedbo.lab.hunt.result import is_hunt
    from fedbo.lab.why.result import is_why

    if is_fork(folder):
        return _fork(folder, trust)
    return _why(folder) if is_why(folder) else _hunt(folder) if is_hunt(folder) else None


def show_answer(answer: StoredAnswer, printed: TableFormat) -> None:
    """Print an answer in one of the formats."""
    from fedbo.analysis.records.records import Records
    from fedbo.figures.reports.tables import console
    from fedbo.figures.reports.views import written

    if printed is TableFormat.json:
        print_json({**answer.facts, "figures": []})
    elif printed is TableFormat.csv:
        print(Records(*answer.rows).to_csv(), end="")
    elif printed is TableFormat.text:
        console().print(answer.table)
        print(f"results: {answer.directory}")
    else:
        print(written(answer.table, printed), end="")


def _fork(folder: Path, trust: bool) -> StoredAnswer:
    from fedbo.lab.fork.figure import draw_fork
    from fedbo.lab.fork.result import Fork, ForkEffect
    from fedbo.lab.fork.tables import fork_facts, fork_table

    fork = Fork.open(folder, trust)
    rows = ("effects", ForkEffect, fork.effects())
    return StoredAnswer(
        what="a fork",
        directory=fork.directory,
        table=fork_table(fork),
        facts=fork_facts(fork),
        rows=rows,
        draw=lambda path, cell, look: draw_fork(fork, path, cell, look),
    )


def _why(folder: Path) -> StoredAnswer:
    from fedbo.lab.why.figure import draw_why
    from fedbo.lab.why.result import SourceRow, Why
    from fedbo.lab.why.tables import why_facts, why_table

    why = Why.open(folder)
    rows = ("sources", SourceRow, [*why.sources, *why.agents])
    return StoredAnswer(
        what="why",
        directory=why.directory,
        table=why_table(why),
        facts=why_facts(why),
        rows=rows,
        draw=lambda path, _, look: draw_why(why, path, look),
    )


def _hunt(folder: Path) -> StoredAnswer:
    from fedbo.lab.hunt.figure import draw_hunt
    from fedbo.lab.hunt.result import Hunt, TriedRow
    from fedbo.lab.hunt.tables import hunt_facts, hunt_table

    hunt = Hunt.open(folder)
    return StoredAnswer(
        what="a hunt",
        directory=hunt.directory,
        table=hunt_table(hunt),
        facts=hunt_facts(hunt),
        rows=("worlds", TriedRow, hunt.tried),
        draw=lambda path, _, look: draw_hunt(hunt, path, look),
    )
