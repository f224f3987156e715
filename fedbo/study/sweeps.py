"""The keys of a sweep: which may be swept, and which errors are due to a swept value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fedbo.settings.errors import SettingError
from fedbo.study.document import LISTS, Document, Loc, StudyError, locate, lookup, one_line, with_value
from fedbo.study.invalid import is_table, line_of

T = TypeVar("T")
NAMES = ("name", "preset", "model", "mode", "kind")  # keys that say whose settings the other keys of a table are


def swept(document: Document, sweep: Mapping[str, Any]) -> list[Loc]:
    """Return the path of each swept key; StudyError for keys that change no result or do not exist."""
    fixed = [key for key in sweep if _is_fixed(key)]
    if fixed:
        remedy = "does not change results, so it cannot be swept; remove it"
        raise StudyError.of(SettingError(("sweep", key), remedy) for key in fixed)
    try:
        return [locate(document, key) for key in sweep]
    except KeyError as error:
        key = next(key for key in sweep if error.args[0].startswith(f"{key}: "))
        raise StudyError.of([SettingError(("sweep", key), error.args[0].removeprefix(f"{key}: "))]) from None


def not_named_by(document: Document, faults: Iterable[SettingError]) -> Iterator[SettingError]:
    """Return the faults outside of tables whose name is swept, since settings of one name are invalid for another."""
    tables = set[Loc]()
    sweep = document.get("sweep")
    for key in sweep if isinstance(sweep, dict) else ():
        try:
            loc = locate(document, str(key))
        except KeyError:
            continue  # told in its own place, once the tables are right
        if loc[-1] in NAMES:
            tables.add(loc[:-1])
    return (fault for fault in faults if not any(fault.path[: len(loc)] == loc for loc in tables))


def check_values(sweep: Mapping[str, Sequence[Any]]) -> None:
    """Raise StudyError where a value is listed twice, which would run twice and count as two cells."""
    faults = [(key, twice) for key, values in sweep.items() if (twice := _twice(values)) is not None]
    if faults:
        raise StudyError.of(
            SettingError(("sweep", key), f"{one_line(twice[0])} is listed twice; list each value once") for key, twice in faults
        )


def _twice(values: Sequence[Any]) -> tuple[Any] | None:
    """Return the first repeated value as a 1-tuple, None if there is none; 1 and 1.0 are equal."""
    seen = set[str]()
    for value in values:
        written = json.dumps(_whole(value), sort_keys=True)
        if written in seen:
            return (value,)
        seen.add(written)
    return None


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_fixed(key: str) -> bool:
    head, _, rest = key.partition(".")
    if head in ("algorithm", "fault"):
        return rest.endswith(".label")
    if head == "group":
        return rest.endswith(".name")
    return head in ("hosting", "recovery") or key in ("study.name", "study.description")


def with_first_values(document: Document, check: Callable[[Document], T]) -> T:
    """Check a study; where that fails and there is a sweep, check it with the first swept values; StudyError.

    So a value that the sweep replaces, such as a default, need not be valid.
    """
    try:
        return check(document)
    except StudyError as found:
        values, filled = _filled(document)
        if filled == document:
            raise
        try:
            return check(filled)
        except StudyError as again:
            faults = (fault if fault in found.faults else at_sweep(fault, values, filled) for fault in again.faults)
            raise StudyError.of(dict.fromkeys(faults)) from None


def _filled(document: Document) -> tuple[dict[str, Any], Document]:
    """Return the first value of each swept key, and the document with these; unchanged where a key does not exist."""
    sweep = document.get("sweep")
    lists = sweep.items() if isinstance(sweep, dict) else ()
    values = {str(key): listed[0] for key, listed in lists if isinstance(listed, list) and listed}
    filled: Any = document
    try:
        for key, value in values.items():
            loc = locate(document, key)
            if loc[-1] in NAMES and loc[0] in ("algorithm", "fault"):  # whose label would follow the name
                filled = with_value(filled, (*loc[:-1], "label"), LISTS[str(loc[0])](document[loc[0]])[int(loc[1])])
            filled = with_value(filled, loc, value)
    except KeyError:
        return {}, document
    return values, filled


def at_sweep(
    fault: SettingError, values: Mapping[str, Any], document: Document, sweep: Mapping[str, Sequence[Any]] | None = None
) -> SettingError:
    """Return a fault in one combination of swept values as a fault of the sweep; without `sweep` they are the first ones.

    One in a swept table names the entry of the list and the key.
    """
    for key, value in values.items():
        loc = locate(document, key)
        if applies_to(fault, loc):
            if (rest := fault.path[len(loc) :]) and isinstance(value, dict):
                entry = 1 if sweep is None else list(sweep[key]).index(value) + 1
                try:
                    given = lookup(value, rest)
                except KeyError:
                    given = None
                shown = "" if given is None or is_table(given) else f" = {one_line(given)}"
                return SettingError(("sweep", key), f"entry {entry}, {'.'.join(map(str, rest))}{shown}: {fault.remedy}")
            named = fault.remedy.startswith("no ")  # "no such key", or "no group 'slw'", which names the value itself
            return SettingError(("sweep", key), fault.remedy if named else f"{one_line(value)} {fault.remedy}")
    combination = ", ".join(f"{key} = {one_line(value)}" for key, value in values.items())
    return SettingError(("sweep",), f"with {combination}: {line_of(fault, document)}")


def left_over(fault: SettingError, document: Document, changed: Sequence[Loc]) -> SettingError:
    """Return the remedy for a setting that belongs to the name before an override, or for a table that overrides a list."""
    for loc in changed:
        if loc == fault.path and fault.remedy.startswith("is an array of tables"):
            return SettingError(fault.path, f"is an array of tables; write --set '{loc[0]}=[{{…}}]'")
        if loc[-1] in NAMES and loc != fault.path and fault.path[:-1] == loc[:-1] and fault.remedy.startswith("no such key"):
            table, value = ".".join(map(str, loc[:-1])), one_line(lookup(document, loc))
            words = f"belongs to another {loc[-1]} than {value}"
            if any(isinstance(step, int) for step in loc):
                return SettingError(fault.path, f"{words}; replace the whole table in the file")
            return SettingError(fault.path, f'{words}; replace the whole table: --set "{table}={{{loc[-1]} = {value}}}"')
    return fault


def applies_to(fault: SettingError, loc: Loc) -> bool:
    """Return whether a fault is in the value that was set at `loc`, or in a table that exists only because of it."""
    return fault.path[: len(loc)] == loc or (loc[: len(fault.path)] == fault.path and fault.remedy.startswith("no such"))
