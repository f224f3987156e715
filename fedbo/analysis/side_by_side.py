"""Several runs side by side: one row for each algorithm of each run, and its difference to the first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Unpack

from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.records.records import Records
from fedbo.analysis.result import Choices, Result
from fedbo.analysis.summary import Difference, Estimate, difference
from fedbo.analysis.traces import IncumbentTrace
from fedbo.settings import arguments
from fedbo.settings.arguments import short, spelled_out
from fedbo.settings.rooms import loaded


@dataclass(frozen=True, slots=True)
class RunRow:
    """One algorithm in one cell of one run, as in its summary.

    `difference` is that of `final` to the same algorithm in the same cell of the first run, paired by replicate; None if there
    is none, if fewer than two replicates are shared, or if the seeds differ.
    """

    run: str
    cell: str
    algorithm: str
    replicates: int
    final: Estimate
    difference: Difference | None
    bytes_up: float
    bytes_down: float
    duration: float
    evaluations: float


class RunRows(Records[RunRow]):
    """The rows of several runs, whose curves it draws."""

    def __init__(self, results: Sequence[Result], rows: Sequence[RunRow]) -> None:
        super().__init__("runs", RunRow, rows)
        self._results = results

    @spelled_out(Choices, {"regret": False, "title": True, "dark": False})
    def plot(self, path: str | Path, cell: int | None = None, **choices: Unpack[Choices]) -> Path:
        """Draw the curves of all runs in one figure with one legend, and return its path.

        The options are those of `Result.plot` for curves. A path may be a folder. `cell` is a number in the sweep of each run.
        Runs whose units of time differ share no panel of time. Raises PlotError where a run has no such curves.
        """
        file = Path(arguments.path("path", path, "file"))
        return Path(loaded("fedbo.figures.compared:draw_runs")(self._results, file, cell, choices))


def side_by_side(results: Sequence[Result]) -> RunRows:
    """Compare runs of the same objective side by side; ResultError if they are not comparable."""
    if len(results) < 2:
        raise ResultError("a single run cannot be compared; add another run")
    names = run_names(results)
    for result, name in zip(results[1:], names[1:], strict=True):
        _check(results[0], result, (names[0], name))
    first, rows = results[0], list[RunRow]()
    before = _traces(first)
    for result, name in zip(results, names, strict=True):
        traces, titles = _traces(result), result.study.titles()
        paired = result is not first and result.study.study.seed == first.study.study.seed
        for row in result.summary():
            key, metric = (titles[row.cell], row.algorithm), result.metric(row.cell)
            gap = difference(traces[key], before[key], metric) if paired and key in before else None
            shared = {field.name: getattr(row, field.name) for field in fields(RunRow) if field.name != "run"}
            rows.append(RunRow(run=name, **shared | {"cell": titles[row.cell], "difference": gap}))
    return RunRows(results, rows)


def run_names(results: Sequence[Result]) -> list[str]:
    """Return the names of runs: their folders, or their paths if two folders have the same name."""
    places = [result.address or str(result.directory.resolve()) for result in results]
    if twice := [place for number, place in enumerate(places) if place in places[:number]]:
        raise ResultError(f"'{twice[0]}': is passed twice; pass each run once")
    folders = [place.rstrip("/").rpartition("/")[2] for place in places]
    return folders if len(set(folders)) == len(folders) else places


def _traces(result: Result) -> dict[tuple[str, str], list[IncumbentTrace]]:
    titles = result.study.titles()
    return {(titles[cell], label): found for (cell, label), found in by_cell_and_algorithm(result.traces).items()}


def _check(first: Result, other: Result, names: tuple[str, str]) -> None:
    """Raise ResultError if a run's numbers have another meaning than those of the first run."""
    one, two = (_facts(result) for result in (first, other))
    if wrong := [what for what in one | two if one.get(what) != two.get(what)]:
        words = f"'{names[0]}' has {wrong[0]} = {short(one.get(wrong[0]))}, '{names[1]}' has {short(two.get(wrong[0]))}"
        raise ResultError(f"these runs cannot be compared: {words}; compare runs of the same objective")


def _facts(result: Result) -> dict[str, Any]:
    """Return the facts that compared runs must share; a sweep's settings may differ from cell to cell."""
    metrics = {f"{result.metric(cell).name} to {result.metric(cell).direction}" for cell in range(len(result.study.titles()))}
    swept = {key.partition(".")[2] for key in result.study.sweep if key.startswith("objective.")}
    document: dict[str, Any] = result.study.document()["objective"]
    settings = {name: value for name, value in document.items() if name not in swept}
    return {
        "objective.name": document.get("name"),
        "metric": ", ".join(sorted(metrics)),
        **{f"objective.{name}": value for name, value in sorted(settings.items())},
    }
