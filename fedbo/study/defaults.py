"""Defaults of a study: every table gets all its settings, so that the file states what will run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fedbo.algorithms.base import Algorithm, Private
from fedbo.settings.errors import SettingError
from fedbo.settings.rooms import study_tables
from fedbo.study.agents.tables import AgentsTable, HistoryTable
from fedbo.study.document import Loc, StudyError, fault_labels
from fedbo.study.environment.tables import ExchangeTable
from fedbo.study.problems import bare_problem, sends_once
from fedbo.study.study_tables import StudyTables
from fedbo.study.sweeps import NAMES
from fedbo.study.tables import AlgorithmTable, HostingTable

Tables = TypeVar("Tables", bound=StudyTables)


def with_defaults(study: Tables, swept: set[Loc]) -> Tables:
    """Return the study with all settings of its tables filled in; StudyError for invalid ones."""
    faults: list[SettingError] = []

    def fill(table: Any, *loc: str | int) -> Any:
        # A table whose name is swept keeps what was given: the defaults of one name would be wrong for another.
        if any((*loc, key) in swept for key in NAMES):
            return table.model_copy(update={"label": table.title}) if loc[0] == "algorithm" else table
        try:
            return table.resolved()
        except StudyError as found:
            faults.extend(found.under(*loc).faults)
            return table

    labels = fault_labels(table.model_dump() for table in study.fault)
    changes = {
        "objective": fill(study.objective, "objective"),
        "algorithm": tuple(fill(table, "algorithm", number) for number, table in enumerate(study.algorithm)),
        "timing": _models(study.timing, fill, "timing"),
        "availability": fill(study.availability, "availability"),
        "group": tuple(_models(table, fill, "group", number) for number, table in enumerate(study.group)),
        "exchange": fill(_exchange(study), "exchange"),
        "detection": None if study.detection is None else fill(study.detection, "detection"),
        "evaluation": fill(study.evaluation, "evaluation"),
        "fault": tuple(
            fill(table, "fault", number).model_copy(update={"label": labels[number]})
            for number, table in enumerate(study.fault)
        ),
        "agents": _agents(study.agents, fill),
        "hosting": _hosting(study),
    }
    changes |= {key: table.filled(getattr(study, key), study, fill) for key, table in study_tables().items()}
    if faults:
        raise StudyError.of(faults)
    return study.model_copy(update=changes)


def _models(table: Any, fill: Callable[..., Any], *loc: str | int) -> Any:
    """Fill in the models that [timing] or a [[group]] sets."""
    held = {key: getattr(table, key, None) for key in ("evaluation", "speed", "decision", "latency", "availability")}
    filled = {key: fill(model, *loc, key) for key, model in held.items() if model is not None}
    if getattr(table, "history", None) is not None:
        filled["history"] = _history(table.history, fill, *loc, "history")
    return table.model_copy(update=filled)


def _agents(agents: AgentsTable, fill: Callable[..., Any]) -> AgentsTable:
    if agents.history is None:
        return agents
    return agents.model_copy(update={"history": _history(agents.history, fill, "agents", "history")})


def _history(history: HistoryTable, fill: Callable[..., Any], *loc: str | int) -> HistoryTable:
    if history.algorithm is None:
        return history
    return history.resolved().model_copy(update={"algorithm": fill(history.algorithm, *loc, "algorithm")})


def _exchange(study: StudyTables) -> ExchangeTable:
    """Set a mode that is not set, "barrier" where an algorithm is useless without rounds, and count what is a share.

    The cells of a sweep may differ in their agents, so each counts for itself.
    """
    given = study.exchange
    try:
        given = given if study.sweep else given.counted(len(study.targets))
    except ValueError:  # told where it is filled in
        return given
    if "mode" in given.model_fields_set:
        return given
    try:
        rounds = any(_needs_rounds(study, table.make()) for table in _algorithms(study))
    except ValueError:  # told where they are filled in
        return given
    return given.model_copy(update={"mode": "barrier"}) if rounds else given


def _needs_rounds(study: StudyTables, algorithm: Algorithm) -> bool:
    """Return whether an algorithm is useless without rounds: it samples them, or sends one message, before the start."""
    if isinstance(algorithm, Private) and algorithm.mechanism(bare_problem(study)).share < 1:
        return True
    return sends_once(study, algorithm)


def _algorithms(study: StudyTables) -> Iterator[AlgorithmTable]:
    """Yield the algorithms, and each with every swept setting, since all cells have the same default mode."""
    yield from study.algorithm
    for table in study.algorithm:
        start = f"algorithm.{table.title}."
        for key, values in study.sweep.items():
            if key.startswith(start):
                yield from (table.model_copy(update={key.removeprefix(start): value}) for value in values)


def _hosting(study: StudyTables) -> HostingTable:
    """Fill in the hosting: a study whose objective is at its sites has its agents there."""
    hosting = study.hosting
    if study.objective.name == "sites" and "kind" not in hosting.model_fields_set:
        return hosting.model_copy(update={"kind": "sites"})
    default = {"inline": 0, "packed": 2, "dedicated": None, "sites": None}[hosting.kind]
    return hosting if hosting.workers is not None else hosting.model_copy(update={"workers": default})
