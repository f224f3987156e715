"""The progress of a tabulation, as rows of the progress display."""

from __future__ import annotations

from fedbo.actors.storage.rows import RunKey
from fedbo.execution.progress import Progress, RowInfo
from fedbo.objectives.base import Metric
from fedbo_tables.worker import JobResult


class TableDisplay:
    """Updates a progress display: a row for each agent, with its best native value so far."""

    def __init__(self, progress: Progress | None, metric: Metric, totals: dict[int, int]) -> None:
        self._progress, self._metric, self._totals = progress, metric, totals
        self._done: dict[int, int] = {}
        self._best: dict[int, float] = {}

    def start(self, done: dict[int, int]) -> None:
        """Start the display, with the evaluations that exist already."""
        self._done = dict(done)
        if self._progress is None:
            return
        self._progress.start([RowInfo(0, f"agent {agent}", 1, self._metric.name) for agent in self._totals])
        for agent, count in done.items():
            if count:
                self._progress.update(RunKey(0, f"agent {agent}", 0), count, self._totals[agent], None)

    def on_progress(self, done: JobResult) -> None:
        """Show the result of a job."""
        agent = done.agent
        self._done[agent] += done.made
        if done.best is not None:
            self._best[agent] = max(done.best, self._best.get(agent, done.best))
        best = float(self._metric.native(self._best[agent])) if agent in self._best else None
        if self._progress is not None:
            self._progress.update(RunKey(0, f"agent {agent}", 0), self._done[agent], self._totals[agent], best)

    def finish(self) -> None:
        """Close the display."""
        if self._progress is not None:
            self._progress.finish()
