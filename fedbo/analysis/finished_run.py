"""The interface of analyses to a run: its folder, its study and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fedbo.analysis.curves import IncumbentTrace
from fedbo.analysis.records.configurations import Configurations
from fedbo.analysis.records.records import Records
from fedbo.analysis.summary import SummaryRow, regrets
from fedbo.objectives.base import Metric
from fedbo.settings.errors import FedboError
from fedbo.settings.signatures import Each
from fedbo.study.study import Cell, Study


class ResultError(FedboError, ValueError):
    """A directory without results, or results without the requested data."""


class FinishedRun(Protocol):
    """A run as analyses read it; `Result` is one."""

    directory: Path
    study: Study
    manifest: Mapping[str, Any]
    address: str | None

    @property
    def observations(self) -> Any:
        """Return every evaluation as an Arrow table."""

    @property
    def shown(self) -> tuple[Any, Any]:
        """Return the observations and the events of the runs that `traces` follows."""

    @property
    def traces(self) -> list[IncumbentTrace]:
        """Return the incumbents of every target."""

    def metric(self, cell: int = 0) -> Metric:
        """Return what curves and summaries of a cell show."""

    def own_metric(self, cell: int = 0) -> Metric:
        """Return the native quantity of the values in a cell."""

    def configurations(self, cell: int = 0) -> Configurations:
        """Return the configurations of a cell's points."""

    def parameters(self, cell: int = 0) -> list[Mapping[str, Any]]:
        """Return the parameters of a cell as the manifest has them."""

    def trusted_cells(self) -> list[Cell]:
        """Return the cells of the study, ready to run."""

    def failures(self) -> tuple[int, str]:
        """Count the evaluations that failed; describe the first one."""

    def best(self, each: Each = "algorithm") -> list[dict[str, Any]]:
        """Return the best incumbent of each algorithm in each cell, or of each agent and replicate."""

    def summary(self) -> Records[SummaryRow]:
        """Return one row for each algorithm in each cell."""


def check_label(run: FinishedRun, algorithm: str) -> str:
    """Return a label unchanged; ResultError when no algorithm has it."""
    if algorithm not in run.study.labels:
        raise ResultError(f"no algorithm '{algorithm}'; available: {', '.join(run.study.labels)}")
    return algorithm


def scored_traces(run: FinishedRun, regret: bool) -> list[IncumbentTrace]:
    """Return the traces, or those of the negated regret; ResultError if the regret is not known."""
    if not regret:
        return run.traces
    try:
        return regrets(run.traces, run.manifest.get("best_values") or {})
    except ValueError as error:
        raise ResultError(str(error)) from None
