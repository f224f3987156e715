"""Load studies with an immense number in one place each, within a limit of memory; print what is neither right nor told."""

from __future__ import annotations

import dataclasses
import resource
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.catalog import algorithms
from fedbo.analysis.cost import estimate_cost
from fedbo.coordinator.environment.availability import AVAILABILITIES
from fedbo.coordinator.environment.faults import FAULTS
from fedbo.coordinator.environment.timing import TIMINGS, DecisionTimeModel, SpeedClasses
from fedbo.coordinator.modes import MODES
from fedbo.coordinator.staleness import Staleness
from fedbo.objectives.catalog import federations
from fedbo.privacy.estimates import privacy_estimates
from fedbo.privacy.study_table import PrivacyTable
from fedbo.study.agents.tables import AgentsTable, HistoryTable
from fedbo.study.document import Loc, StudyError, with_value
from fedbo.study.environment.tables import NetworkTable
from fedbo.study.study import load_study
from fedbo.study.tables import BudgetTable, Header, HostingTable, RecoveryTable

VALUES = (10**6, 10**9, 10**18, 1e308, -1, 0, float("nan"), float("inf"))
MEMORY = 2**30  # bytes beside those of the libraries

Place = tuple[dict[str, Any], Loc]


def right(**tables: Any) -> dict[str, Any]:
    return {
        "study": {"name": "immense"},
        "objective": {"name": "quadratic", "agents": 4},
        "budget": {"iterations": 5},
        "algorithm": [{"name": "fts"}],
        **tables,
    }


def is_number(hint: Any) -> bool:
    if hint in (int, float):
        return True
    several = typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Annotated)
    return several and any(map(is_number, typing.get_args(hint)))


def settings(declared: Any) -> list[str]:
    hints = typing.get_type_hints(declared)
    return [field.name for field in dataclasses.fields(declared) if field.init and is_number(hints[field.name])]


def places() -> Iterator[Place]:
    """List every place of a study that holds a number, with a study that has it."""
    history = {"history": {"algorithm": "random", "observations": 5}}
    for loc, table in (
        (("study",), Header),
        (("agents",), AgentsTable),
        (("agents", "history"), HistoryTable),
        (("budget",), BudgetTable),
        (("network",), NetworkTable),
        (("recovery",), RecoveryTable),
        (("hosting",), HostingTable),
        (("privacy",), PrivacyTable),
    ):
        for key, field in table.model_fields.items():
            if is_number(field.annotation):
                yield right(**({"agents": history} if len(loc) == 2 else {})), (*loc, key)
    for name, declared in federations().items():
        yield from ((right(objective={"name": name}), ("objective", key)) for key in settings(declared))
    for name, entry in algorithms().items():
        yield from ((right(algorithm=[{"name": name}]), ("algorithm", 0, key)) for key in settings(entry.settings))
    for kind, declared in FAULTS.items():
        rate = {"rate": 0.1} if "rate" in settings(declared) else {}
        for key in settings(declared):
            given = {} if key in ("at", "event", "rate") else rate
            yield right(fault=[{"kind": kind, **given}]), ("fault", 0, key)
    for at, known, key in (
        (("availability",), AVAILABILITIES, "model"),
        (("timing", "evaluation"), TIMINGS, "model"),
        (("timing", "latency"), TIMINGS, "model"),
        (("exchange",), MODES, "mode"),
    ):
        for name, model in known.items():
            yield from ((with_value(right(), at, {key: name}), (*at, setting)) for setting in settings(model))
    for at, declared in (
        (("timing", "speed"), SpeedClasses),
        (("timing", "decision"), DecisionTimeModel),
        (("exchange", "staleness"), Staleness),
        (("evaluation",), Policy),
    ):
        yield from ((right(), (*at, setting)) for setting in settings(declared))


def told(document: dict[str, Any]) -> str:
    """Say what is wrong with how a study is taken; nothing where it is right, or refused in lines of their own."""
    try:
        study = load_study(document)
        estimate_cost(study)
        privacy_estimates(study)
        study.to_toml()
    except StudyError as error:
        return "" if all(line.startswith("study: ") for line in str(error).splitlines()) else f"refused: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(stride: int) -> None:
    """Try every value in every place, or one of so many of these."""
    told(right())  # all that is imported late
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    tried = [(document, loc, value) for document, loc in places() for value in VALUES][::stride]
    for document, loc, value in tried:
        if wrong := told(with_value(document, loc, value)):
            print(f"{loc} = {value}: {wrong}")
    print(len(tried))


if __name__ == "__main__":
    main(int(sys.argv[1]))
