"""Invalid settings of a study, and their messages: one line with the place, the value, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from fedbo.settings.errors import SettingError, closest
from fedbo.settings.shown import UNENCODABLE
from fedbo.study.document import Loc, StudyError, lookup, one_line

EXAMPLES: dict[Loc, str] = {
    ("study",): '[study] with name = "…"',
    ("study", "name"): 'name = "…"',
    ("objective",): '[objective] with name = "digits"',
    ("objective", "name"): 'name = "digits"',
    ("algorithm",): '[[algorithm]] with name = "fts"',
    ("budget",): "[budget] with iterations = 50",
    ("budget", "iterations"): "iterations = 50, or pulls = 1000",
    ("availability", "model"): 'model = "always"',
    ("exchange", "mode"): 'mode = "immediate"',
    ("hosting", "kind"): 'kind = "inline"',
    ("group", "name"): 'name = "slow"',
    ("fault", "kind"): 'kind = "crash"',
    ("timing", "speed"): "speed = {factors = [1.0, 2.0]}",
    ("timing", "evaluation"): 'evaluation = {model = "constant", mean = 1.0}',
    ("timing", "latency"): 'latency = {model = "constant", mean = 0.1}',
    ("timing", "decision"): "decision = {coefficient = 0.01}",
    ("timing", "availability"): 'availability = {model = "daily"}',
    ("timing", "history"): "history = {observations = 10}",
    ("agents", "history"): "[agents.history] with observations = 10",
    ("group", "speed"): "speed = {factors = [2.0]}",
}


def line_of(fault: SettingError, document: Mapping[str, Any]) -> str:
    """Return `<place> = <value>: <remedy>`; a table or a missing key shows no value."""
    loc, value = _given(document, fault.path)
    given = "" if value is None or is_table(value) else f" = {one_line(value)}"
    where = place(loc)
    return f"{where}{given}: {fault.remedy}" if where else fault.remedy


def of_defaults(faults: Iterable[SettingError], given: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[SettingError]:
    """Yield the faults in the `whole` study; one in a value that is not `given` shows the default and names the key to set."""
    for fault in faults:
        value = _given(whole, fault.path)[1]
        if value is None or is_table(value) or _given(given, fault.path)[1] is not None:
            yield fault
        else:
            hint = "" if ";" in fault.remedy else f"; set {fault.path[-1]}"
            yield SettingError(fault.path, f"{one_line(value)}, the default, {fault.remedy}{hint}")


def _given(document: Mapping[str, Any], loc: Loc) -> tuple[Loc, Any]:
    """Return the value at `loc` with its path; a name may replace its whole table."""
    for where in (loc, loc[:-1] if loc[-1:] == ("name",) else loc):
        try:
            value = lookup(document, where)
        except KeyError:
            continue
        return (where, value) if where == loc or isinstance(value, str) else (loc, None)
    return loc, None


def is_table(value: Any) -> bool:
    """Return whether a value is a table or a list of tables, which error lines do not repeat."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))


def place(loc: Loc) -> str:
    """Return a path as in a file: `[agents.history] observations`, `[[algorithm]] 2 name`."""
    if not loc:
        return ""
    head, rest = str(loc[0]), loc[1:]
    if rest and isinstance(rest[0], int):
        header, rest = f"[[{head}]] {rest[0] + 1}", rest[1:]
    elif rest[:1] == ("history",) and head == "agents":
        header, rest = "[agents.history]", rest[1:]
    elif rest[:1] == ("worker",) and head == "cluster" and len(rest) > 1:
        header, rest = f"[[cluster.worker]] {int(rest[1]) + 1}", rest[2:]
    elif head == "sweep" and rest:
        return f'[sweep] "{rest[0]}"'
    else:
        header = f"[{head}]"
    return f"{header} {'.'.join(str(step) for step in rest)}".rstrip()


def no_such_key(name: str, known: Iterable[str], kind: str = "key") -> str:
    """Return an error for an unknown key, with the closest known key or all of them."""
    names = sorted(known)
    near = closest(name, names)
    return f"no such {kind}; " + (f"did you mean '{near}'?" if near else f"available: {', '.join(names) or 'none'}")


def from_pydantic(error: ValidationError, known: Mapping[Loc, Iterable[str]]) -> StudyError:
    """Translate pydantic's errors; `known` lists the keys of each table."""
    found: dict[Loc, list[str]] = {}
    items = error.errors(include_url=False)
    within = {item["loc"][:length] for item in items for length in range(len(item["loc"]))}
    for item in items:
        loc = item["loc"]
        if item["type"] == "too_short" and loc in within:  # it is not empty: its items are wrong
            continue
        if item["type"] == "settings":
            told = [((*loc, *fault.path), fault.remedy) for fault in item["ctx"]["faults"]]
        else:
            told = [_misspelt(item) or (loc, remedy_of(item, loc, known))]
        for where, remedy in told:
            remedies = found.setdefault(where, [])
            if remedy not in remedies:
                remedies.append(remedy)
    return StudyError.of(SettingError(loc, ", or ".join(remedies)) for loc, remedies in found.items())


def _misspelt(item: Mapping[str, Any]) -> tuple[Loc, str] | None:
    """Return the fault of a key that a missing one was meant by; None where there is none."""
    name, given = str(item["loc"][-1]), item["input"]
    if item["type"] != "missing" or not isinstance(given, dict) or (wrong := closest(name, given)) is None:
        return None
    return (*item["loc"][:-1], wrong), no_such_key(wrong, (name,))


def remedy_of(item: Mapping[str, Any], loc: Loc, known: Mapping[Loc, Iterable[str]]) -> str:
    """Return the remedy for one of pydantic's errors."""
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        table = tuple(step for step in loc[:-1] if isinstance(step, str))
        return no_such_key(str(loc[-1]), known.get(table, ()), "key" if table else "table")
    bare = tuple(step for step in loc if isinstance(step, str))
    if kind == "missing":
        return f"is missing; add {EXAMPLES.get(bare, f'{loc[-1]} = …')}"
    if kind == "value_error":
        return str(context["error"])
    template = _REMEDIES.get(kind)
    example = EXAMPLES.get(bare) or EXAMPLES.get(("timing", *bare[1:]))  # a group has the models of [timing]
    if template == _TABLE and example:
        return f"{_TABLE}, for example {example}"
    return template.format(**context) if template else str(item["msg"])[0].lower() + str(item["msg"])[1:]


_TABLE = "must be a table"
_REMEDIES = {
    "bool_type": "must be true or false",
    "dataclass_type": _TABLE,
    "dict_type": _TABLE,
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:.17g}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le:.17g}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "model_attributes_type": _TABLE,
    "model_type": _TABLE,
    "string_too_short": "must not be empty",
    "string_type": "must be a string in quotes",
    "string_unicode": UNENCODABLE,
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
}
