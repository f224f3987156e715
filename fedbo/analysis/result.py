"""The results of a run: its directory as tables, curves, a summary and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args, overload

import pyarrow as pa

from fedbo.actors.storage.evaluations import reason_of
from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.compare import Comparison, TargetValue, comparison
from fedbo.analysis.curves import REGRET, Axis, Curve, IncumbentTrace, curve, grid, traces
from fedbo.analysis.described import html_of, words_of
from fedbo.analysis.disruptions import AgentTrouble, Disruptions, disruptions, trouble_by_agent
from fedbo.analysis.finished_run import ResultError, check_label, scored_traces
from fedbo.analysis.front_records import front_records, has_fronts, record
from fedbo.analysis.grouping import by_cell_and_algorithm, by_run, of_algorithm
from fedbo.analysis.indicators import indicators_in
from fedbo.analysis.manifest import MANIFEST, STUDY, back, check_tables, read_manifest, remedy_of
from fedbo.analysis.privacy_summary import PrivacySummary, PrivacyTotal, privacy_summaries, privacy_total
from fedbo.analysis.queueing import placements
from fedbo.analysis.records.configurations import Configurations
from fedbo.analysis.records.records import Records, ResultTable, frame_of
from fedbo.analysis.refusals import refusals
from fedbo.analysis.regret import RegretCurve, RegretRow, RegretTrace, regret_curves, regret_row, regret_traces
from fedbo.analysis.remote import open_copy
from fedbo.analysis.schemas import EVENTS, OBSERVATIONS, PRINTED, PRIVACY, REPORTS, SPENT
from fedbo.analysis.summary import SummaryRow, difference, summary_row, unobserved_row
from fedbo.analysis.trials import trials
from fedbo.objectives.base import Metric
from fedbo.objectives.typed_spaces.nesting import in_words
from fedbo.settings import arguments
from fedbo.settings.registry import registered
from fedbo.settings.shown import quoted
from fedbo.settings.signatures import Each, FigureKind, spelled_out
from fedbo.settings.trust import UntrustedError, admit, places_in
from fedbo.study.files import code_in
from fedbo.study.paths import address_of, usable
from fedbo.study.study import Cell, Study, recall_study

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


_FILES = ("manifest.json", "study.toml", "observations.parquet", "events.parquet")


class Choices(TypedDict, total=False):
    """The options of a figure besides its kind and its cell; `fedbo.figures.plot.View` and `Look` describe them."""

    regret: bool
    algorithm: str | None
    level: float | None
    algorithms: Sequence[str] | None
    replicate: int | None
    panels: Sequence[str] | None
    width: float | None
    height: float | None
    font: str | None
    font_size: float | None
    title: bool


class Result:
    """A run that has ended, completely or not. `Result.open` reads one.

    `directory` is its folder; of a run on storage, which has an `address`, it is that of a copy.
    """

    def __init__(self, directory: Path, study: Study, manifest: Mapping[str, Any], trust: bool = False) -> None:
        self.directory, self.study, self.manifest = directory, study, manifest
        if trust:
            admit(places_in(study.document()))
        self.address: str | None = None

    def __repr__(self) -> str:
        """Return a text with the run, and the best point of each algorithm."""
        return words_of(self)

    def _repr_html_(self) -> str:
        """Return the same as HTML for a notebook."""
        return html_of(self)

    @classmethod
    def open(cls, directory: str | Path, trust: bool = False) -> Result:
        """Read a run directory, or one at an address of storage.

        Names in its study are not imported unless you set `trust`: regret on the mean needs the study's Python function.

        Raises:
            ResultError: the directory holds no finished run.
            DamagedError: a file of the run is damaged.
            FormatError: a later version wrote the run.
        """
        if (address := address_of(arguments.path("directory", directory))) is not None:
            return open_copy(lambda folder: cls.open(folder, trust), address)
        folder = Path(directory)
        with usable(folder, "cannot be read"):
            manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else {}
            gone = [name for name in manifest.get("files", {}) if not (folder / name).is_file()]
            check_tables(folder, manifest, [STUDY, *gone])
            missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing and (folder / "parts").is_dir():  # killed, or still running: no tables have been put together yet
            remedy = f"wait for it, or, if it was killed, continue with: fedbo resume {quoted(directory)}"
            raise ResultError(f"'{directory}': has not ended: it has no {missing[0]} yet; {remedy}")
        if missing:
            remedy = remedy_of(folder, "pass the directory that fedbo run printed")
            raise ResultError(f"'{directory}': is not a finished run: it has no {missing[0]}; {remedy}")
        return cls(folder, recall_study(folder / "study.toml"), manifest, trust)

    @cached_property
    def observations(self) -> Any:
        """Return every evaluation as an Arrow table, in the columns of `fedbo.analysis.schemas.OBSERVATIONS` and of metrics."""
        return self._table("observations", OBSERVATIONS)

    @cached_property
    def histories(self) -> Any:
        """Return the evaluations of an earlier task, in the columns of `observations`; empty if there was none."""
        return self._table("histories", OBSERVATIONS)

    def trusted_cells(self) -> list[Cell]:
        """Return the cells of the study, ready to run; ResultError if that would run functions that are not trusted."""
        try:
            return self.study.cells()
        except UntrustedError as error:
            raise ResultError(f"'{self.directory}': {code_in(self.study.document(), error)}") from None

    def failures(self) -> tuple[int, str]:
        """Return the number of failed evaluations, and one line on where and why the first one failed, or an empty text."""
        errors = self.observations["error"].to_pylist()
        failed = [row for row, error in enumerate(errors) if error is not None and not error.startswith("forgotten")]
        if not failed:
            return 0, ""
        first = self.observations.slice(failed[0], 1).select(["cell", "agent", "x", "error"]).to_pylist()[0]
        where = in_words(self.configurations(first["cell"]).at(first["x"]))
        return len(failed), f"agent {first['agent']} at {where}: {reason_of(first['error'])}"

    def refusals(self) -> list[str]:
        """Return a line for each algorithm of which the coordinator refused at least half of the messages, with the reason."""
        return refusals(self.events)

    @cached_property
    def events(self) -> Any:
        """Return all events as an Arrow table, in the columns of `fedbo.analysis.schemas.EVENTS`."""
        return self._table("events", EVENTS)

    @cached_property
    def placements(self) -> Any:
        """Return each stay of an evaluation on a worker of a `[cluster]`, as an Arrow table; empty without one."""
        return placements(self.events)

    @cached_property
    def printed(self) -> Any:
        """Return the output of your own code's evaluations, as an Arrow table; empty if they printed nothing."""
        return self._table("printed", PRINTED)

    @cached_property
    def reports(self) -> Any:
        """Return the reports of agents at sites, in the columns of `fedbo.analysis.schemas.REPORTS`; empty without sites."""
        return self._table("reports", REPORTS)

    @cached_property
    def privacy(self) -> Any:
        """Return the privacy ledger as an Arrow table, in the columns of `schemas.PRIVACY`; empty if nothing is private."""
        return self._table("privacy", PRIVACY)

    @cached_property
    def spent(self) -> Any:
        """Return each agent's spending, in the columns of `fedbo.analysis.schemas.SPENT`; empty if nothing is private."""
        return self._table("privacy_agents", SPENT)

    def _table(self, name: str, schema: Any) -> Any:
        """Read a table, or return an empty one if it has no file; DamagedError if its checksum differs."""
        path = self.directory / f"{name}.parquet"
        check_tables(self.directory, self.manifest, [path.name])
        if not path.is_file():
            return schema.empty_table()
        try:
            return read_table(path, schema, further=True)
        except DamagedError as error:
            raise DamagedError(path, error.why, back(path)) from None

    @cached_property
    def traces(self) -> list[IncumbentTrace]:
        """Return the incumbents of every target, in the order of the observations.

        If the study was cut short, only those of the runs that had ended; if none had, all of them.
        """
        found = traces(self.observations, self.events, self.privacy, indicators_in(self.manifest))
        complete = _complete(self.manifest)
        return [t for t in found if complete is None or (t.cell, t.algorithm, t.replicate) in complete]

    @cached_property
    def shown(self) -> tuple[Any, Any]:
        """Return the observations and the events of the runs that `traces` contains."""
        complete = _complete(self.manifest)
        if complete is None:
            return self.observations, self.events
        kept = [[part for key, part in by_run(table) if key in complete] for table in (self.observations, self.events)]
        observations, events = (pa.concat_tables(parts) for parts in kept)
        return observations, events

    def metric(self, cell: int = 0) -> Metric:
        """Return what curves and summaries of a cell show: the native quantity, or with several objectives the hypervolume."""
        own, indicators = self.own_metric(cell), indicators_in(self.manifest)
        return indicators[cell].metric(own) if indicators else own

    def own_metric(self, cell: int = 0) -> Metric:
        """Return the native quantity of the values in a cell, which is its first objective."""
        metrics = self.manifest["metric"]
        most = len(metrics) - 1 if isinstance(metrics, list) else arguments.MOST
        return Metric(**_of_cell(metrics, arguments.whole("cell", cell, 0, most), dict))

    def configurations(self, cell: int = 0) -> Configurations:
        """Return the configurations of a cell's points, by the names of their parameters."""
        written = self.study.objective.settings.get("space")
        return Configurations(self.parameters(cell), written)

    def parameters(self, cell: int = 0) -> list[Mapping[str, Any]]:
        """Return the parameters of a cell as the manifest has them: each with its name, `low`, `high` and `log`."""
        found: list[Mapping[str, Any]] = _of_cell(self.manifest["parameters"], cell, list)
        return found

    def trials(self) -> ResultTable:
        """Return every evaluation as a tidy table: configuration, value in native units, metrics, times, status and reason.

        `.to_pandas()`, `.to_arrow()`, `.to_csv()`, `.to_latex()` and `.to_markdown()` convert it; docs/results.md lists its
        columns.
        """
        return trials(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the observations as a pandas data frame; ImportError when pandas is not installed."""
        return frame_of(self.observations)

    def best(self, each: Each = "algorithm") -> list[dict[str, Any]]:
        """Return the best incumbent of each algorithm in each cell, or of each agent and replicate with `each="agent"`.

        `value` is its noise-free value in native units, `configuration` its parameters by name.
        In a study with limits it is the best feasible one. With several objectives, return the front of each algorithm in each
        cell, or of each agent and replicate, from the best first objective on. `metrics` are the study's metrics by name.
        With `each="all"`, return the configuration recommended for all agents of each run: `known` tells whether the mean
        `value` was "evaluated", or "estimated" with the standard deviation `error`, or is "unknown" for the reason `why`.
        """
        if each == "all":
            from fedbo.analysis.recommendation import recommended  # which fits surrogates, and imports what they need

            return recommended(self)
        if each not in get_args(Each):
            raise ResultError(f"each = '{each}': must be 'algorithm', 'agent' or 'all'")
        if has_fronts(self):
            return front_records(self, each)
        chosen: dict[tuple[Any, ...], IncumbentTrace] = {}
        for trace in self.traces:
            key: tuple[Any, ...] = (trace.cell, trace.algorithm)
            key += (trace.replicate, trace.agent) if each == "agent" else ()
            if trace.row[-1] >= 0 and (key not in chosen or trace.best[-1] > chosen[key].best[-1]):
                chosen[key] = trace
        return [self.incumbent(trace) for trace in chosen.values()]

    def incumbent(self, trace: IncumbentTrace) -> dict[str, Any]:
        """Return the final incumbent of an agent, in the form of `best`."""
        return record(self, self.observations.slice(int(trace.row[-1]), 1).to_pylist()[0])

    def curves(self, by: Axis = "iteration", points: int = 200, regret: bool = False) -> Records[Curve]:
        """Average best-so-far over targets and replicates, against iterations, evaluations, time, bytes, epsilon or cost.

        Evaluations include the initial points, and failed ones; the other axes have `points` places. Bytes are those sent and
        delivered so far in the whole run, for each target. Epsilon is the run's spending so far, at the first delta; the cost
        is the time that the target had spent in evaluations. With `regret`, the curves show the distance to each agent's own
        best value instead of the native quantity; ResultError if that is not known.
        """
        arguments.one_of("by", by, get_args(Axis))
        arguments.whole("points", points, 1)
        groups = by_cell_and_algorithm(scored_traces(self, regret)).items()
        drawn = (curve(mine, by, grid(mine, by, points), REGRET if regret else self.metric(cell)) for (cell, _), mine in groups)
        return Records("curves", Curve, drawn)

    @cached_property
    def regret(self) -> list[RegretTrace]:
        """Return the regret of all evaluations on the mean of all agents' functions; ResultError if it is not known.

        The largest value of the mean is computed once, which may take a minute, and stored beside the tables as `optima.json`.
        """
        return regret_traces(self)

    def regret_curves(self, points: int = 200) -> Records[RegretCurve]:
        """Average that regret over agents and replicates, cumulative and instantaneous, against evaluations of each agent."""
        return Records("regret_curves", RegretCurve, regret_curves(self.regret, arguments.whole("points", points, 1)))

    def regret_summary(self) -> Records[RegretRow]:
        """Summarise that regret and its communication, one row for each algorithm in each cell."""
        groups = by_cell_and_algorithm(self.regret).items()
        return Records("regret", RegretRow, (regret_row(mine, of_algorithm(self.shown[1], *key)) for key, mine in groups))

    def trouble(self) -> Records[Disruptions]:
        """Measure disruptions, one row for each algorithm in each cell."""
        rows = disruptions(*self.shown, fault_names(self.study))
        rank = {label: place for place, label in enumerate(self.study.labels)}
        return Records("trouble", Disruptions, sorted(rows, key=lambda row: (row.cell, rank[row.algorithm])))

    def trouble_by_agent(self) -> Records[AgentTrouble]:
        """Measure the messages and the times of every agent, one row for each algorithm in each cell."""
        rows = trouble_by_agent(self.shown[1], fault_names(self.study))
        rank = {label: place for place, label in enumerate(self.study.labels)}
        return Records("agents", AgentTrouble, sorted(rows, key=lambda row: (row.cell, rank[row.algorithm], row.agent)))

    def spending(self) -> Records[PrivacySummary]:
        """Measure the privacy spending, one row for each algorithm in each cell that has any."""
        return Records("privacy", PrivacySummary, privacy_summaries(self.privacy, self.spent))

    def spending_together(self) -> PrivacyTotal | None:
        """Measure the joint privacy cost of all private runs, if they concern the same agents; None with fewer than two."""
        return privacy_total(self.privacy)

    def compare(self, cells: tuple[int, int], algorithm: str, level: float | None = None, regret: bool = False) -> Comparison:
        """Compare an algorithm in two cells of a sweep, the first against the second, paired by replicate.

        Final values are subtracted, times to a level divided. Cells use common random numbers. `level` is a native target
        value, or a target regret; the default is the final one of the study's first algorithm in the same replicate.

        Raises:
            ResultError: a cell has no such algorithm, or the cells have different metrics.
        """
        if not isinstance(cells, tuple | list) or len(cells) != 2:
            raise arguments.wrong("cells", cells, "must be the numbers of two cells, for example (0, 1)")
        cells = arguments.whole("cells", cells[0]), arguments.whole("cells", cells[1])

        return comparison(self, cells, TargetValue(check_label(self, algorithm), level, regret))

    def summary(self, baseline: str | None = None) -> Records[SummaryRow]:
        """Summarise the run, one row for each algorithm in each cell.

        Differences are to the algorithm labelled `baseline`, by default the first of the study, on the same replicates.
        """
        reference = check_label(self, self.study.labels[0] if baseline is None else baseline)
        groups, (observations, events) = by_cell_and_algorithm(self.traces), self.shown
        rows = []
        for (cell, label), mine in groups.items():
            half = max(int(trace.step.max()) for trace in mine) // 2
            metric, other = self.metric(cell), groups.get((cell, reference), [])
            row = summary_row(mine, half, (of_algorithm(observations, cell, label), of_algorithm(events, cell, label)), metric)
            rows.append(row if label == reference else replace(row, difference=difference(mine, other, metric)))
        if not rows and self.study.hosting.kind == "sites" and len(events):
            rows.append(unobserved_row((0, self.study.labels[0]), self.reports, events))
        return Records("summary", SummaryRow, rows)

    @overload
    def plot(
        self,
        path: str | Path | None = None,
        kind: FigureKind | None = None,
        cell: int | None = None,
        **choices: Unpack[Choices],
    ) -> Path: ...

    @overload
    def plot(
        self,
        path: None = None,
        kind: FigureKind | None = None,
        cell: int | None = None,
        *,
        ax: Axes,
        **choices: Unpack[Choices],
    ) -> Axes: ...

    @spelled_out(Choices, {"regret": False, "title": True})
    def plot(
        self,
        path: str | Path | None = None,
        kind: FigureKind | None = None,
        cell: int | None = None,
        *,
        ax: Axes | None = None,
        **choices: Unpack[Choices],
    ) -> Path | Axes:
        """Draw a figure and return its path: of a cell, or the `sweep`; see `fedbo.figures.plot.KINDS`.

        Without a path the figure is a PNG in the run directory. A path may be a folder, or have another ending (pdf, svg). With
        `ax` one panel is drawn into these axes, in their current style, and they are returned.

        Choices:
            regret: draw the regret instead of values.
            algorithm: the algorithm of a figure that shows only one.
            level: the target value in a sweep.
            algorithms: the only ones shown.
            replicate: the only one that counts.
            panels: the only ones drawn.
            width, height: in inches.
            font, font_size, title=False: the style of the text.
        """
        if path is not None:
            arguments.path("path", path, "file")
        if cell is not None:
            arguments.whole("cell", cell)
        drawn: Path | Axes = registered("draw_result")(self, path, kind, cell, ax, choices)
        return drawn


def fault_names(study: Study) -> list[str]:
    """Return the names of planned faults: their labels, or their kinds, with their place if several are of one kind."""
    kinds = [fault.kind for fault in study.fault]
    return [
        fault.label or (fault.kind if kinds.count(fault.kind) == 1 else f"{fault.kind} ({place})")
        for place, fault in enumerate(study.fault)
    ]


def _complete(manifest: Mapping[str, Any]) -> set[tuple[Any, ...]] | None:
    """Return the runs that count if a study was cut short; None if all do."""
    complete = {tuple(key) for key in manifest.get("complete_runs", ())}
    return None if manifest["status"] == "complete" or not complete else complete


def _of_cell(entry: Any, cell: int, single: type) -> Any:
    """Return a cell's part of a manifest entry; an entry that is no list of such parts holds for all cells."""
    several = isinstance(entry, list) and (not entry or isinstance(entry[0], single))
    return entry[cell] if several else entry
