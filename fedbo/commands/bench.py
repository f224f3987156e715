"""The command `fedbo bench`: methods on the tasks of a suite, and the statistics over all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import (
    FAILED,
    Address,
    Format,
    Printed,
    Quiet,
    Stop,
    Workers,
    hosting_sets,
    print_json,
    progress_display,
    stop_interrupted,
)

if TYPE_CHECKING:
    from fedbo.lab.benchmarking.benchmark import Benchmark


def bench(
    suite: Annotated[str, typer.Argument(help="Name of a suite, or a folder of study files.", show_default=False)],
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Labels or names, NAME/PRESET for a preset; the first is the baseline. Default: the files'."
        ),
    ] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="Of each task; default: 20, or what a file says.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="3 replicates and at most 12 iterations: some minutes.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of every task; default: 1, or what a file says.")] = None,
    to: Annotated[Path | None, typer.Option(help="Directory of runs and tables; default: runs/bench-SUITE[-quick].")] = None,
    workers: Workers = None,
    address: Address = None,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Run methods on every task of a suite, and compare them over all tasks: ranks, paired tests, costs to reach a level.

    What has been run before into the same directory is not run again; after Ctrl-C, the same command goes on.
    """
    from fedbo.lab.benchmarking.benchmark import BenchmarkRequest, run_benchmark

    folder = to or Path("runs") / f"bench-{Path(suite).name}{'-quick' * quick}"
    chosen = [word for one in (algorithms or "").split(",") if (word := one.strip())]
    if len(chosen) == 1:
        raise typer.BadParameter(f"--algorithms {chosen[0]}: there is nothing to compare with one method; name two or more")
    request = BenchmarkRequest(suite, folder, chosen, replicates, seed, quick, hosting_sets(workers, address))

    def notify(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    try:
        made = run_benchmark(request, notify, lambda: progress_display(quiet))
    except KeyboardInterrupt:
        stop_interrupted(folder, "go on with the same command", printed)
    for line in made.left_out:
        print(f"left out: {line}", file=sys.stderr)
    if not made.results:
        raise Stop(FAILED)
    _print_benchmark(made, printed)
    if made.failed:
        raise Stop(FAILED)


def _print_benchmark(made: Benchmark, printed: Format) -> None:
    """Write the tables, the figure and the report, and print the tables and where everything is."""
    from fedbo.figures.reports.statistics import statistics_table
    from fedbo.figures.reports.tables import console, plain
    from fedbo.lab.benchmarking.benchmark import write_benchmark

    found, paths = write_benchmark(made)
    if printed is Format.json:
        tables = [{"name": one.name, "headings": list(one.headings), "rows": plain(list(one.rows))} for one in found.tables()]
        print_json({"tables": tables, "left_out": made.left_out, "failed": made.failed, "paths": list(map(str, paths))})
        return
    for table in found.tables():
        console().print(statistics_table(table))
    for name, path in zip(("tables", "figure", "report"), paths, strict=True):
        print(f"{name}: {path}")
