"""The progress of a tuning in evaluations: how many have ended, how many stopped early, and the best value so far."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from fedbo.actors.storage.rows import RunKey
from fedbo.execution.notices import Evaluation
from fedbo.execution.progress import RowInfo, is_due
from fedbo.settings.logs import record
from fedbo.settings.shown import shown


class TuningProgress:
    """A progress display that is also a callback: a bar on a terminal or in a notebook, and elsewhere lines, ever more rarely.

    `total` is the number of evaluations of all sites.
    """

    def __init__(self, console: Console, total: int, maximise: bool) -> None:
        self._console, self._total, self._sign = console, total, 1.0 if maximise else -1.0
        self._ended = self._failed = self._stopped = 0
        self._paused = set[tuple[int, str]]()
        self._best: tuple[float, int] | None = None
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        self._bar = RichProgress(*columns, console=console, refresh_per_second=5)
        self._task = self._bar.add_task(self.words, total=total)
        self._notebook: Any = None
        self._told, self._began = "", time.monotonic()
        self._last = self._began

    @property
    def words(self) -> str:
        """Return the progress in words, such as `14 of 21 evaluations, 6 stopped early, best 0.95 at site 1`."""
        words = [f"{self._ended} of {self._total} evaluations"]
        words += [f"{self._failed} failed"] if self._failed else []
        words += [f"{self._stopped} stopped early"] if self._stopped else []
        words += [f"{len(self._paused)} paused"] if self._paused else []
        words += [f"best {self._best[0]:.4g} at site {self._best[1]}"] if self._best is not None else []
        return ", ".join(words)

    def __call__(self, evaluation: Evaluation) -> None:
        """Count an evaluation that has ended or paused."""
        key, value = (evaluation.agent, repr(evaluation.configuration)), evaluation.value
        self._ended += key not in self._paused
        self._paused.discard(key)
        self._paused |= {key} if evaluation.stopped == "paused" else set()
        self._failed += evaluation.error is not None
        self._stopped += evaluation.stopped == "stopped"
        if (
            value is not None
            and evaluation.feasible is not False
            and (self._best is None or self._sign * value > self._sign * self._best[0])
        ):
            self._best = value, evaluation.agent
        self._bar.update(self._task, completed=self._ended, description=self.words)
        if self._notebook is not None:
            self._notebook.update(self)
        if is_due(self._began, self._last, time.monotonic()) or self._ended == self._total:
            self._say()

    def _repr_html_(self) -> str:
        """Return a bar and the words for a notebook."""
        return f'<p><progress value="{self._ended}" max="{self._total}"></progress> {escape(shown(self.words))}</p>'

    def note(self, words: str) -> None:
        """Print a line."""
        self._console.print(words)
        record(words, logging.INFO, None if self._console.quiet else self._console.file)

    def start(self, rows: Sequence[RowInfo]) -> None:
        """Show the bar."""
        if self._console.quiet:
            return
        if self._console.is_terminal:
            self._bar.start()
        elif self._console.is_jupyter:
            from IPython.display import display  # there in a notebook

            self._notebook = display(self, display_id=True)

    def update(self, run: RunKey, done: int, total: int, best: float | None) -> None:
        """Do nothing, since evaluations are counted as they end."""

    def finish(self) -> None:
        """Stop the bar and leave it visible."""
        if self._console.is_terminal:
            self._bar.stop()

    def on_end(self) -> None:
        """Print the final line, where there is no bar."""
        if self.words != self._told:
            self._say()

    def _say(self) -> None:
        self._told, self._last = self.words, time.monotonic()
        if not (self._console.is_terminal or self._console.quiet or self._notebook is not None):
            print(shown(self._told), file=self._console.file, flush=True)
        record(self._told, logging.INFO, None if self._console.quiet else self._console.file)
