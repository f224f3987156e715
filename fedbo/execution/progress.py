"""The progress display, one bar for each algorithm with the best value and the time left, and the rows of a study in it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol, TextIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from fedbo.actors.storage.rows import RunKey
from fedbo.coordinator.runtime.actor import Run, RunProgress, RunSummary, WarmupRun
from fedbo.objectives.base import Metric
from fedbo.settings.logs import LOGGER, record
from fedbo.settings.shown import shown
from fedbo.study.problems import goals
from fedbo.study.study import Study

_HISTORY = "history"
_ROWS = 12  # more rows than this, and only those at work are shown
_EVERY = 5.0  # seconds between two lines where there is no terminal, at least
_RARER = 1.3  # the factor by which the time since the start grows from one line to the next: some forty in a day
_SURE = 0.05  # the share from which on the time left is told: before, what has been is mostly the start


@dataclass(frozen=True, slots=True)
class RowInfo:
    """One row of the display: an algorithm in one cell of the sweep, with all its replicates.

    `title` is the cell's, empty without a sweep; `metric` names the quantity whose best value is shown.
    """

    cell: int
    label: str
    replicates: int
    metric: str = "value"
    title: str = ""


class Progress(Protocol):
    """A display of a study's progress."""

    def note(self, words: str) -> None:
        """Show a line, before the display starts."""

    def start(self, rows: Sequence[RowInfo]) -> None:
        """Start the display with all its rows."""

    def update(self, run: RunKey, done: int, total: int, best: float | None) -> None:
        """Report how many evaluations of a run are `done`, and its best native value so far, as the mean over targets."""

    def finish(self) -> None:
        """Close the display, also after an interruption."""


@dataclass(slots=True)
class _ProgressRow:
    info: RowInfo
    done: dict[int, int] = field(default_factory=dict)
    total: dict[int, int] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)
    told: bool = False

    def take(self, replicate: int, done: int, total: int, best: float | None) -> None:
        self.done[replicate], self.total[replicate] = done, total
        if best is not None:
            self.best[replicate] = best

    @property
    def share(self) -> float:
        parts = (self.done[replicate] / max(1, total) for replicate, total in self.total.items())
        return sum(parts) / self.info.replicates

    @property
    def name(self) -> str:
        return f"{self.info.label}  {self.info.title}".rstrip()

    @property
    def value(self) -> str:
        """Return the mean best value over agents and over the replicates that have started, under its name in the summary."""
        return f"best {self.info.metric} {sum(self.best.values()) / len(self.best):.4g}" if self.best else ""


class LiveProgress:
    """Bars on a terminal."""

    def __init__(self, console: Console) -> None:
        self._bars = RichProgress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("[cyan]{task.fields[value]}", table_column=Column(min_width=14, no_wrap=True)),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
            refresh_per_second=5,
        )
        self._rows: dict[tuple[int, str], tuple[_ProgressRow, TaskID]] = {}
        self._all: TaskID | None = None
        self._lines = LineProgress(console.file, silent=True)

    def note(self, words: str) -> None:
        """Print a line."""
        self._bars.console.print(words)
        self._lines.note(words)

    def start(self, rows: Sequence[RowInfo]) -> None:
        """Show one bar for each row, and one for all if there are several."""
        self._lines.start(rows)
        for info in rows:
            row = _ProgressRow(info)
            task = self._bars.add_task(row.name, total=1.0, start=False, value="", visible=len(rows) <= _ROWS)
            self._rows[info.cell, info.label] = (row, task)
        if len(rows) > 1:
            self._all = self._bars.add_task("[bold]all", total=float(len(rows)), value="")
        self._bars.start()

    def update(self, run: RunKey, done: int, total: int, best: float | None) -> None:
        """Move the row's bar."""
        self._lines.update(run, done, total, best)
        row, task = self._rows[run.cell, run.algorithm]
        if not row.total:
            self._bars.start_task(task)
        row.take(run.replicate, done, total, best)
        share = row.share
        self._bars.update(task, completed=share, value=row.value, visible=len(self._rows) <= _ROWS or share < 1.0)
        if self._all is not None:
            self._bars.update(self._all, completed=sum(row.share for row, _ in self._rows.values()))

    def finish(self) -> None:
        """Stop the bars and leave them visible."""
        self._bars.stop()


class LineProgress:
    """Prints plain lines where there is no terminal, ever more rarely: a run of any length has some forty.

    Each is a record of the logger `fedbo`. A `silent` one prints nothing: what it records is on the stream already, if any.
    """

    def __init__(self, stream: IO[str] | None, every: float = _EVERY, silent: bool = False) -> None:
        self._stream, self._every, self._silent = stream, every, silent
        self._rows: dict[tuple[int, str], _ProgressRow] = {}
        self._began = self._last = time.monotonic()

    def note(self, words: str) -> None:
        """Print a line."""
        if not self._silent:
            print(shown(words), file=self._stream, flush=True)
        record(words, logging.INFO, self._stream)

    def start(self, rows: Sequence[RowInfo]) -> None:
        """Store the rows and the time."""
        self._rows = {(info.cell, info.label): _ProgressRow(info) for info in rows}
        self._began = self._last = time.monotonic()

    def update(self, run: RunKey, done: int, total: int, best: float | None) -> None:
        """Print a line if the last one is old, or if the row is done."""
        row = self._rows[run.cell, run.algorithm]
        row.take(run.replicate, done, total, best)
        now = time.monotonic()
        ended = row.share >= 1.0
        if row.told or (not is_due(self._began, self._last, now, self._every) and not ended):
            return
        self._last, row.told = now, ended
        self._say(row, now - self._began)

    def finish(self) -> None:
        """Do nothing, since the last line is printed already."""

    def _say(self, row: _ProgressRow, seconds: float) -> None:
        share = sum(row.share for row in self._rows.values()) / len(self._rows)
        left = f", {seconds * (1 / share - 1):.0f} s left" if _SURE <= share < 1 else ""
        best = f", {row.value}" if row.value else ""
        line = f"{row.name}: {row.share:.0%}{best} (all {share:.0%}, {seconds:.0f} s{left})"
        self.note(line)


def is_due(began: float, last: float, now: float, every: float = _EVERY) -> bool:
    """Return whether another line of a progress is due that began at a time, and whose last line is so old."""
    return now - last >= every and now - began >= _RARER * (last - began)


def progress_for(console: Console, stream: TextIO | None = None) -> Progress:
    """Return bars for a terminal, lines otherwise."""
    return LiveProgress(console) if console.is_terminal else LineProgress(stream or sys.stderr)


def recorder() -> Progress | None:
    """Return a display that prints nothing but records its lines; None if nobody asks the logger `fedbo` for them."""
    return LineProgress(None, silent=True) if LOGGER.isEnabledFor(logging.INFO) else None


class Display:
    """Passes the workers' progress to a progress display; without a display it shows nothing.

    `poll` is called at each report, and returns whether the study may end early.
    """

    def __init__(
        self,
        progress: Progress | None,
        study: Study,
        learning: Sequence[WarmupRun],
        work: Sequence[Run],
        poll: Callable[[], bool] = lambda: False,
    ) -> None:
        self._progress, self._poll = progress, poll
        self._learning = len(learning)
        self._budget = {run.key: run.task.whole_budget for run in work}
        cells = study.cells()
        self._metric: dict[int, Metric] = {cell.number: cell.study.federation().metric for cell in cells}
        # Workers report the first objective alone, which says little beside others.
        self._single = {cell.number for cell in cells if (asked := goals(cell.study)) is None or not asked.several}
        self._best: dict[RunKey, float] = {}
        self._complete: set[RunKey] = set()
        if progress is None:
            return
        rows = [RowInfo(0, _HISTORY, 1, "earlier tasks")] if learning else []
        repeats = study.study.replicates
        rows += [
            RowInfo(cell.number, label, repeats, self._metric[cell.number].name, cell.title)
            for cell in cells
            for label in study.labels
        ]
        progress.start(rows)

    def on_history(self, jobs_done: int, progress: Sequence[RunProgress], ended: Sequence[RunSummary]) -> bool:
        """Show how many of the earlier tasks are done; return False, since these never end early."""
        if self._progress is not None and self._learning:
            self._progress.update(RunKey(0, _HISTORY, 0), jobs_done, self._learning, None)
        return False

    def on_progress(self, jobs_done: int, progress: Sequence[RunProgress], ended: Sequence[RunSummary]) -> bool:
        """Show each run's progress and mean best native value over targets; return whether the study may end."""
        if self._progress is None:
            return self._poll()
        for run in progress:
            if run.key is not None and run.key in self._budget and run.key not in self._complete:
                self._show(run.key, run.share, run.best)
        for end in ended:
            if end.key not in self._complete:
                self._complete.add(end.key)
                self._show(end.key, 1.0, end.best)
        return self._poll()

    def finish(self) -> None:
        """Close the display."""
        if self._progress is not None:
            self._progress.finish()

    def _show(self, key: RunKey, share: float, scores: Sequence[float]) -> None:
        assert self._progress is not None
        total = self._budget[key]
        if scores and key.cell in self._single:
            self._best[key] = float(self._metric[key.cell].native(float(np.mean(scores))))
        done = round(share * total)
        self._progress.update(key, done, total, self._best.get(key))
