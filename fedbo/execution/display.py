"""The progress of a study's runs, as rows of the progress display."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbo.actors.storage.rows import RunKey
from fedbo.coordinator.runtime.actor import Run, RunProgress, RunSummary, WarmupRun
from fedbo.execution.progress import Progress, RowInfo
from fedbo.objectives.base import Metric
from fedbo.study.problems import goals
from fedbo.study.study import Study

_HISTORY = "history"


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
