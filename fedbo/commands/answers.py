"""What `show`, `plot` and `resume` do with a directory that is no run but an answer, of a kind that a room declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fedbo.commands.arguments import Format, TableFormat, print_json, progress_display, stop_interrupted
from fedbo.settings.rooms import AnswerKind, loaded, rooms
from fedbo.settings.shown import quoted

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


def _kinds() -> list[AnswerKind]:
    return [answer for room in rooms().values() for answer in room.answers]


def answer_in(folder: Path, trust: bool) -> StoredAnswer | None:
    """Return the answer in a directory; None in that of a run."""
    kind = next((kind for kind in _kinds() if kind.is_in(folder)), None)
    return None if kind is None else loaded(kind.read)(folder, trust)


def resume_answer(folder: Path, changed: bool, printed: Format, quiet: bool) -> bool:
    """Finish the answer that a directory holds the beginning of; False if there is none. Nothing about it may be `changed`."""
    kind = next((kind for kind in _kinds() if kind.has_begun_in(folder)), None)
    if kind is None:
        return False
    if changed:
        words = "options cannot be changed; remove --set, --algorithm and --callback"
        raise typer.BadParameter(f"'{folder}' contains an unfinished {kind.name}; {words}")
    finish_answer(lambda: loaded(kind.resume)(folder, progress_display(quiet)), printed)
    return True


def finish_answer(carry_out: Callable[[], StoredAnswer], printed: Format) -> None:
    """Find an answer, draw its figure into its directory and print it; say how to continue after Ctrl-C."""
    from fedbo.figures.reports.tables import console

    try:
        answer = carry_out()
    except KeyboardInterrupt as stop:
        place = stop.args[0] if stop.args else None
        stop_interrupted(place, f"continue with: fedbo resume {quoted(place)}", printed)
    figure = answer.draw(None, 0, {})
    if printed is Format.json:
        print_json({**answer.facts, "figures": [str(figure)]})
        return
    console().print(answer.table)
    print(f"results: {answer.directory}\nfigure:  {figure}")


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
