"""What a study takes: the data sets and libraries of its objectives, which may be missing, and all that it will cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.analysis.cost import CostEstimate, endless_warning, estimate_cost, unused_ids
from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError, without_fetching
from fedbo.settings.rooms import optional_or
from fedbo.study.check_metrics import stopping_note
from fedbo.study.listing import revealed
from fedbo.study.study import Study

ABSENT = (DataMissingError, DataDamagedError, LibraryMissingError)


def require_objectives(study: Study) -> None:
    """Build an objective of each federation of a study.

    DataMissingError, DataDamagedError or LibraryMissingError where a data set or a library is missing.
    This is checked only where evaluations run in processes of this machine, since other machines may have what this one lacks.
    Any other error of an objective is left to its agent to report.
    """
    if study.hosting.kind != "inline" or study.hosting.address is not None:
        return
    tried = list[object]()
    for cell in study.cells():
        if cell.study.objective not in tried:
            tried.append(cell.study.objective)
            try:
                require_objective(cell.study)
            except ABSENT:
                raise
            except Exception:
                continue


def missing(study: Study) -> str | None:
    """Return what a study's objectives lack on this machine, without fetching anything; None where nothing is missing.

    Only federations that declare `reads_data` are checked, since building an objective may take a second.
    """
    if not any(getattr(cell.study.federation(), "reads_data", False) for cell in study.cells()):
        return None
    try:
        with without_fetching():
            require_objectives(study)
    except ABSENT as error:
        return str(error)
    return None


def require_objective(study: Study) -> None:
    """Build the objective of the first target, with the errors of `require_objectives`, wherever evaluations run."""
    streams, agent = Streams(study.study.seed), study.targets[0]  # an agent's own draws differ from the common ones
    study.federation().objective(agent, streams.shared("objective"), streams.of(agent).rng("objective"))


@dataclass(frozen=True, slots=True)
class Validation:
    """A valid study: its cost, the privacy that it spends, what the messages of each algorithm reveal, and its duration.

    `warnings` are by name: "missing" data, "endless" steps, an idle rule of "stopping", and "unused" agents.
    """

    study: Study = field(repr=False)
    cost: CostEstimate
    epsilon: Sequence[Any]
    epsilon_together: Any
    reveals: Mapping[str, Reveals]
    warnings: Mapping[str, str]
    time: Any


def validation(study: Study, timed: bool = False) -> Validation:
    """Estimate the cost of a study, and if `timed` its duration, for which each of its runs is started for seconds."""
    notes = {"missing": missing(study), "endless": endless_warning(study), "stopping": stopping_note(study)}
    return Validation(
        study,
        estimate_cost(study),
        epsilon=optional_or("privacy_estimates", [])(study),
        epsilon_together=optional_or("total_estimate", None)(study),
        reveals=revealed(cell.study for cell in study.cells()),
        warnings={name: words for name, words in (notes | {"unused": unused_ids(study)}).items() if words},
        time=optional_or("forecast", None)(study, time.process_time()) if timed else None,
    )
