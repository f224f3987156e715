"""The command `fedbo export`: the evaluations of a run in the form of another tool."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import RunFolderArgument, offered


class Tool(StrEnum):
    """A tool for which runs can be exported."""

    optuna = "optuna"
    perfetto = "perfetto"


def export(
    folder: RunFolderArgument,
    to: Annotated[
        Tool, typer.Option(help="Format: optuna writes a journal with one study per agent; perfetto writes a timeline as JSON.")
    ] = Tool.optuna,
    out: Annotated[
        Path | None, typer.Option(help="New file to write. Default: optuna.journal or perfetto.json in the run directory.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="Label of one algorithm. Default: all algorithms.")] = None,
    replicate: Annotated[int, typer.Option(min=-1, help="Number of the replicate; -1 exports all.")] = 0,
    public: Annotated[
        Path | None, typer.Option(help="Write only what a private run may publish, to this new JSON file.")
    ] = None,
) -> None:
    """Export the evaluations of a run to Optuna, its timeline to Perfetto, or its public results if it is private."""
    from fedbo.analysis.finished_run import ResultError
    from fedbo.analysis.result import Result

    result = Result.open(folder)
    if public is not None:
        labels = offered("export_public", "--public")(result, public)
        print(f"{public}: releases of {', '.join(labels)}; contains no data of single agents")
        return
    if to is Tool.perfetto:
        from fedbo.commands.export.perfetto import export_to_perfetto

        path = out or folder / f"{to}.json"
        count = export_to_perfetto(result, path, algorithm, None if replicate < 0 else replicate)
        print(f"{path}: {count:,} events; open it at https://ui.perfetto.dev or chrome://tracing")
        return
    try:
        export_to_optuna = offered("export_to_optuna", "--to optuna")
    except ImportError:
        raise ResultError("--to optuna needs Optuna; install it with: pip install optuna") from None
    path = out or folder / f"{to}.journal"
    names = export_to_optuna(result, path, algorithm, None if replicate < 0 else replicate)
    print(f"{path}: {len(names)} studies; open them with: optuna-dashboard {path}")
