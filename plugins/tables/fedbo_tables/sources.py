"""The objective to tabulate: a federation by its name and settings, or the objective of a study file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedbo.objectives.base import Federation, fidelity_of, reports_costs
from fedbo.objectives.catalog import catalogue
from fedbo.settings.errors import unknown
from fedbo.study.document import Document, StudyError, parse_override, with_value
from fedbo.study.files import resolve_paths
from fedbo.study.invalid import line_of
from fedbo.study.settings import names_of
from fedbo.study.study import load_study
from fedbo.study.tables import HostingTable, ObjectiveTable


@dataclass(frozen=True, slots=True)
class ObjectiveSource:
    """A federation to tabulate: its name, settings and instance, and the seed and replicate of its streams."""

    name: str
    settings: Document
    federation: Federation
    seed: int = 0
    replicate: int = 0

    @property
    def identity(self) -> dict[str, Any]:
        """Return the facts, as JSON values, that must be equal to resume a table."""
        federation = self.federation
        said: dict[str, Any] = {
            "federation": self.name,
            "settings": self.settings,
            "seed": self.seed,
            "replicate": self.replicate,
            "n_agents": federation.n_agents,
            "parameters": [asdict(parameter) for parameter in federation.parameters],
            "metric": asdict(federation.metric),
            "design": "sobol, scrambled",
        }
        if reports_costs(federation):
            said["costly"] = True
        if axis := fidelity_of(federation):
            said["fidelity"] = asdict(axis)
        found: dict[str, Any] = json.loads(json.dumps(said))
        return found


def source(
    name: str, sets: Sequence[str] = (), seed: int | None = None, replicate: int = 0
) -> tuple[ObjectiveSource, HostingTable]:
    """Return a federation by its name, with `key=value` for its settings, or the [objective] of a study file.

    A study file also sets the seed and the hosting; StudyError if anything is wrong.
    """
    if name in catalogue():
        document: Document = {"name": name}
        for key, value in map(parse_override, sets):
            document = with_value(document, tuple(key.split(".")), value)
        return _built(document, seed or 0, replicate), HostingTable(workers=0)
    if not name.endswith(".toml") and not os.path.exists(name):
        raise StudyError(f"{unknown('objective', name, catalogue())}; or pass a study file")
    study = load_study(name, sets, trust=True)
    if swept := [key for key in study.sweep if key.startswith("objective.")]:
        raise StudyError(f'{name}: [sweep] "{swept[0]}": a table has one objective; choose one value with --set')
    return _built(study.objective.model_dump(), study.study.seed if seed is None else seed, replicate), study.hosting


def _built(document: Document, seed: int, replicate: int) -> ObjectiveSource:
    whole = resolve_paths({"objective": document}, Path.cwd(), trust=True)
    try:
        table = ObjectiveTable.model_validate(whole["objective"]).resolved()
        federation = table.make()
    except StudyError as found:
        lines = [line_of(fault, whole) for fault in found.under("objective").faults]
        raise StudyError("\n".join(f"--set: {line}" for line in lines)) from None
    known = names_of(type(federation))  # without a noise that is added by the study, for scores have none
    settings = {key: value for key, value in table.settings.items() if key in known}
    return ObjectiveSource(table.name, settings, federation, seed, replicate)
