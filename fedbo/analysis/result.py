"""The results of a run: its directory as tables, its best points, its summary and its figures."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, overload

from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.described import best_points, html_of, words_of
from fedbo.analysis.finished_run import FinishedRun, ResultError, check_label, counted_tables
from fedbo.analysis.grouping import by_cell_and_algorithm, of_algorithm
from fedbo.analysis.manifest import MANIFEST, STUDY, check_tables, read_manifest, remedy_of
from fedbo.analysis.records.records import Records, ResultTable
from fedbo.analysis.summary import SummaryRow, difference, summary_row, unobserved_row
from fedbo.analysis.trials import trials
from fedbo.settings import arguments
from fedbo.settings.arguments import Each, FigureKind, spelled_out
from fedbo.settings.rooms import loaded
from fedbo.settings.shown import quoted
from fedbo.settings.trust import admit, places_in
from fedbo.study.paths import DirectoryError, address_of, usable
from fedbo.study.storage import copy_run
from fedbo.study.study import Study, recall_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FILES = (MANIFEST, STUDY, "observations.parquet", "events.parquet")
# What Optuna, Ray Tune and scikit-learn call what a result has.
_ELSEWHERE = {
    'best("agent")': "best_config best_index_ best_params best_params_ best_result best_score_ best_trial best_trials "
    "best_value get_best_result",
    "trials().to_pandas()": "cv_results_ dataframe get_dataframe trials_dataframe",
}


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
    dark: bool


class Result(FinishedRun):
    """A run that has ended, completely or not. `Result.open` reads one.

    Its tables are attributes, as `FinishedRun` lists them. A method is what most users ask of every run: its `trials`, the
    `best` points, the `summary`, a figure by `plot`. Everything else is a function of `fedbo.analysis`, such as
    `fedbo.analysis.curves(result)`, so that a further analysis adds a function and leaves this class as it is.
    """

    def __init__(self, directory: Path, study: Study, manifest: Mapping[str, Any], trust: bool = False) -> None:
        super().__init__(directory, study, manifest)
        if trust:
            admit(places_in(study.document()))

    def __repr__(self) -> str:
        """Return a text with the run, and the best point of each algorithm."""
        return words_of(self)

    def _repr_html_(self) -> str:
        """Return the same as HTML for a notebook."""
        return html_of(self)

    if not TYPE_CHECKING:  # else type checkers would know any attribute

        def __getattr__(self, name: str) -> Any:
            """Answer a name of another tuner with ours."""
            ours = next((f"; use {one}" for one, theirs in _ELSEWHERE.items() if name in theirs.split()), "")
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{ours}")

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
            return _open_copy(address, trust)
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
        return cls(folder, recall_study(folder / STUDY), manifest, trust)

    def trials(self) -> ResultTable:
        """Return every evaluation as a tidy table: configuration, value in native units, metrics, times, status and reason.

        `.to_pandas()`, `.to_arrow()`, `.to_csv()`, `.to_latex()` and `.to_markdown()` convert it; docs/results.md lists its
        columns.
        """
        return trials(self)

    def best(self, each: Each = "algorithm", by: Literal["value", "model"] = "value") -> list[dict[str, Any]]:
        """Return the best incumbent of each algorithm in each cell, or of each agent and replicate with `each="agent"`.

        `value` is its noise-free value in native units, `configuration` its parameters by name.
        In a study with limits it is the best feasible one. With several objectives, return the front of each algorithm in each
        cell, or of each agent and replicate, from the best first objective on. `metrics` are the study's metrics by name.
        With `each="all"`, return the configuration recommended for all agents of each run: `known` tells whether the mean
        `value` was "evaluated", or "estimated" with the standard deviation `error`, or is "unknown" for the reason `why`.
        With `by="model"`, for noisy values, `value` is the mean of a Gaussian process of the agent's evaluations, and `error`
        its standard deviation; the best point has the largest mean less that.
        """
        if each == "all":
            from fedbo.analysis.recommendation import recommended  # which fits surrogates, and imports what they need

            return recommended(self)
        if by not in ("value", "model"):
            raise ResultError(f"by = '{by}': must be 'value' or 'model'")
        if by == "model":
            from fedbo.analysis.recommendation import best_by_model

            return best_by_model(self, each)
        if each not in get_args(Each):
            raise ResultError(f"each = '{each}': must be 'algorithm', 'agent' or 'all'")
        return best_points(self, each)

    def summary(self, baseline: str | None = None) -> Records[SummaryRow]:
        """Summarise the run, one row for each algorithm in each cell.

        Differences are to the algorithm labelled `baseline`, by default the first of the study, on the same replicates.
        """
        reference = check_label(self, self.study.labels[0] if baseline is None else baseline)
        groups, (observations, events) = by_cell_and_algorithm(self.traces), counted_tables(self)
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

    @spelled_out(Choices, {"regret": False, "title": True, "dark": False})
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
            dark: light colours on a dark page.
        """
        if path is not None:
            arguments.path("path", path, "file")
        if cell is not None:
            arguments.whole("cell", cell)
        drawn: Path | Axes = loaded("fedbo.figures.plot:draw_result")(self, path, kind, cell, ax, choices)
        return drawn

    @spelled_out(Choices, {"regret": False, "title": True, "dark": False})
    def caption(self, kind: FigureKind | None = None, cell: int | None = None, **choices: Unpack[Choices]) -> str:
        """Return a LaTeX caption of the figure that `plot` draws with these arguments: n, its intervals, and paired tests."""
        return str(loaded("fedbo.figures.captions:caption_of")(self, kind, cell, choices))


def _open_copy(address: str, trust: bool) -> Result:
    """Copy a run to this machine while the result exists, and open the copy; DirectoryError in one line."""
    copy = tempfile.mkdtemp(prefix="fedbo-")
    try:
        copy_run(address, Path(copy))
        found = Result.open(copy, trust)
    except BaseException as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, OSError):
            raise DirectoryError(f"'{address}': cannot be reached ({' '.join(str(error).split())[:200]})") from None
        if isinstance(error, DamagedError):
            raise DirectoryError(f"'{address}': {error.path.name} is damaged ({error.why}); copy it there again") from None
        if isinstance(error, ValueError):
            raise DirectoryError(str(error).replace(copy, address)) from None
        raise
    found.address = address
    weakref.finalize(found, shutil.rmtree, copy, ignore_errors=True)
    return found
