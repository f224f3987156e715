"""The encoding of a checkpoint: numbers, strings, arrays, containers, named tuples and dataclasses.

A node is one byte with its type, and data that depends on the type. Equal values always give equal bytes. An array is written
at its first occurrence and later referred to by number, so an array that is shared stays shared. The contents of arrays are
stored apart from the nodes. Large two-dimensional arrays are stored by rows, equal rows once, since the states of many agents
hold the same messages but for a few rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.storage.record_types import CheckpointError, RecordType, is_record, record_of

AnyArray = npt.NDArray[Any]

COUNT, INT, FLOAT, ARRAY = Struct("<cQ"), Struct("<cq"), Struct("<cd"), Struct("<c2s??B")
SIZE, RANGE = Struct("<Q"), 2**63
LETTERS = "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]  # of the dtypes of bools and numbers
TOKENS: dict[tuple[str, str], bytes] = {}  # of the dtypes that were written
DEPTH = 64  # deeper nesting is a value that holds itself
PIECE = 2**20  # bytes of nodes that are compressed at a time
COPIED = 2**10  # bytes of an array up to which its contents are copied, which is less than what refers to them else
POOLED_ROWS, POOLED_BYTES = 64, 2**18  # arrays from this size on are stored by rows


class EncodedRecords:
    """The encodings of immutable records of one class, kept between checkpoints of the same growing state."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.found: dict[int, tuple[Any, bytes]] = {}  # by id, with the record itself, so that no id is used twice


@dataclass(slots=True)
class RowPool:
    """The distinct rows of one length of large arrays: their numbers by digest, and their contents."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    contents: list[memoryview] = field(default_factory=list)

    def numbers_of(self, rows: AnyArray) -> list[int]:
        """Return the number of each row of bytes; the contents of new rows are views of the array, not copies."""
        numbers, found, new = self.numbers, list[int](), list[int]()
        for place, row in enumerate(rows):
            known = len(numbers)
            found.append(numbers.setdefault(blake2b(row, digest_size=16).digest(), known))
            if len(numbers) > known:
                new.append(place)
        runs = np.split(np.array(new, dtype=np.int64), np.flatnonzero(np.diff(new) > 1) + 1) if new else []
        self.contents += [rows[run[0] : run[-1] + 1].reshape(-1).data for run in runs]
        return found


@dataclass(slots=True)
class Encoder:
    """An encoder and what it has written so far.

    - `depth`: nesting of the value that is being written.
    - `nodes`: nodes that are not compressed yet.
    - `packed`, `length`: all others, compressed, and their length before that.
    - `apart`: above 0, nothing is compressed because nodes are still being moved, such as those of a set.
    - `numbers`: number of each array by its id; `arrays`: the arrays, so that no id is reused.
    - `buffers`: contents of the arrays.
    - `pools`: rows of large arrays, by their length in bytes.
    """

    depth: int = 0
    nodes: bytearray = field(default_factory=bytearray)
    packed: list[bytes] = field(default_factory=list)
    compressor: Any = field(default_factory=lambda: zlib.compressobj(1))
    length: int = 0
    apart: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    arrays: list[AnyArray] = field(default_factory=list)
    buffers: list[bytes | memoryview] = field(default_factory=list)
    pools: dict[int, RowPool] = field(default_factory=dict)
    records: dict[type, RecordType] = field(default_factory=dict)
    encoded: EncodedRecords | None = None

    def compress(self) -> None:
        """Compress the nodes written since the last call."""
        self.packed.append(self.compressor.compress(self.nodes))
        self.length += len(self.nodes)
        self.nodes = bytearray()

    def end(self) -> list[bytes]:
        """Compress the remaining nodes and return all compressed nodes."""
        self.compress()
        return [*self.packed, self.compressor.flush()]


def write(writer: Encoder, value: Any, name: str) -> None:
    """Write a value, which errors call `name`; CheckpointError with the path to a part that a checkpoint cannot hold."""
    try:
        _write(writer, value)
    except _CannotHold as error:
        parts = [name, *reversed(error.parts)]
        path = "".join(parts) if len(parts) <= DEPTH else "".join(parts[:6]) + "…"
        raise CheckpointError(f"{path} {error}") from None


class _CannotHold(Exception):
    """A value that a checkpoint cannot hold.

    Each container appends its part of the path to it, so the last part comes first.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.parts: list[str] = []


def _write(writer: Encoder, value: Any) -> None:
    known = WRITERS.get(type(value))
    if known is not None:
        known(writer, value)
    elif isinstance(value, np.generic):
        writer.nodes += b"n" + _token(value) + value.tobytes()
    elif writer.encoded is not None and type(value) is writer.encoded.kind:
        _write_once(writer, value, writer.encoded.found)
    elif type(value) in writer.records or is_record(type(value)):
        _write_record(writer, value)
    else:
        kinds = "numbers, strings, arrays, containers, named tuples and dataclasses"
        raise _CannotHold(f"is a {_name(value)}, which a checkpoint cannot store; use {kinds}")


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


def _write_items(writer: Encoder, items: Iterable[Any], part: Callable[[int], str]) -> None:
    """Write the items of a container; `part` returns the part of the path that leads to an item."""
    place, known = 0, WRITERS.get
    if writer.depth >= DEPTH:
        raise _CannotHold(f"is nested more than {DEPTH} deep, or contains itself")
    writer.depth += 1
    try:
        for place, item in enumerate(items):  # noqa: B007 -- it says where an error was
            (known(type(item)) or _write)(writer, item)
    except _CannotHold as error:
        error.parts.append(part(place))
        raise
    writer.depth -= 1


def _write_sequence(writer: Encoder, value: tuple[Any, ...] | list[Any]) -> None:
    writer.nodes += COUNT.pack(b"t" if type(value) is tuple else b"l", len(value))
    if value:
        _write_items(writer, value, "[{}]".format)


def _write_dict(writer: Encoder, value: dict[Any, Any]) -> None:
    writer.nodes += COUNT.pack(b"m", len(value))
    if value:
        _write_items(writer, value, lambda _: ".keys()")
        _write_items(writer, _piece_by_piece(writer, value.values()), lambda place: f"[{[*value][place]!r}]")


def _piece_by_piece(writer: Encoder, values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values of a dictionary, such as all agents, and compress the nodes in between.

    Uncompressed, the nodes of so many values would take several times the memory of the values.
    """
    for value in values:
        yield value
        if len(writer.nodes) >= PIECE and not writer.apart:
            writer.compress()


def _write_set(writer: Encoder, value: set[Any] | frozenset[Any]) -> None:
    outside, arrays, members = writer.nodes, len(writer.arrays), []
    writer.apart += 1
    for member in value:
        writer.nodes = bytearray()
        _write_items(writer, (member,), lambda _: "{…}")
        members.append(bytes(writer.nodes))
    if len(writer.arrays) > arrays:
        raise _CannotHold("is a set of values with arrays, which has no order; use a list or a dict")
    writer.nodes, writer.apart = outside, writer.apart - 1
    writer.nodes += COUNT.pack(b"s" if type(value) is set else b"z", len(members))
    writer.nodes += b"".join(sorted(members))


def _write_once(writer: Encoder, value: Any, found: dict[int, tuple[Any, bytes]]) -> None:
    known = found.get(id(value))
    if known is not None:
        writer.nodes += known[1]
        return
    begin, arrays = len(writer.nodes), len(writer.arrays)
    writer.apart += 1
    _write_record(writer, value)
    writer.apart -= 1
    if len(writer.arrays) == arrays:  # an array is written where it is met first
        found[id(value)] = value, bytes(writer.nodes[begin:])


def _write_record(writer: Encoder, value: Any) -> None:
    kind = type(value)
    try:
        record = writer.records.get(kind) or writer.records.setdefault(kind, record_of(kind))
        values = record.values(value)
    except CheckpointError as error:
        raise _CannotHold(f"is a {_name(value)}, which a checkpoint cannot store: it {error}") from None
    _write_bytes(writer, record.head, b"c")
    _write_items(writer, values, lambda place: f".{record.names[place]}")


def _token(value: AnyArray | np.generic) -> bytes:
    dtype = value.dtype
    known = TOKENS.get((dtype.byteorder, dtype.char))  # equal dtypes may have different letters
    if known is None and dtype.char not in LETTERS:
        raise _CannotHold(f"has dtype {dtype}, which a checkpoint cannot store; use numbers or booleans")
    # The letter keeps apart what is of one size, as long and long long are; the sign before it is the order of bytes.
    return known or TOKENS.setdefault((dtype.byteorder, dtype.char), (dtype.str[0] + dtype.char).encode())


def _write_array(writer: Encoder, value: AnyArray) -> None:
    number = writer.numbers.get(id(value))
    if number is not None:
        writer.nodes += COUNT.pack(b"@", number)
        return
    token, shape = _token(value), value.shape
    writer.numbers[id(value)] = len(writer.arrays)
    writer.arrays.append(value)
    pooled = len(shape) == 2 and shape[0] >= POOLED_ROWS and value.nbytes >= POOLED_BYTES
    writer.nodes += ARRAY.pack(b"a", token, value.flags.writeable, pooled, len(shape))
    for size in shape:
        writer.nodes += SIZE.pack(size)
    writer.buffers.append(_pooled(writer, value) if pooled else _contents(value))


def _contents(value: AnyArray) -> bytes | memoryview:
    """Return the bytes of an array in row order; a large array is not copied."""
    return value.tobytes() if value.nbytes <= COPIED else np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _pooled(writer: Encoder, value: AnyArray) -> bytes:
    pool = writer.pools.setdefault(value.nbytes // len(value), RowPool())
    rows = np.ascontiguousarray(value).reshape(len(value), -1).view(np.uint8)
    return np.array(pool.numbers_of(rows), "<u4").tobytes()


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
