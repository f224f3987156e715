"""The requirements of a study's objectives that may be missing: a data set or a library."""

from __future__ import annotations

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError, without_fetching
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
