"""The terms of an ask/tell agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedbo.algorithms.base import Overlapping, Private
from fedbo.objectives.base import is_usable
from fedbo.settings import arguments
from fedbo.settings.trust import admit, places_in
from fedbo.study.document import StudyError
from fedbo.study.invalid import from_pydantic
from fedbo.study.tables import AlgorithmTable
from fedbo.tuning.arguments import check_algorithm, in_arguments
from fedbo.tuning.message_folder import Meeting


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings that all agents that tune together share.

    `algorithm` is a name or a table with settings, `agents` their number, `mode` "max" or "min". An agent's first `initial`
    points are random. A point without a value for `lease` seconds is given to the next client that asks; without a lease that
    happens only when the agent's process starts again. Where a space has at most 2,048 configurations, none is asked twice, and
    `ask` returns fewer when all were; with `repeats`, for noisy objectives, they are evaluated again.
    """

    algorithm: str | Mapping[str, Any] = "fts"
    agents: int = 1
    mode: str = "max"
    initial: int = 3
    seed: int = 0
    lease: float | None = None
    repeats: bool = False

    def __post_init__(self) -> None:
        arguments.one_of("mode", self.mode, ("max", "min"))
        for name, least in (("agents", 1), ("initial", 0), ("seed", 0)):
            arguments.whole(name, getattr(self, name), least)
        if self.lease is not None:
            arguments.number("lease", self.lease, above=0.0)
        arguments.flag("repeats", self.repeats)
        self.make()

    def table(self) -> dict[str, Any]:
        """Return the table of the algorithm; `fts` sends after every value, as agents tune one point each time."""
        check_algorithm("algorithm", self.algorithm)
        table = {"name": self.algorithm} if isinstance(self.algorithm, str) else dict(self.algorithm)
        return {"every": 1, **table} if table["name"] == "fts" else table

    def make(self) -> Any:
        """Build the algorithm; ArgumentError where it is none, or cannot be asked point by point without a coordinator."""
        table = self.table()
        admit(places_in(table))  # which the caller names
        try:
            algorithm: Any = AlgorithmTable.model_validate(table).make()
        except (StudyError, ValidationError) as error:
            found = error if isinstance(error, StudyError) else from_pydantic(error, {})
            raise in_arguments(found.under("algorithm", 0), {"algorithm": [table]}, {}) from None
        if algorithm.queries != 1 or not isinstance(algorithm, Overlapping) or isinstance(algorithm, Private):
            raise arguments.wrong("algorithm", table["name"], "cannot be asked point by point; use ts, fts, gp_ei or gp_ucb")
        return algorithm


def check_agent(folder: Any, terms: Any, number: Any, meeting: Any) -> None:
    """Check what an agent is opened with, besides its space; ArgumentError."""
    arguments.path("folder", folder)
    arguments.instance("terms", terms, Terms, "write fedbo.Terms('fts', agents=2)")
    arguments.whole("number", number, 0, terms.agents - 1)
    if meeting is not None:
        arguments.instance("meeting", meeting, Meeting, "write fedbo.Meeting('/shared/meeting')")
        meeting.check(terms.make(), terms.table()["name"])


def observed_value(value: Any) -> float | None:
    """Return a value that was observed, None where it is no finite number; ArgumentError for text and truth values."""
    if value is None:
        return None
    remedy = "must be a number, or None where the evaluation failed"
    if isinstance(value, str | bytes | bytearray | bool | np.bool_):
        raise arguments.wrong("value", value, remedy)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise arguments.wrong("value", value, remedy) from None
    return number if is_usable(number) else None
