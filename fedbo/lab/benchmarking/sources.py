"""The tasks of a benchmark: those of a suite by its name, or the study files of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.algorithms.catalog import catalogue, entry
from fedbo.objectives.suites.catalog import SUITES
from fedbo.settings.errors import unknown
from fedbo.study.document import StudyError, read
from fedbo.study.files import resolve_paths


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """A task before its methods are chosen: its name, the tables of its study, and the file or suite to name in errors.

    With `optional`, it is left out if its data or a library are missing. Without [exchange], a method that can send after every
    iteration does.
    """

    name: str
    tables: Mapping[str, Any]
    origin: str
    optional: bool = False

    def algorithms(self, wanted: Sequence[str]) -> list[dict[str, Any]]:
        """Return the tables of methods: those of the file with such a label or name, otherwise bare ones; all by default."""
        known = list(self.tables.get("algorithm", ()))
        if not wanted:
            return known
        return [_table(one, known, "exchange" not in self.tables) for one in wanted]


def _table(wanted: str, known: Sequence[Mapping[str, Any]], immediate: bool) -> dict[str, Any]:
    for key in ("label", "name"):
        for table in known:
            if table.get(key) == wanted:
                return {**table, "label": wanted}
    name, _, preset = wanted.partition("/")
    if not preset and immediate and _pauses(name):
        return {"name": name, "label": wanted, "every": 1}
    return {"name": name, "label": wanted, **({"preset": preset} if preset else {})}


def _pauses(name: str) -> bool:
    """Check whether a method sends before the start but not after the first iteration, although it could.

    Without rounds, a message before the start alone arrives too late for most agents.
    """
    if name not in catalogue() or "every" not in entry(name).free():
        return False
    made = entry(name).make()
    return made.sends(0) and not made.sends(1)


def benchmark_sources(suite: str) -> list[BenchmarkSource]:
    """List the tasks of a suite, or the study files of a folder by name; StudyError if there is neither."""
    folder = Path(suite)
    if folder.is_dir():
        files = sorted(folder.glob("*.toml"))
        if not files:
            raise StudyError(f"{suite}: contains no study; pass a folder of TOML files, or the name of a suite")
        return [BenchmarkSource(path.stem, _resolved(path), str(path)) for path in files]
    if suite not in SUITES:
        if "/" in suite or folder.exists():
            raise StudyError(f"{suite}: is not a folder; pass a folder of study files, or the name of a suite")
        raise StudyError(f"{unknown('suite', suite, SUITES)}; or pass a folder of study files")
    chosen = SUITES[suite]
    named = f"suite {suite} {chosen.version}"
    return [BenchmarkSource(task.name, task.tables(), f"{named}, {task.name}", task.optional) for task in chosen.tasks]


def _resolved(path: Path) -> Mapping[str, Any]:
    document = read(path)
    if not isinstance(document.get("algorithm", []), list):
        raise StudyError(f"{path}: [algorithm] is a table; write [[algorithm]]")
    return resolve_paths(document, path.absolute().parent, trust=True)
