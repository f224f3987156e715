"""A study: loaded, checked and completed before anything runs, with its sweep as cells."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedbo.algorithms.base import Problem
from fedbo.settings.errors import SettingError
from fedbo.settings.own_code import code_words
from fedbo.settings.rooms import study_tables
from fedbo.settings.trust import UntrustedError, places_in
from fedbo.study import limits
from fedbo.study.agents.tables import AgentsTable, HistoryTable
from fedbo.study.base import SETTINGS_TOO, Table, kept
from fedbo.study.check import combinations
from fedbo.study.defaults import with_defaults
from fedbo.study.document import (
    LISTS,
    Document,
    Loc,
    StudyError,
    as_document,
    flatten,
    locate,
    one_line,
    parse_override,
    read,
    to_toml,
    with_value,
)
from fedbo.study.environment.idle import settings_without_effect
from fedbo.study.environment.tables import GroupTable, NetworkTable, TimingTable
from fedbo.study.files import code_in, distributions, hash_files, resolve_paths, source_hashes
from fedbo.study.invalid import from_pydantic, line_of, no_such_key, of_defaults
from fedbo.study.metric_table import MetricTable
from fedbo.study.problems import problem, problem_of
from fedbo.study.study_tables import StudyTables
from fedbo.study.sweeps import applies_to, at_sweep, check_values, left_over, not_named_by, swept, with_first_values
from fedbo.study.tables import AlgorithmTable, BudgetTable, Header, HostingTable, RecordTable, RecoveryTable

__all__ = ["Cell", "Study", "StudyError", "load_study", "recall_study"]


class Study(StudyTables):
    """A study file with every default filled in, as returned by `load_study`. Its fields are the tables of the file."""

    def problem(self) -> Problem:
        """Return the problem that every algorithm may know before the first evaluation."""
        return problem(self)

    def problem_of(self, table: AlgorithmTable) -> Problem:
        """Return the problem that one algorithm may know: it may be a single agent, or start without initial points."""
        return problem_of(self, table)

    def cells(self) -> list[Cell]:
        """Return the combinations of the sweep, each with its study; one cell without a sweep."""
        return [Cell(0, {}, self)] if not self.sweep else list(self._cells())

    @kept
    def _cells(self) -> tuple[Cell, ...]:
        """Check and return every combination of the sweep; StudyError reports an error of one as an error of the sweep."""
        faults: dict[SettingError, None] = {}
        cells = []
        for number, (values, document, tables) in enumerate(_combined(self)):
            try:
                cells.append(Cell(number, values, _checked(document, tables)))
            except StudyError as found:
                faults |= dict.fromkeys(at_sweep(fault, values, document, self.sweep) for fault in found.faults)
        if faults:
            raise StudyError.of(faults)
        return tuple(cells)

    def titles(self) -> list[str]:
        """Return each cell's values on one line, in the order of the cells; an empty title without a sweep."""
        return [_title(values) for values, _, _ in _combined(self)]

    def to_toml(self) -> str:
        """Return the study as a TOML file with every default."""
        return to_toml(self.document())

    def renewed(self) -> Study:
        """Return the study with the present version of the Python code that it names; StudyError where that is invalid."""
        document = self.document()
        return load_study(document, trust=True, derived=True) if any(True for _ in places_in(document)) else self

    def code(self) -> dict[str, str]:
        """Return the SHA-256 of the Python code that the study names, as this process executes it, by its place."""
        return source_hashes(self.document())

    def digest(self, code: Mapping[str, str] | None = None) -> str:
        """Return a SHA-256 of everything that may change a result.

        The name, the description, the hosting and the recovery are excluded. Files enter by their contents, plug-ins by their
        versions, and Python code by its source, or by the hashes in `code`.
        """
        document = hash_files(self.document(), self.code() if code is None else code)
        if found := distributions(self):
            document["plugins"] = found
        document["study"] = {key: document["study"][key] for key in ("seed", "replicates")}
        for key in ("hosting", "recovery"):
            document.pop(key, None)
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of a sweep: its number, the values by dotted key, and the study without a sweep."""

    number: int
    values: Mapping[str, Any]
    study: Study

    @property
    def title(self) -> str:
        """Return the values on one line; empty without a sweep."""
        return _title(self.values)


def _title(values: Mapping[str, Any]) -> str:
    written = {key: value if isinstance(value, str) else one_line(value) for key, value in values.items()}
    return ", ".join(f"{key} = {value}" for key, value in written.items())


def load_study(
    source: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), trust: bool = False, derived: bool = False
) -> Study:
    """Load a study from a TOML file or from a dictionary of its tables; `overrides` are `dotted.key=value`.

    Checking a study that names Python code imports that code, which needs `trust`. A study that is `derived` from a
    checked one, such as that of a run, may have settings without effect. StudyError, with one line for each fault,
    when anything is invalid.
    """
    if isinstance(source, Mapping):
        name, folder, document = "study", Path.cwd(), as_document(source)
    else:
        name, folder, document = str(source), Path(source).absolute().parent, read(Path(source))
    changed = []
    for key, value in map(parse_override, overrides):
        changed.append(_located(document, key))
        document = with_value(document, changed[-1], value)
    document = _hosted_anew(_flat_sweep(document), changed)
    try:
        modules = not isinstance(source, Mapping)  # of which Python itself knows where they are
        return checked_study(document, folder, trust, modules, derived)
    except UntrustedError as error:
        raise StudyError(f"{name}: {code_in(document, error)}") from None
    except StudyError as found:
        lines = found.lines or "\n".join(_line(fault, document, name, changed) for fault in found.faults)
        raise StudyError(lines, found.faults) from None
    except Exception as error:
        if (words := code_words(error)) is None:
            raise
        raise StudyError(f"{name}: {words}") from error


def _hosted_anew(document: Document, changed: Sequence[Loc]) -> Document:
    """Drop those settings of the file's hosting to which other ones in `changed` leave no effect."""
    hosting = document.get("hosting")
    if not isinstance(hosting, dict) or not any(loc[0] == "hosting" for loc in changed):
        return document
    idle = {"workers"} if hosting.get("kind") == "dedicated" else set[str]()
    if hosting.get("kind", "inline") == "inline" and not hosting.get("workers"):
        idle = {"address"}
    if "address" in idle or any(loc == ("hosting", "address") for loc in changed) and hosting.get("address") in (None, "local"):
        idle |= {"labels"}
    return {**document, "hosting": {key: hosting[key] for key in hosting if key not in idle or ("hosting", key) in changed}}


def checked_study(document: Document, folder: Path, trust: bool = False, modules: bool = False, derived: bool = False) -> Study:
    """Return the study of a document whose paths are relative to a folder; StudyError or UntrustedError."""
    study = _checked(resolve_paths(_flat_sweep(document), folder, trust, modules))
    if not derived and (idle := settings_without_effect(cell.study for cell in study.cells())):
        raise StudyError.of(idle)
    return study


def _flat_sweep(document: Document) -> Document:
    swept = document.get("sweep")
    return {**document, "sweep": flatten(swept)} if isinstance(swept, dict) else document


def recall_study(path: Path) -> Study:
    """Read the resolved study of a run, without checking whether it could run here and now; StudyError for an invalid file."""
    document = read(path)
    try:
        study = Study.model_validate(document)
        for key, loc in zip(study.sweep, swept(document, study.sweep), strict=True):
            if loc[0] not in Study.model_fields:
                raise StudyError.of([SettingError(("sweep", key), no_such_key(str(loc[0]), Study.model_fields, "table"))])
        return study
    except (ValidationError, StudyError) as error:
        faults = (error if isinstance(error, StudyError) else from_pydantic(error, _known())).faults
        raise StudyError("\n".join(_line(fault, document, str(path), ()) for fault in faults)) from None


def _located(document: Document, key: str) -> Loc:
    try:
        return locate(document, key)
    except KeyError as error:
        raise StudyError(f"--set {error.args[0]}") from None


def _line(fault: SettingError, document: Document, name: str, changed: Sequence[Loc]) -> str:
    fault = left_over(fault, document, changed)
    overridden = any(applies_to(fault, loc) for loc in changed)
    return f"{'--set' if overridden else name}: {line_of(fault, document)}"


def _checked_alone(document: Document, tables: Mapping[str, Any] | None = None) -> Study:
    """Check a study without the cells of its sweep: table by table, then the combinations; StudyError.

    `tables` are those of the document, some of them as objects that have been checked.
    """
    single = [key for key in LISTS if isinstance(document.get(key), dict)]
    try:
        study = Study.model_validate(tables or document)
    except ValidationError:
        as_lists = [SettingError((key,), f"is an array of tables; write [[{key}]]") for key in single]
        listed = {**document, **{key: [document[key]] for key in single}}
        try:
            Study.model_validate(listed, context=SETTINGS_TOO)
        except ValidationError as error:
            as_lists += not_named_by(listed, from_pydantic(error, _known()).faults)
        raise StudyError.of(as_lists) from None
    check_values(study.sweep)
    if faults := list(limits.numbers(study)):
        raise StudyError.of(of_defaults(faults, document, study.document()))
    resolved = with_defaults(study, {*swept(document, study.sweep)})
    if faults := list(limits.memory(resolved)) or list(combinations(resolved)):
        raise StudyError.of(of_defaults(faults, document, resolved.document()))
    return resolved


def _checked(document: Document, tables: Mapping[str, Any] | None = None) -> Study:
    """Check everything, including every cell of a sweep; StudyError."""
    resolved = _checked_alone(document, tables) if tables else with_first_values(document, _checked_alone)
    resolved.cells()
    points = resolved.initial_points()
    if points is None:
        return resolved
    initial = len(next(iter(points.values())))
    return resolved.model_copy(update={"agents": resolved.agents.model_copy(update={"initial": initial})})


def _combined(study: Study) -> Iterator[tuple[dict[str, Any], Document, dict[str, Any]]]:
    """Yield the sweep's combinations: values, document, and tables; tables without a swept value are shared with the study."""
    base = {key: value for key, value in study.document().items() if key != "sweep"}
    for combination in itertools.product(*study.sweep.values()):
        values = dict(zip(study.sweep, combination, strict=True))
        document: Any = base
        tables = {key: getattr(study, key) for key in base}
        for key, value in values.items():
            loc = locate(base, key)
            document = with_value(document, loc, value)
            head = str(loc[0])
            if head in LISTS:
                listed, number = list(tables[head]), int(loc[1])
                listed[number] = document[head][number]
                tables[head] = listed
            else:
                tables[head] = document[head]
        yield values, document, tables


def _known() -> dict[Loc, Sequence[str]]:
    """Return the keys of every table, for suggestions."""
    known: dict[Loc, Sequence[str]] = {(): list(Study.model_fields)}
    tables = {**_TABLES, **study_tables()}
    known |= {(key,): [field.alias or name for name, field in table.model_fields.items()] for key, table in tables.items()}
    for key, table in study_tables().items():
        known |= {(key, name): list(below.model_fields) for name, below in table.nested.items()}
    return known | {(key, "history"): list(HistoryTable.model_fields) for key in ("agents", "group")}


_TABLES: dict[str, type[Table]] = {
    "study": Header,
    "agents": AgentsTable,
    "metric": MetricTable,
    "budget": BudgetTable,
    "timing": TimingTable,
    "network": NetworkTable,
    "group": GroupTable,
    "record": RecordTable,
    "recovery": RecoveryTable,
    "hosting": HostingTable,
}
