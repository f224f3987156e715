"""Exit codes, arguments and output formats that several commands share."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

OK, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

CODES = (
    "Exit codes: 0 all went well; 1 the run failed; 2 wrong input (study file, arguments, run directory); "
    "130 interrupted, and what was done is kept."
)


class Format(StrEnum):
    """The output format of a command: text, or one JSON object."""

    text = "text"
    json = "json"


class Stop(Exception):
    """Ends a command with an exit code; everything has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).", show_default=False)]
RunFolderArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the study, such as budget.iterations=20."),
]
Workers = Annotated[int | None, typer.Option(min=0, help="Short for --set hosting.workers=N.")]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Short for --set hosting.address=….")
]
Trust = Annotated[bool, typer.Option("--trust", help="Run the Python functions that the study names: you know whose they are.")]
Printed = Annotated[Format, typer.Option("--format", help="Words, or one JSON object on standard output.")]
Baseline = Annotated[str | None, typer.Option(help="Label of the algorithm to compare with; default: the first.")]
Chosen = Annotated[str | None, typer.Option(help="Label of the algorithm shown alone; default: the first federated one.")]
Level = Annotated[float | None, typer.Option(help="The value to be reached in each cell; default: the first's final one.")]


def hosting_sets(workers: int | None, address: str | None) -> list[str]:
    """Give the short forms of the hosting as --set has them."""
    known = {"workers": workers, "address": address}
    return [f"hosting.{key}={json.dumps(value)}" for key, value in known.items() if value is not None]


def print_json(value: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
