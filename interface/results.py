"""The results of a run: its directory as tables, curves, a summary and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedbo.curves import Axis, Curve, Trace, by_cell_and_algorithm, curve, grid, traces
from fedbo.objectives.base import Metric
from fedbo.study import Study, recall_study
from fedbo.summary import Row, difference, regrets, summary_row

if TYPE_CHECKING:
    import pandas

_FILES = ("manifest.json", "study.toml", "observations.parquet", "events.parquet")


class ResultError(ValueError):
    """A directory that holds no results, or results that cannot give what was asked of them."""


class Result:
    """A run that has ended, completely or not. `Result.open` reads one."""

    def __init__(self, directory: Path, study: Study, manifest: Mapping[str, Any]) -> None:
        self.directory, self.study, self.manifest = directory, study, manifest

    @classmethod
    def open(cls, directory: str | Path) -> Result:
        """Read a run directory; ResultError when it is none."""
        folder = Path(directory)
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            remedy = "give the directory that fedbo run printed"
            raise ResultError(f"'{directory}': is no finished run, it has no {missing[0]}; {remedy}")
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise ResultError(f"'{folder / 'manifest.json'}': is damaged ({error}); run the study again") from None
        return cls(folder, recall_study(folder / "study.toml"), manifest)

    @cached_property
    def observations(self) -> Any:
        """Give every evaluation as an Arrow table, in the columns of `fedbo.schemas.OBSERVATIONS`."""
        return pq.read_table(self.directory / "observations.parquet")

    @cached_property
    def events(self) -> Any:
        """Give everything that happened as an Arrow table, in the columns of `fedbo.schemas.EVENTS`."""
        return pq.read_table(self.directory / "events.parquet")

    @cached_property
    def traces(self) -> list[Trace]:
        """Give the incumbents of every target, in the order of the observations.

        When the study was cut short, those of the runs that had ended; all of them, where none had.
        """
        found = traces(self.observations)
        complete = {tuple(key) for key in self.manifest.get("complete_runs", ())}
        if self.manifest["status"] == "complete" or not complete:
            return found
        return [trace for trace in found if (trace.cell, trace.algorithm, trace.replicate) in complete]

    def metric(self, cell: int = 0) -> Metric:
        """Give the native quantity that was optimised in a cell."""
        return Metric(**_of_cell(self.manifest["metric"], cell, dict))

    def to_pandas(self) -> pandas.DataFrame:
        """Give the observations as a pandas data frame; ImportError when pandas is not installed."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise ImportError("to_pandas needs pandas; install it with: pip install 'fedbo[pandas]'") from None
        return self.observations.to_pandas()

    def best(self, each: str = "algorithm") -> list[dict[str, Any]]:
        """Give the best incumbent of each algorithm in each cell, or of each agent and replicate with `each="agent"`.

        `value` is its noise-free value in native units, `point` its parameters by name.
        """
        if each not in ("algorithm", "agent"):
            raise ResultError(f"each = '{each}': must be 'algorithm' or 'agent'")
        chosen: dict[tuple[Any, ...], Trace] = {}
        for trace in self.traces:
            key: tuple[Any, ...] = (trace.cell, trace.algorithm)
            key += (trace.replicate, trace.agent) if each == "agent" else ()
            if trace.row[-1] >= 0 and (key not in chosen or trace.best[-1] > chosen[key].best[-1]):
                chosen[key] = trace
        return [self.incumbent(trace) for trace in chosen.values()]

    def incumbent(self, trace: Trace) -> dict[str, Any]:
        """Give the point that an agent would name in the end, as `best` does."""
        row = self.observations.slice(int(trace.row[-1]), 1).to_pylist()[0]
        names = [parameter["name"] for parameter in _of_cell(self.manifest["parameters"], trace.cell, list)]
        return {
            **{key: row[key] for key in ("cell", "algorithm", "replicate", "agent", "step")},
            "value": float(self.metric(trace.cell).native(row["score"])),
            "point": dict(zip(names, row["x"], strict=True)),
        }

    def curves(self, by: Axis = "iteration", points: int = 200, regret: bool = False) -> list[Curve]:
        """Average best-so-far over targets and replicates, against iterations, evaluations or time.

        Evaluations count the initial points too; time takes `points` places. With `regret`, the distance to each
        agent's own best value instead of the native quantity; ResultError where that is not known.
        """
        found = self.traces
        if regret:
            try:
                found = regrets(found, self.manifest.get("best_values") or {})
            except ValueError as error:
                raise ResultError(str(error)) from None
        return [
            curve(mine, by, grid(mine, by, points), Metric("regret", -1) if regret else self.metric(cell))
            for (cell, _), mine in by_cell_and_algorithm(found).items()
        ]

    def summary(self, baseline: str | None = None) -> list[Row]:
        """Sum the run up, one row for each algorithm in each cell.

        Differences are to the algorithm labelled `baseline`, by default the first of the study, on the same replicates.
        """
        labels = self.study.labels
        if baseline is not None and baseline not in labels:
            raise ResultError(f"no algorithm '{baseline}'; there are: {', '.join(labels)}")
        reference, groups = baseline or labels[0], by_cell_and_algorithm(self.traces)
        rows = []
        for (cell, label), mine in groups.items():
            half = max(int(trace.step[-1]) for trace in mine) // 2
            metric, other = self.metric(cell), groups.get((cell, reference), [])
            row = summary_row(mine, half, (_of(self.observations, cell, label), _of(self.events, cell, label)), metric)
            rows.append(row if label == reference else replace(row, difference=difference(mine, other, metric)))
        return rows

    def plot(self, path: str | Path | None = None, kind: str = "overview", cell: int = 0) -> Path:
        """Draw a figure of one cell, an `overview`, the `curves` or the `timeline` alone; give where it is.

        Without a path it goes into the run directory, as PNG; other endings (pdf, svg) are understood.
        """
        from fedbo.plot import draw

        name = f"{kind}-{cell}.png" if cell else f"{kind}.png"
        return draw(self, Path(path) if path else self.directory / name, kind, cell)


def _of(table: Any, cell: int, label: str) -> Any:
    return table.filter(pc.and_(pc.equal(table["cell"], cell), pc.equal(table["algorithm"], label)))


def _of_cell(entry: Any, cell: int, single: type) -> Any:
    """Pick a cell's part of a manifest entry; an entry that is no list of such parts holds for all cells."""
    several = isinstance(entry, list) and (not entry or isinstance(entry[0], single))
    return entry[cell] if several else entry
