"""The encoding of a checkpoint: numbers, strings, arrays, containers, named tuples and dataclasses.

A node is one byte that says what it is, and what follows from that. The same value always gives the same bytes. Arrays are
written where they are met first, later by number, so that one array held in many places stays one; their contents stand
apart from the nodes. Of big two-dimensional arrays the rows are stored, equal ones once, since the states of many agents
hold the same messages but for a few rows.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from types import BuiltinFunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]

COUNT, INT, FLOAT, ARRAY = Struct("<cQ"), Struct("<cq"), Struct("<cd"), Struct("<c2s??B")
SIZE, RANGE = Struct("<Q"), 2**63
LETTERS = "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]  # of the dtypes of bools and numbers
DEPTH = 64  # deeper nesting is a value that holds itself
POOLED_ROWS, POOLED_BYTES = 64, 2**18  # arrays from this size on are stored by rows


class CheckpointError(ValueError):
    """What a checkpoint cannot hold, or a file that is none of this version."""


class RecordType(NamedTuple):
    """A named tuple class or a dataclass: the class, its fields, and the bytes that name it and them in a checkpoint."""

    kind: type
    names: tuple[str, ...]
    head: bytes

    def values(self, value: Any) -> Sequence[Any]:
        """List what the fields of an instance hold; CheckpointError when it holds something else besides, or not all."""
        for name in getattr(value, "__dict__", ()):
            if name not in self.names:
                raise CheckpointError(f"holds {name!r} beside its fields")
        if issubclass(self.kind, tuple):
            return tuple(value)
        try:
            return [getattr(value, name) for name in self.names]
        except AttributeError as error:
            raise CheckpointError(f"has no value in its field {error.name!r}") from None

    def make(self, values: Sequence[Any]) -> Any:
        """Make an instance without a call of its class, so that nothing runs but this."""
        if issubclass(self.kind, tuple):
            return tuple.__new__(self.kind, values)
        value = _empty(self.kind)
        for name, held in zip(self.names, values, strict=True):
            object.__setattr__(value, name, held)
        return value


def is_record(kind: type) -> bool:
    """Say whether a class is a named tuple class or a dataclass."""
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple))


def record_of(kind: type) -> RecordType:
    """Describe a named tuple class or dataclass; CheckpointError when its instances cannot be made again from their fields."""
    if dataclasses.is_dataclass(kind):
        names = tuple(each.name for each in dataclasses.fields(kind))
        slots = {slot for base in kind.__mro__ for slot in _slots(base)}
        if slots - {*names, "__weakref__", "__dict__"}:
            raise CheckpointError("has slots beside its fields")
        try:
            _empty(kind)
        except TypeError as error:  # an abstract class, or one that is made from a list, a number, an exception
            raise CheckpointError(f"cannot be made from its fields alone ({error})") from None
    else:
        names = tuple(getattr(kind, "_fields", ()))
    if hasattr(kind, "__del__"):
        raise CheckpointError("runs code of its own, __del__, when it goes")
    if find_class(kind.__module__, kind.__qualname__) is not kind:
        raise CheckpointError("cannot be found again by its name; a class at the top of a module could")
    return RecordType(kind, names, "\0".join((kind.__module__, kind.__qualname__, *names)).encode())


def _empty(kind: type) -> Any:
    """Make an instance that has no fields yet; a compiled class is asked itself, since `object` cannot make one."""
    new: Any = kind.__new__
    compiled = isinstance(new, BuiltinFunctionType) and new.__self__ is kind and dataclasses.is_dataclass(kind)
    return new(kind) if compiled else object.__new__(kind)


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def find_class(module: str, name: str) -> type | None:
    """Find a class by its module and qualified name; only modules of this package are imported for it."""
    ours = module.startswith("fedbo.") and all(part.isidentifier() and part != "__main__" for part in module.split("."))
    if module not in sys.modules and ours:
        try:
            importlib.import_module(module)
        except ImportError:
            return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # Looked up in the dictionary, since getattr may run code.
        found = found.__dict__.get(part) if isinstance(found, (ModuleType, type)) else None
    return found if isinstance(found, type) else None


class EncodedRecords:
    """The encodings of records of one class that nobody changes, from one checkpoint to the next of the same growing state."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.found: dict[int, tuple[Any, bytes]] = {}  # by id, with the record itself, so that no id is used twice


@dataclass(slots=True)
class Encoder:
    """An encoder: what has been written so far, and the path to the value that is being written.

    `numbers` maps the id of an array to its number, `arrays` holds the arrays, so that no id is used twice, and `pools`
    maps the length of a row, in bytes, to the rows of this length and their numbers.
    """

    path: list[Any]
    nodes: bytearray = field(default_factory=bytearray)
    numbers: dict[int, int] = field(default_factory=dict)
    arrays: list[AnyArray] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)
    pools: dict[int, dict[bytes, int]] = field(default_factory=dict)
    records: dict[type, RecordType] = field(default_factory=dict)
    encoded: EncodedRecords | None = None

    def here(self) -> str:
        """Give the path as it would be written in Python."""
        parts = [part if isinstance(part, str) else f"[{part[0]!r}]" for part in self.path]
        return "".join(parts) if len(parts) <= DEPTH else "".join(parts[:6]) + "…"


def write(writer: Encoder, value: Any) -> None:
    """Write a value; CheckpointError with the path to what a checkpoint cannot hold."""
    known = WRITERS.get(type(value))
    if known is not None:
        known(writer, value)
    elif isinstance(value, np.generic):
        _write_scalar(writer, value)
    elif writer.encoded is not None and type(value) is writer.encoded.kind:
        _write_once(writer, value, writer.encoded.found)
    elif is_record(type(value)):
        _write_record(writer, value)
    else:
        kinds = "numbers, strings, arrays, containers, named tuples and dataclasses"
        raise CheckpointError(f"{writer.here()} is a {_name(value)}, which a checkpoint cannot hold; it can hold {kinds}")


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _write_int(writer: Encoder, value: int) -> None:
    if -RANGE <= value < RANGE:
        writer.nodes += INT.pack(b"i", value)
    else:
        _write_bytes(writer, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True), b"I")


def _write_bytes(writer: Encoder, value: bytes, tag: bytes = b"b") -> None:
    writer.nodes += COUNT.pack(tag, len(value))
    writer.nodes += value


def _write_range(writer: Encoder, value: range) -> None:
    writer.nodes += b"r"
    for number in (value.start, value.stop, value.step):
        _write_int(writer, number)


def _write_items(writer: Encoder, items: Iterable[Any], parts: Iterable[Any]) -> None:
    path = writer.path
    if len(path) > DEPTH:
        raise CheckpointError(f"{writer.here()} is nested more than {DEPTH} deep, or holds itself")
    path.append("")
    for path[-1], item in zip(parts, items, strict=True):
        write(writer, item)
    path.pop()


def _write_sequence(writer: Encoder, value: tuple[Any, ...] | list[Any]) -> None:
    writer.nodes += COUNT.pack(b"t" if type(value) is tuple else b"l", len(value))
    _write_items(writer, value, zip(range(len(value))))


def _write_dict(writer: Encoder, value: dict[Any, Any]) -> None:
    writer.nodes += COUNT.pack(b"m", len(value))
    _write_items(writer, value.keys(), (".keys()" for _ in value))
    _write_items(writer, value.values(), zip(value.keys()))


def _write_set(writer: Encoder, value: set[Any] | frozenset[Any]) -> None:
    outside, arrays, members = writer.nodes, len(writer.arrays), []
    for member in value:
        writer.nodes = bytearray()
        _write_items(writer, (member,), ("{…}",))
        members.append(bytes(writer.nodes))
    if len(writer.arrays) > arrays:
        raise CheckpointError(f"{writer.here()} is a set of what holds arrays, which has no order; a list or a dict would do")
    writer.nodes = outside
    writer.nodes += COUNT.pack(b"s" if type(value) is set else b"z", len(members))
    writer.nodes += b"".join(sorted(members))


def _write_once(writer: Encoder, value: Any, found: dict[int, tuple[Any, bytes]]) -> None:
    known = found.get(id(value))
    if known is not None:
        writer.nodes += known[1]
        return
    begin, arrays = len(writer.nodes), len(writer.arrays)
    _write_record(writer, value)
    if len(writer.arrays) == arrays:  # an array is written where it is met first
        found[id(value)] = value, bytes(writer.nodes[begin:])


def _write_record(writer: Encoder, value: Any) -> None:
    kind = type(value)
    try:
        record = writer.records.get(kind) or writer.records.setdefault(kind, record_of(kind))
        values = record.values(value)
    except CheckpointError as error:
        raise CheckpointError(f"{writer.here()} is a {_name(value)}, which a checkpoint cannot hold: it {error}") from None
    _write_bytes(writer, record.head, b"c")
    _write_items(writer, values, [f".{name}" for name in record.names])


def _token(writer: Encoder, value: AnyArray | np.generic) -> bytes:
    dtype = value.dtype
    if dtype.char not in LETTERS:
        raise CheckpointError(
            f"{writer.here()} has dtype {dtype}, which a checkpoint cannot hold; it can hold numbers and bools"
        )
    # The letter keeps apart what is of one size, as long and long long are; the sign before it is the order of bytes.
    return (dtype.str[0] + dtype.char).encode()


def _write_scalar(writer: Encoder, value: np.generic) -> None:
    writer.nodes += b"n" + _token(writer, value) + value.tobytes()


def _write_array(writer: Encoder, value: AnyArray) -> None:
    number = writer.numbers.get(id(value))
    if number is not None:
        writer.nodes += COUNT.pack(b"@", number)
        return
    token = _token(writer, value)
    writer.numbers[id(value)] = len(writer.arrays)
    writer.arrays.append(value)
    pooled = value.ndim == 2 and len(value) >= POOLED_ROWS and value.nbytes >= POOLED_BYTES
    writer.nodes += ARRAY.pack(b"a", token, value.flags.writeable, pooled, value.ndim)
    writer.nodes += b"".join(map(SIZE.pack, value.shape))
    writer.buffers.append(_pooled(writer, value) if pooled else value.tobytes())


def _pooled(writer: Encoder, value: AnyArray) -> bytes:
    width = value.nbytes // len(value)
    pool = writer.pools.setdefault(width, {})
    rows = np.ascontiguousarray(value).view(f"V{width}").ravel().tolist()
    return np.array([pool.setdefault(row, len(pool)) for row in rows], "<u4").tobytes()


WRITERS: dict[type, Callable[[Encoder, Any], None]] = {
    type(None): lambda writer, value: writer.nodes.extend(b"N"),
    bool: lambda writer, value: writer.nodes.extend(b"T" if value else b"F"),
    int: _write_int,
    float: lambda writer, value: writer.nodes.extend(FLOAT.pack(b"f", value)),
    str: lambda writer, value: _write_bytes(writer, value.encode("utf-8", "surrogatepass"), b"u"),
    bytes: _write_bytes,
    range: _write_range,
    tuple: _write_sequence,
    list: _write_sequence,
    dict: _write_dict,
    set: _write_set,
    frozenset: _write_set,
    np.ndarray: _write_array,
}
