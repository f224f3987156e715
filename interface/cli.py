"""The command `fedbo`: validate, run, resume, inspect and replay studies."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import (
    CODES,
    FAILED,
    INTERRUPTED,
    OK,
    WRONG_INPUT,
    Address,
    Callbacks,
    Format,
    Printed,
    RunFolderArgument,
    Sets,
    Stop,
    StudyFile,
    Workers,
    hosting_sets,
    print_json,
    progress_display,
    say_failures,
    say_interrupted,
)
from fedbo.commands.bench import bench
from fedbo.commands.doctor import doctor
from fedbo.commands.export import export
from fedbo.commands.fit import fit
from fedbo.commands.fork import finish_fork, fork
from fedbo.commands.inspect import plot, replay, show
from fedbo.commands.new import examples, new
from fedbo.commands.privacy import privacy
from fedbo.commands.report import report
from fedbo.commands.reproduce import reproduce
from fedbo.commands.schema import schema
from fedbo.commands.tabulate import tabulate
from fedbo.commands.twin import twin
from fedbo.commands.watch import watch
from fedbo.commands.worth import worth

if TYPE_CHECKING:
    from fedbo.execution.notices import Callback
    from fedbo.results.result import Result

app = typer.Typer(
    name="fedbo",
    help="Simulate and run federated black-box optimisation, on Ray.",
    epilog=CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data = typer.Typer(help="Say which data sets are on this machine.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def _fedbo(version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"fedbo {installed('fedbo')}")
        raise Stop(OK)


@app.command(epilog=CODES)
def run(
    study: StudyFile,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option(help="A new or empty directory; default: one under runs/.")] = None,
    workers: Workers = None,
    address: Address = None,
    printed: Printed = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress while it runs.")] = False,
    callbacks: Callbacks = None,
) -> None:
    """Run a study, then print its summary and where its results and its figure are."""
    from fedbo.study.study import load_study

    extra, told = hosting_sets(workers, address), _made(callbacks)
    checked = load_study(study, [*(sets or []), *extra])
    from fedbo.execution.directory import unfinished
    from fedbo.execution.runner import resume_study, run_study
    from fedbo.results.manifest import read_manifest

    same = out is not None and unfinished(out) and read_manifest(out).get("study_sha256") == checked.digest()
    if out is not None and same and _wants(f"'{out}' holds a run of this study that has not ended. Go on with it?"):
        kept = [one for one in (*(sets or []), *extra) if one.startswith(("hosting", "recovery"))]
        _finish(lambda: resume_study(out, kept, progress_display(quiet), told), printed)
    else:
        _finish(lambda: run_study(checked, out, progress_display(quiet), told), printed)


@app.command(epilog=CODES)
def resume(
    folder: RunFolderArgument,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change the hosting or the snapshots, such as hosting.workers=4, or extend a run: budget.iterations=200.",
        ),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help='Add an algorithm to a run that has ended: a name, or \'{name = "ts", label = "b"}\'.'
        ),
    ] = None,
    workers: Workers = None,
    address: Address = None,
    printed: Printed = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress while it runs.")] = False,
    callbacks: Callbacks = None,
) -> None:
    """Resume a run or a fork that was interrupted, killed or failed, or extend a run that has ended.

    In virtual time its results are those of one never stopped, or of one that had the larger budget from the start.
    """
    from fedbo.execution.runner import resume_study
    from fedbo.results.fork import has_begun
    from fedbo.study.document import parse_override

    if has_begun(folder):
        _resume_fork(folder, bool(sets or algorithm or callbacks), (printed, quiet))
        return
    changed, told = [*(sets or []), *hosting_sets(workers, address)], _made(callbacks)
    given = [parse_override(f"algorithm={one}")[1] for one in algorithm or []]
    added = [one if isinstance(one, dict) else {"name": one} for one in given]
    _finish(lambda: resume_study(folder, changed, progress_display(quiet), told, added), printed)


def _resume_fork(folder: Path, changed: bool, shown: tuple[Format, bool]) -> None:
    """Go on with a fork that was killed or interrupted, which is as it began."""
    from fedbo.execution.fork import resume_fork

    if changed:
        raise typer.BadParameter(
            f"'{folder}' holds a fork, which goes on as it began; give no --set, --algorithm or --callback"
        )
    finish_fork(lambda: resume_fork(folder, progress_display(shown[1])), shown[0])


@app.command()
def validate(
    study: StudyFile,
    sets: Sets = None,
    timed: Annotated[
        bool, typer.Option("--time", help="Begin each run for some seconds, to say how long all will take.")
    ] = False,
    printed: Printed = Format.text,
) -> None:
    """Check a study without running it: print it with every default, and what it will cost."""
    from dataclasses import asdict

    from fedbo.estimates.cost import estimate_cost
    from fedbo.estimates.privacy import privacy_estimates
    from fedbo.reports.tables import console, plain, study_facts
    from fedbo.study.study import load_study

    checked = load_study(study, sets or [])
    cost, private = estimate_cost(checked), privacy_estimates(checked)
    if timed:
        from fedbo.world.forecasts import forecast, forecast_line

    found = forecast(checked) if timed else None
    if printed is Format.json:
        facts = {**asdict(cost), "assumptions": cost.assumptions, "epsilon": plain(private)}
        facts |= {"time": None if found is None else {**asdict(found), "virtual": found.virtual}} if timed else {}
        print_json({"study": checked.document(), "sha256": checked.digest(), "estimate": facts})
        return
    print(checked.to_toml())
    console().print(study_facts(cost, private))
    if timed:
        print(forecast_line(found))


app.command()(show)
app.command()(plot)
app.command(epilog=CODES)(report)
app.command()(export)
app.command()(watch)
app.command(epilog=CODES)(replay)
app.command(epilog=CODES)(fork)
app.command(epilog=CODES)(reproduce)
app.command(epilog=CODES)(bench)
app.command()(privacy)
app.command(epilog=CODES)(tabulate)
app.command(epilog=CODES)(worth)
app.command(epilog=CODES)(fit)
app.command(epilog=CODES)(twin)
app.command(epilog=CODES)(new)
app.command(epilog=CODES)(examples)
app.command(epilog=CODES)(doctor)
app.command()(schema)


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Argument(help="algorithms, objectives, timing, …; default: all.")] = None,
    printed: Printed = Format.text,
) -> None:
    """List what a study can name, with its settings, and of one group with what these may be."""
    from dataclasses import asdict

    from fedbo.reports.tables import console, items_table
    from fedbo.settings.errors import unknown
    from fedbo.study.listing import broken, groups

    found = groups()
    if group is not None and group not in found:
        raise typer.BadParameter(unknown("group", group, found))
    chosen = {name: items for name, items in found.items() if group in (None, name)}
    if printed is Format.json:
        print_json({name: [asdict(item) for item in items] for name, items in chosen.items()})
        return
    for name, items in chosen.items():
        console().print(items_table(name, items, ranges=group is not None))
    for line in broken():
        print(line, file=sys.stderr)


@data.command("list")
def data_list(printed: Printed = Format.text) -> None:
    """List the data sets, and where each was found."""
    from dataclasses import asdict

    from fedbo.objectives.datasets.data import inventory
    from fedbo.reports.tables import console, data_table

    rows = [{**asdict(row), "where": None if row.where is None else str(row.where)} for row in inventory()]
    if printed is Format.json:
        print_json({"data": rows})
    else:
        console().print(data_table(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; what is wrong is said in one line on standard error."""
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="fedbo", standalone_mode=False)
    except Stop as stop:
        return stop.code
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _expected(error)
    if code == INTERRUPTED:  # typer makes this of a KeyboardInterrupt
        return _complain("interrupted", INTERRUPTED)
    return OK


def _expected(error: Exception) -> int:
    """Say an error that a user can do something about in its own words; any other one is ours, and is raised."""
    if hasattr(error, "format_message"):  # typer's own: wrong usage
        command = getattr(getattr(error, "ctx", None), "command_path", "fedbo")
        return _complain(f"{error.format_message().rstrip('.')}; see {command} --help", WRONG_INPUT)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", OK))
    from fedbo.study.document import StudyError

    if isinstance(error, StudyError):  # the most frequent one need not wait for the imports that know all the others
        return _complain(str(error), WRONG_INPUT)
    from fedbo.commands.errors import is_failure, is_wrong_input

    if is_wrong_input(error):
        return _complain(str(error), WRONG_INPUT)
    if is_failure(error):
        return _complain(f"{error}{_kept(error)}", FAILED)
    raise error


def _kept(error: Exception) -> str:
    """Say where that is which a run had done before it failed, unless its error does."""
    directory = str(getattr(error, "directory", ""))
    if not directory or directory in str(error):
        return ""
    from fedbo.coordinator.errors import EndlessError

    again = "" if isinstance(error.__cause__, EndlessError) else f"; go on with: fedbo resume {directory}"
    return f"; what was done is in {directory}{again}"


def _complain(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


def _print_run(result: Result, printed: Format, figures: Sequence[str], report: Path) -> None:
    from fedbo.reports.tables import console, results_table, run_facts

    if printed is Format.json:
        print_json({**run_facts(result), "figures": list(figures), "report": str(report)})
        return
    terminal = console()
    terminal.print(results_table(result, None, terminal.width))
    print(f"results: {result.directory}")
    for figure in figures:
        print(f"figure:  {figure}")
    print(f"report:  {report}")


def _wants(question: str) -> bool:
    """Ask, if this is an interactive terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(question, default=True, err=True)


def _made(names: Sequence[str] | None) -> list[Callback]:
    """Make the callbacks that are named; wrong usage where one cannot be made, for whatever reason."""
    from fedbo.callbacks import callback

    made = []
    for name in names or ():
        try:
            made.append(callback(name))
        except Exception as error:
            words = str(error) if isinstance(error, ValueError | ImportError) else f"{type(error).__name__}: {error}"
            raise typer.BadParameter(f"--callback {name}: {' '.join(words.split())}") from None
    return made


def _finish(carry_out: Callable[[], Result], printed: Format) -> None:
    """Carry a run out, draw its figures and print its summary."""
    try:
        result = carry_out()
    except KeyboardInterrupt as stop:
        folder = stop.args[0] if stop.args else None
        say_interrupted(folder, f"go on with: fedbo resume {folder}", printed)
        raise Stop(INTERRUPTED) from None
    from fedbo.page.page import REPORT, write_report

    figures = [str(result.plot(cell=cell)) for cell in sorted({trace.cell for trace in result.traces})]
    _print_run(result, printed, figures, write_report([result], result.directory / REPORT))
    failed, first = result.failures()
    say_failures(failed, len(result.observations), first)


if __name__ == "__main__":
    sys.exit(main())
