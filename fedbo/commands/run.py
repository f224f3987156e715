"""The commands that run studies: run and resume."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands import arguments as options
from fedbo.commands.answers import resume_answer
from fedbo.commands.arguments import (
    FAILED,
    Format,
    Stop,
    hosting_sets,
    print_json,
    progress_display,
    say_failures,
    stop_interrupted,
)
from fedbo.settings.interrupts import ends_at_once
from fedbo.settings.logs import say
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.analysis.result import Result
    from fedbo.execution.notices import Callback


def run(
    study: options.StudyFile,
    sets: options.Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="New or empty directory for the results. Default: a new one under runs/.")
    ] = None,
    workers: options.Workers = None,
    address: options.Address = None,
    printed: options.Printed = Format.text,
    quiet: options.Quiet = False,
    callbacks: options.Callbacks = None,
) -> None:
    """Run a study and print its summary and the paths of its results, figure and report."""
    from fedbo.study.study import load_study

    extra, told = hosting_sets(workers, address), _made(callbacks)
    checked = load_study(study, [*(sets or []), *extra], trust=True)
    from fedbo.analysis.cost import unused_ids
    from fedbo.analysis.manifest import read_manifest
    from fedbo.execution.directory import unfinished
    from fedbo.execution.runner import resume_study, run_study

    if unused := unused_ids(checked):
        say(f"warning: {unused}")
    same = out is not None and unfinished(out) and read_manifest(out).get("study_sha256") == checked.digest()
    if out is not None and same and _wants(f"'{out}' contains an unfinished run of this study. Resume it?"):
        kept = [one for one in (*(sets or []), *extra) if one.startswith(("hosting", "recovery"))]
        finish(lambda: resume_study(out, kept, progress_display(quiet), told), printed)
    else:
        finish(lambda: run_study(checked, out, progress_display(quiet), told), printed)


def resume(
    folder: options.RunFolderArgument,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change hosting or snapshots, for example hosting.workers=4, or extend a run: budget.iterations=200.",
        ),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help='Add an algorithm to a finished run: a name, or \'{name = "ts", label = "b"}\'.'),
    ] = None,
    workers: options.Workers = None,
    address: options.Address = None,
    changed_code: Annotated[
        bool,
        typer.Option("--changed-code", help="Resume even if the study's Python code changed; results then mix both versions."),
    ] = False,
    printed: options.Printed = Format.text,
    quiet: options.Quiet = False,
    callbacks: options.Callbacks = None,
) -> None:
    """Resume a run, a fork or another answer that was interrupted, killed or failed, or extend a finished run.

    In virtual time the results equal those of an uninterrupted run, or of a run with the larger budget from the start.
    """
    from fedbo.execution.runner import resume_study
    from fedbo.study.document import parse_override

    if resume_answer(folder, bool(sets or algorithm or callbacks), printed, quiet):
        return
    changed, told = [*(sets or []), *hosting_sets(workers, address)], _made(callbacks)
    given = [parse_override(f"algorithm={one}")[1] for one in algorithm or []]
    added = [one if isinstance(one, dict) else {"name": one} for one in given]
    progress = progress_display(quiet)
    finish(lambda: resume_study(folder, changed, progress, told, added, changed_code=changed_code), printed)


def finish(carry_out: Callable[[], Result], printed: Format, again: str = "fedbo resume") -> None:
    """Run a study, draw its figures and print its summary; `again` is the command that continues an interrupted run."""
    try:
        result = carry_out()
    except KeyboardInterrupt as stop:
        folder = stop.args[0] if stop.args else None
        stop_interrupted(
            folder,
            f"continue with: {again} {quoted(folder)}" if again == "fedbo resume" else f"continue with: {again}",
            printed,
        )
    with ends_at_once(f"interrupted; the run is complete, and its results are in {quoted(result.directory)}"):
        from fedbo.figures.illustration import illustrate

        written, trouble = illustrate(result)
        _print_run(result, printed, written)
    from fedbo.analysis.described import failures, refusals

    failed, first = failures(result)
    for line in refusals(result):
        say(line)
    if trouble:
        say(trouble)
    say_failures(failed, len(result.observations), first)
    if trouble:
        raise Stop(FAILED)


def _print_run(result: Result, printed: Format, written: Mapping[str, Path]) -> None:
    from fedbo.figures.reports.answers import before_summary
    from fedbo.figures.reports.tables import console, results_table, run_facts

    if printed is Format.json:
        figures = [str(path) for name, path in written.items() if name == "figure"]
        print_json({**run_facts(result), "figures": figures, "report": str(written["report"]) if "report" in written else None})
        return
    terminal = console()
    for part in [*before_summary(result), results_table(result)]:
        terminal.print(part)
    print(f"results: {result.directory}")
    for name, path in written.items():
        print(f"{name + ':':<8} {path}")


def _wants(question: str) -> bool:
    """Ask a yes-no question, if this is an interactive terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(question, default=True, err=True)


def _made(names: Sequence[str] | None) -> list[Callback]:
    """Make the named callbacks; wrong usage if one cannot be made."""
    from fedbo.callbacks import callback

    made = []
    for name in names or ():
        try:
            made.append(callback(name))
        except Exception as error:
            words = str(error) if isinstance(error, ValueError | ImportError) else f"{type(error).__name__}: {error}"
            raise typer.BadParameter(f"--callback {name}: {' '.join(words.split())}") from None
    return made
