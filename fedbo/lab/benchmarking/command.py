"""The command `fedbo bench`: methods on the tasks of a suite, and the statistics over all of them."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbo.commands import arguments as options
from fedbo.commands.arguments import FAILED, Format, Stop, hosting_sets, print_json, stop_interrupted
from fedbo.settings.logs import say

if TYPE_CHECKING:
    from fedbo.lab.benchmarking.benchmark import Benchmark
    from fedbo.lab.benchmarking.significance import Overview


def bench(
    suite: Annotated[str, typer.Argument(help="Name of a suite, or a folder of study files.", show_default=False)],
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Labels or names of algorithms, NAME/PRESET for a preset. The first is the baseline. Default: the file's own.",
        ),
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(min=1, help="Replicates of each task. Default: 20, or the number in its file.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run 3 replicates of at most 12 iterations, in a few minutes.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every task. Default: 1, or the seed in its file.")] = None,
    to: Annotated[Path | None, typer.Option(help="Directory of runs and tables. Default: runs/bench-SUITE[-quick].")] = None,
    workers: options.Workers = None,
    address: options.Address = None,
    dark: options.Dark = False,
    printed: options.Printed = Format.text,
    quiet: options.Quiet = False,
) -> None:
    """Run algorithms on every task of a suite and compare their ranks, paired tests and costs to a target.

    Runs that already finished in the same directory are reused. Repeat the command to continue after Ctrl-C.
    """
    from fedbo.lab.benchmarking.benchmark import bench as run

    chosen = [word for one in (algorithms or "").split(",") if (word := one.strip())]
    if len(chosen) == 1:
        raise typer.BadParameter(f"--algorithms {chosen[0]}: names one algorithm; name two or more to compare")
    sizes: dict[str, Any] = {"replicates": replicates, "quick": quick, "seed": seed}
    hosting = hosting_sets(workers, address)
    try:
        made = unwrap(run)(suite, algorithms=chosen, **sizes, overrides=hosting, out=to, progress=not quiet, dark=dark)
    except KeyboardInterrupt as stop:
        folder = stop.args[0] if stop.args else to
        stop_interrupted(folder, "run the same command again to continue", printed)
    for line in made.left_out:
        say(f"skipped: {line}")
    if made.overview is None:
        raise Stop(FAILED)
    _print_benchmark(made.overview, made, printed)
    if made.failed:
        raise Stop(FAILED)


def _print_benchmark(found: Overview, made: Benchmark, printed: Format) -> None:
    """Print the tables and the paths."""
    from fedbo.figures.reports.tables import console, plain
    from fedbo.figures.reports.views import statistics_table

    paths = made.paths
    if printed is Format.json:
        tables = [{"name": one.name, "headings": list(one.headings), "rows": plain(list(one.rows))} for one in found.tables()]
        print_json({"tables": tables, "left_out": made.left_out, "failed": made.failed, "paths": list(map(str, paths))})
        return
    for table in found.tables():
        console().print(statistics_table(table))
    for name, path in zip(("tables", "figure", "report"), paths, strict=True):
        print(f"{name}: {path}")
