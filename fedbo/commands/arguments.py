"""Exit codes, arguments and output formats that several commands share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, TypeVar

import typer

from fedbo.settings.logs import say
from fedbo.settings.rooms import optional

if TYPE_CHECKING:
    from fedbo.execution.progress import Progress

OK, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

CODES = (
    "Exit codes: 0 all went well; 1 the run failed; 2 wrong input (study file, arguments, run directory); "
    "130 interrupted, and partial results are kept."
)


class Format(StrEnum):
    """The output format of a command: text, or one JSON object."""

    text = "text"
    json = "json"


class TableFormat(StrEnum):
    """The output format of tables: text, one JSON object, or a form for spreadsheets, papers and pages."""

    text = "text"
    json = "json"
    csv = "csv"
    latex = "latex"
    markdown = "markdown"


AnyFormat = TypeVar("AnyFormat", Format, TableFormat)


class Stop(Exception):
    """Ends a command with an exit code; everything has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).", show_default=False)]
RunFolderArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one key of the study, for example budget.iterations=20."),
]
Workers = Annotated[int | None, typer.Option(min=0, help="Number of Ray workers; short for --set hosting.workers=N.")]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT; local for none. Short for --set hosting.address=…."
    ),
]
Callbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--callback",
        metavar="NAME",
        help="Call this on every event: a registered name, package.module:function or file.py:Class.",
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Import the Python code that the study names. Use it for code you trust only.")
]
Printed = Annotated[
    Format,
    typer.Option("--format", help="Print text, or one JSON object on standard output.", callback=lambda given: _divert(given)),
]
TableFormats = Annotated[
    TableFormat,
    typer.Option(
        "--format",
        help="Print text, one JSON object, CSV in full precision, or the tables as LaTeX or Markdown.",
        callback=lambda given: _divert(given),
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide the progress display.")]
Baseline = Annotated[str | None, typer.Option(help="Label of the algorithm to compare with. Default: the first one.")]
Chosen = Annotated[str | None, typer.Option(help="Label of the algorithm to show. Default: the first federated one.")]
Level = Annotated[
    float | None, typer.Option(help="Target value in each cell. Default: the final value of the first algorithm.")
]

CellNumber = Annotated[int | None, typer.Option("--cell", help="Number of the cell in the sweep.")]
Regret = Annotated[bool, typer.Option("--regret", help="Draw simple regret instead of the best value.")]
Algorithms = Annotated[str | None, typer.Option(metavar="A,B", help="Draw only these algorithms.")]
Replicate = Annotated[int | None, typer.Option(help="Draw only this replicate.")]
_PANELS = "Draw only these panels. Curves and sweep have evaluations, time, bytes, epsilon, cost; sweep also times."
Panels = Annotated[str | None, typer.Option(metavar="A,B", help=_PANELS)]
Width = Annotated[float | None, typer.Option(help="Width in inches; 3.5 is one column of many journals, 7 is two.")]
Height = Annotated[float | None, typer.Option(help="Height in inches. Default: computed from the panels.")]
Font = Annotated[str | None, typer.Option(help="Name of an installed font, for example 'DejaVu Serif'.")]
FontSize = Annotated[float | None, typer.Option(help="Font size in points. Default: 8 below a width of 10 inches, else 10.")]
Title = Annotated[bool, typer.Option("--title/--no-title", help="Draw titles, or leave them to the captions of a paper.")]
Dark = Annotated[bool, typer.Option("--dark", help="Draw in light colours on a dark page.")]


def hosting_sets(workers: int | None, address: str | None) -> list[str]:
    """Return the short forms of the hosting as --set overrides."""
    known = {"workers": workers, "address": address}
    return [f"hosting.{key}={json.dumps(value)}" for key, value in known.items() if value is not None]


def offered(name: str, option: str) -> Callable[..., Any]:
    """Return the function that a room offers by this name; wrong usage of the option if no room that is there does."""
    if (found := optional(name)) is None:
        raise typer.BadParameter(f"{option}: needs a part of fedbo that is not installed here; leave it out")
    return found


def listed(option: str, words: str | None) -> list[str] | None:
    """Split a comma-separated text; wrong usage where it names nothing."""
    found = [word.strip() for word in (words or "").split(",") if word.strip()]
    if words is not None and not found:
        raise typer.BadParameter(f"--{option} '{words}': names nothing; write, for example, --{option} A,B")
    return found or None


def progress_display(quiet: bool) -> Progress | None:
    """Return the progress display on standard error; if it is to be quiet, only records, or None."""
    from fedbo.execution.progress import progress_for, recorder
    from fedbo.figures.reports.tables import console

    return recorder() if quiet else progress_for(console(stderr=True))


def stop_interrupted(folder: Path | None, remedy: str, printed: Format) -> NoReturn:
    """End an interrupted command, and print how to resume it; `folder` is None if nothing had begun."""
    print("interrupted" if folder is None else f"interrupted; partial results are in {folder}; {remedy}", file=sys.stderr)
    if printed is Format.json:
        print_json({"status": "interrupted", "directory": None if folder is None else str(folder.resolve())})
    raise Stop(INTERRUPTED) from None


def say_failures(failed: int, total: int, first: str) -> None:
    """Print how many evaluations failed; the command fails if all did."""
    note_failures(failed, total, first)
    if failed and failed == total:
        raise Stop(FAILED)


def note_failures(failed: int, total: int, first: str) -> None:
    """Print how many evaluations failed, if any did, to standard error."""
    if failed:
        say(f"{failed} of {total} evaluations failed; first error: {first}")


_diverted: list[tuple[TextIO, int | None]] = []  # standard output, and its file, while it is standard error


def _divert(printed: AnyFormat) -> AnyFormat:
    """Redirect the output of objectives, callbacks and their programs to standard error, if the answer is JSON."""
    if printed.value == "json" and not _diverted:
        stream, file = sys.stdout, None
        with suppress(OSError, ValueError):
            stream.flush()
            if stream.fileno() == 1:
                file = os.dup(1)
                os.dup2(2, 1)
        _diverted.append((stream, file))
        sys.stdout = sys.stderr
    return printed


def restore_stdout() -> None:
    """Restore standard output."""
    for stream, file in _diverted:
        sys.stdout = stream
        if file is not None:
            os.dup2(file, 1)
            os.close(file)
    _diverted.clear()


def print_json(value: Any) -> None:
    """Print one JSON object on standard output, even if other output goes to standard error."""
    restore_stdout()
    plain = not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    print(json.dumps(value, indent=2, ensure_ascii=plain))
