"""Study documents as TOML: reading with located errors, changes by dotted keys, and writing."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbo.settings.arguments import short
from fedbo.settings.errors import FedboError, SettingError
from fedbo.settings.shown import shown
from fedbo.settings.trust import admit

Document = dict[str, Any]
Loc = tuple[str | int, ...]

MAX_BYTES = 16 * 2**20  # bytes of a study file
MAX_DEPTH = 16  # tables and lists in each other
_TOO_DEEP = f"tables and lists are nested more than {MAX_DEPTH} deep; reduce the nesting"

_WORKERS = "cluster.worker."
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WORD = re.compile(r"[\w./~-][^\[\]{}\"',=]*")  # a word or a path
_AT = re.compile(r"(.*) \(at (.*)\)", re.DOTALL)


class StudyError(FedboError, ValueError):
    """An invalid study: one line for each fault, `<file>: <place> = <value>: <remedy>`; `faults` are the invalid settings.

    Within the checks it has no lines yet: `load_study` writes them, since it knows the file.
    """

    def __init__(self, lines: str, faults: tuple[SettingError, ...] = ()) -> None:
        super().__init__(lines, faults)
        self.faults = faults

    @property
    def lines(self) -> str:
        """Return one line for each fault; empty where they are not written yet."""
        return str(self.args[0])

    @classmethod
    def of(cls, faults: Iterable[SettingError]) -> StudyError:
        """Return the error of these faults, without lines."""
        return cls("", tuple(faults))

    def __str__(self) -> str:
        """Return the lines, or the messages of the faults, with escaped control characters."""
        return shown(self.lines or "\n".join(map(str, self.faults)))

    def under(self, *prefix: str | int) -> StudyError:
        """Return the error with a prefix before the path of each fault."""
        return StudyError.of(SettingError((*prefix, *fault.path), fault.remedy) for fault in self.faults)


def read(path: Path) -> Document:
    """Read a TOML file; StudyError when it is missing or invalid."""
    try:
        if path.is_dir():
            raise StudyError(f"{path}: is a directory; pass the study file in it")
        text = _text(path)
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file; {_beside(path)}") from None
    except UnicodeDecodeError as error:
        raise StudyError(f"{path}: byte {error.start}: not UTF-8; save the file as UTF-8 text") from None
    except OSError as error:
        raise StudyError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    if not text.strip():
        raise StudyError(f"{path}: the file is empty; it needs [study], [objective], [budget] and one [[algorithm]]")
    try:
        found = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path}: {_syntax(str(error))}") from None
    except RecursionError:
        raise StudyError(f"{path}: {_TOO_DEEP}") from None
    except ValueError as error:  # Python reads no whole number of so many digits
        raise StudyError(f"{path}: not TOML ({str(error).partition(';')[0]}); write a smaller number") from None
    if too_deep(found):
        raise StudyError(f"{path}: {_TOO_DEEP}")
    return found


def _text(path: Path) -> str:
    """Read a file as UTF-8, up to the size of a study; StudyError for a larger one, and UnicodeDecodeError or OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise StudyError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB; pass a study file")
    return data.decode("utf-8")


def too_deep(value: Any) -> bool:
    """Return whether tables and lists are nested deeper than in any study."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        layer = [item for held in layer for item in _items(held)]
    return any(isinstance(held, Mapping | list | tuple) for held in layer)


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def parse_override(text: str) -> tuple[str, Any]:
    """Split `key=value`; the value is TOML, and a bare word counts as a string. StudyError when it is neither."""
    key, equals, value = (part.strip() for part in text.partition("="))
    said = shorten(text)
    if not equals or not key:
        raise StudyError(f"--set {said}: is not key=value; write, for example, --set budget.iterations=20")
    if key.count(".") > MAX_DEPTH:
        raise StudyError(f"--set {said}: {_TOO_DEEP}")
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        if _WORD.fullmatch(value):
            return key, value
    except RecursionError:
        raise StudyError(f"--set {said}: {_TOO_DEEP}") from None
    except ValueError as error:
        raise StudyError(f"--set {said}: not TOML ({str(error).partition(';')[0]}); write a smaller number") from None
    else:
        if too_deep(found):
            raise StudyError(f"--set {said}: {_TOO_DEEP}")
        return key, found
    raise StudyError(f"--set {said}: {shorten(value) or 'nothing'} is not a TOML value; put strings in quotes")


def locate(document: Mapping[str, Any], key: str) -> Loc:
    """Convert a dotted key to a path; KeyError when it names an unknown algorithm, group, metric or fault.

    They are found by label or name: `algorithm.<label>.<setting>`, `group.<name>.<setting>`, `metric.<name>.<setting>`,
    `fault.<label>.<setting>`, `cluster.worker.<name>.<setting>`.
    """
    head, _, rest = key.partition(".")
    if head == "sweep" and rest:
        return (head, rest)
    if head not in LISTS and "" in key.split("."):
        raise KeyError(f"{key}: has nothing before, between or after dots; write, for example, study.replicates")
    if head in LISTS and rest:
        return (head, *_among(LISTS[head](_tables(document, head)), rest, key, head))
    cluster = document.get("cluster")
    if key.startswith(_WORKERS) and isinstance(cluster, dict):
        titles = [str(table.get("name", "")) for table in _tables(cluster, "worker")]
        return ("cluster", "worker", *_among(titles, key.removeprefix(_WORKERS), key, "worker"))
    return tuple(key.split("."))


def _among(titles: list[str], rest: str, key: str, head: str) -> Loc:
    """Return the path in a list of tables for a dotted key that starts with a label or name; KeyError for an unknown one."""
    for number, title in enumerate(titles):
        if rest.startswith(f"{title}."):
            return (number, *rest.removeprefix(f"{title}.").split("."))
    word = "name" if head in ("group", "metric", "worker") else "label"
    kind = "an algorithm" if head == "algorithm" else f"a {head}"
    raise KeyError(f"{key}: must start with the {word} of {kind} and a dot; {word}s: {', '.join(titles) or 'none'}")


def _tables(document: Mapping[str, Any], head: str) -> list[Document]:
    found = document.get(head)
    return [table for table in found if isinstance(table, dict)] if isinstance(found, list) else []


def default_label(table: Mapping[str, Any]) -> str:
    """Return an algorithm's label or, without one, its name with the preset in brackets; for a place, the object's name."""
    name, preset = str(table.get("name", "")).rpartition(":")[2], table.get("preset")
    return str(table.get("label") or (f"{name} ({preset})" if preset else name))


def fault_labels(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the labels of faults; without one it is the kind, with a number from the second of its kind on."""
    labels: list[str] = []
    count: dict[str, int] = {}
    for table in tables:
        kind, label = str(table.get("kind", "")), table.get("label")
        if not label:
            count[kind] = count.get(kind, 0) + 1
            label = kind if count[kind] == 1 else f"{kind} {count[kind]}"
        labels.append(str(label))
    return labels


# The tables of which there may be several, and what each of them is called in dotted keys.
LISTS: dict[str, Callable[[Iterable[Mapping[str, Any]]], list[str]]] = {
    "algorithm": lambda tables: [default_label(table) for table in tables],
    "group": lambda tables: [str(table.get("name", "")) for table in tables],
    "metric": lambda tables: [str(table.get("name", "")) for table in tables],
    "fault": fault_labels,
}


def with_value(document: Any, loc: Loc, value: Any) -> Any:
    """Return a copy of the document with `value` at `loc`; missing tables are created."""
    if not loc:
        return value
    head, rest = loc[0], loc[1:]
    if isinstance(head, int):
        return [with_value(item, rest, value) if place == head else item for place, item in enumerate(document)]
    table = document if isinstance(document, dict) else {}
    return {**table, head: with_value(table.get(head, {}), rest, value)}


def lookup(document: Any, loc: Loc) -> Any:
    """Return the value at `loc`; KeyError when there is none."""
    for step in loc:
        try:
            document = document[step]
        except (IndexError, TypeError, KeyError):
            raise KeyError(loc) from None
    return document


def flatten(table: Mapping[str, Any], prefix: str = "") -> Document:
    """Return nested tables as one with dotted keys, such as `exchange.mode`."""
    found: Document = {}
    for key, value in table.items():
        found |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def as_document(value: Any) -> Any:
    """Copy mappings and sequences as the dictionaries and lists of a TOML document, without entries that are None.

    Arrays and NumPy's numbers become plain ones, and a function becomes its place of import. StudyError for any other object
    that no file could hold.
    """
    if isinstance(value, Mapping):
        return {str(key): as_document(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [as_document(item) for item in value]
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return as_document(value.tolist())
    name = getattr(value, "__qualname__", "<unnamed>")
    if callable(value) and "<" not in name and "." not in name:
        admit([place := f"{value.__module__}:{name}"])  # the caller has it already
        return place
    raise StudyError(f"study: {short(value)} cannot be written to a study; use numbers, strings, or a function of a module")


def one_line(value: Any, width: int = 60) -> str:
    """Return a value on one line as in a study file, shortened to `width`; a shortened list or table keeps its last bracket."""
    if isinstance(value, str):
        return shorten(repr(value), width)
    line = inline(value)
    whole = line[: width - len(", …]")].rpartition(", ")[0]
    return f"{whole}, …{line[-1]}" if len(line) > width and line[-1] in "]}" and whole else shorten(line, width)


def shorten(text: str, width: int = 60) -> str:
    """Return a text on one line, shortened to `width`."""
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if len(line) <= width else line[: width - 1] + "…"


def to_toml(document: Mapping[str, Any]) -> str:
    """Return a document of tables as TOML, every table under its header and every value on one line; None is omitted.

    The library tomli_w would write short lists of tables, such as [[fault]], before all headers, and break lists into lines.
    """
    blocks: list[str] = []
    for name, table in document.items():
        if isinstance(table, list | tuple):
            blocks += [_block(f"[[{name}]]", item) for item in table]
        elif table:
            holding = {key: value for key, value in table.items() if isinstance(value, Mapping)}
            nested = {key: value for key, value in holding.items() if any(isinstance(one, Mapping) for one in value.values())}
            blocks.append(_block(f"[{name}]", {key: value for key, value in table.items() if key not in nested}))
            blocks += [_block(f"[{name}.{_key(key)}]", value) for key, value in nested.items()]
    return "\n".join(blocks)


def _block(header: str, table: Mapping[str, Any]) -> str:
    return "".join([f"{header}\n", *(f"{line}\n" for line in _pairs(table))])


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {inline(value)}" for key, value in table.items() if value is not None]


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else inline(key)


def inline(value: Any) -> str:
    """Return a value on one line as TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(_pairs(value))}}}"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _beside(path: Path) -> str:
    near = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    return f"that folder contains: {', '.join(near[:8])}" if near else "pass the path of a study file"


def _syntax(message: str) -> str:
    match = _AT.fullmatch(message)
    what, where = match.groups() if match else (message, "somewhere")
    what = what[0].lower() + what[1:]
    return f"{where}: not TOML ({what}); write strings in quotes and tables in [brackets]"
