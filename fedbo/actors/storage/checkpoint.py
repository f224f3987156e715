"""Checkpoints without pickle, which hold numbers, strings, arrays, and named tuples and dataclasses of these.

Reading a checkpoint never runs code. A class is only looked up by its name, in this package or among imported modules. It must
be a named tuple class or a dataclass with the stored fields, and is recreated without a call. The value read equals the value
written in type and bits; an array comes back in row order, whatever its strides were.

A file is a line with the version of the format, the length of the rest and its checksum (CRC-32). Then follow the lengths of
the parts, the nodes (see `encoding`; compressed), the rows of large arrays by their length, and the contents of arrays.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.actors.storage.encoding import ARRAY, FLOAT, INT, LETTERS, SIZE, AnyArray, EncodedRecords, Encoder, write
from fedbo.actors.storage.record_types import CheckpointError, RecordType, find_class, is_record, record_of

__all__ = ["MAGIC", "CheckpointError", "EncodedRecords", "ReadBounds", "pack", "read_checkpoint", "unpack", "write_checkpoint"]

MAGIC = b"fedbo checkpoint 1\n"
FRAME, LENGTHS = struct.Struct("<QI"), struct.Struct("<QQQ")
NOT_AS_WRITTEN = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError, struct.error, zlib.error
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Bounds for bytes of an untrusted sender, checked before anything is inflated, allocated or looked up.

    - `nodes`: inflated bytes of everything but arrays.
    - `arrays`: bytes of all arrays together.
    - `kinds`: the only classes allowed.
    """

    nodes: int
    arrays: int
    kinds: tuple[type, ...]


def pack(value: Any, name: str = "state", encoded: EncodedRecords | None = None) -> bytes:
    """Return a value as bytes, the same ones for equal values. Errors call it `name`; `encoded` are records written before.

    Raises CheckpointError with the path to the first part that a checkpoint cannot hold.
    """
    return b"".join(_parts(value, name, encoded))


def _parts(value: Any, name: str = "state", encoded: EncodedRecords | None = None) -> list[bytes | memoryview]:
    """Return the bytes of a value in parts, some of which are the memory of its arrays."""
    writer = Encoder(encoded=encoded)
    write(writer, value, name)
    nodes = writer.end()
    parts: list[bytes | memoryview] = [LENGTHS.pack(writer.length, sum(map(len, nodes)), len(writer.pools)), *nodes]
    parts += [SIZE.pack(width) + SIZE.pack(len(pool.numbers)) for width, pool in writer.pools.items()]
    parts += [rows for pool in writer.pools.values() for rows in pool.contents]
    parts += writer.buffers
    check = 0
    for part in parts:
        check = zlib.crc32(part, check)
    return [MAGIC + FRAME.pack(sum(map(len, parts)), check), *parts]


def unpack(data: bytes, bounds: ReadBounds | None = None) -> Any:
    """Read the output of `pack`.

    Raises CheckpointError when it is damaged or incomplete, exceeds `bounds`, or names a class that has changed.
    """
    head = len(MAGIC) + FRAME.size
    if not data.startswith(MAGIC):
        raise CheckpointError(_of_another_format(data))
    body = memoryview(data)[head:]
    if len(data) < head or FRAME.unpack_from(data, len(MAGIC)) != (len(body), zlib.crc32(body)):
        raise CheckpointError("the checkpoint is damaged or incomplete; use an earlier one, or run the study again")
    try:
        return _value(body, bounds)
    except CheckpointError:
        raise
    except NOT_AS_WRITTEN as error:
        raise CheckpointError(f"the checkpoint is not valid: {error}") from error


def _of_another_format(data: bytes) -> str:
    """Return an error text for a file that does not start as a checkpoint of this format."""
    found = re.match(rb"fedbo checkpoint (\d{1,9})\n", data)
    if found is None:
        return f"it does not begin with {MAGIC.decode().strip()!r}, so it is not a checkpoint"
    ours = MAGIC.split()[-1].decode()
    return f"it is of format {found[1].decode()}, but this fedbo reads format {ours}; use the version of fedbo that wrote it"


def write_checkpoint(value: Any, path: Path, encoded: EncodedRecords | None = None) -> str:
    """Write a value to a file, which is replaced as a whole or not at all; return its SHA-256.

    Raises CheckpointError for a value that a checkpoint cannot hold, and OSError, for instance when the disk is full.
    """
    parts = _parts(value, encoded=encoded)
    return atomic.write(path, lambda file: file.writelines(parts))


def read_checkpoint(path: Path) -> Any:
    """Read the value in a file; FileNotFoundError when there is none, CheckpointError as `unpack`."""
    try:
        return unpack(path.read_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _value(body: memoryview, bounds: ReadBounds | None) -> Any:
    length, packed, widths = LENGTHS.unpack_from(body)
    if bounds is not None and length > bounds.nodes:
        raise ValueError(f"it is {length} bytes long without arrays, but at most {bounds.nodes} are allowed")
    place = LENGTHS.size + packed
    nodes = zlib.decompressobj().decompress(body[LENGTHS.size : place], length)
    sizes = list(struct.iter_unpack("<QQ", body[place : place + 16 * widths]))
    place += 16 * widths
    pools = {}
    for width, rows in sizes:
        pools[width] = np.frombuffer(body, f"V{width}", rows, place)
        place += width * rows
    reader = Decoder(nodes, body[place:], pools, bounds, math.inf if bounds is None else bounds.arrays)
    value = read(reader)
    if (len(nodes), reader.node, reader.buffer) != (length, length, len(reader.buffers)):
        raise ValueError("it has extra bytes")
    return value


@dataclass(slots=True)
class Decoder:
    """A decoder and its position in the nodes and in the contents of arrays.

    - `pools`: rows of large arrays, by their length in bytes.
    - `room`: bytes of arrays that may still be allocated.
    """

    nodes: bytes
    buffers: memoryview
    pools: dict[int, AnyArray]
    bounds: ReadBounds | None = None
    room: float = math.inf
    node: int = 0
    buffer: int = 0
    arrays: list[AnyArray] = field(default_factory=list)
    records: dict[bytes, RecordType] = field(default_factory=dict)


def read(reader: Decoder) -> Any:
    """Read the next value; any exception when the nodes are not as `write` writes them."""
    tag = reader.nodes[reader.node]
    reader.node += 1
    return READERS[tag](reader)


def _take(reader: Decoder, size: int) -> bytes:
    piece = reader.nodes[reader.node : reader.node + size]
    if len(piece) != size:
        raise ValueError("a node ends too early")
    reader.node += size
    return piece


def _size(reader: Decoder) -> int:
    reader.node += 8
    return int.from_bytes(reader.nodes[reader.node - 8 : reader.node], "little")


def _piece(reader: Decoder) -> bytes:
    return _take(reader, _size(reader))


def _sequence(reader: Decoder) -> list[Any]:
    return [read(reader) for _ in range(_size(reader))]


def _read_dict(reader: Decoder) -> dict[Any, Any]:
    size = _size(reader)
    keys = [read(reader) for _ in range(size)]
    value = {key: read(reader) for key in keys}
    if len(value) != size:
        raise ValueError("a key occurs twice")
    return value


def _read_set(reader: Decoder) -> set[Any]:
    members = _sequence(reader)
    value = set(members)
    if len(value) != len(members):
        raise ValueError("a member occurs twice")
    return value


def _read_record(reader: Decoder) -> Any:
    head = _piece(reader)
    record = reader.records.get(head)
    if record is None:
        record = reader.records[head] = _find_record(head, reader.bounds)
    return record.make([read(reader) for _ in record.names])


def _find_record(head: bytes, bounds: ReadBounds | None) -> RecordType:
    module, name, *names = head.decode().split("\0")
    if bounds is not None and (module, name) not in {(kind.__module__, kind.__qualname__) for kind in bounds.kinds}:
        raise ValueError("it contains a class that is not allowed here")
    kind = find_class(module, name)
    try:
        record = record_of(kind) if kind is not None and is_record(kind) else None
    except CheckpointError as error:
        raise CheckpointError(f"the checkpoint contains a {module}.{name}, which {error}; run the study again") from None
    if record is not None and record.head == head:
        return record
    if record is not None:
        why = f"with the fields {', '.join(names)}, but here it has {', '.join(record.names)}"
    else:
        why = "which does not exist here" if kind is None else "which is neither a named tuple nor a dataclass"
    raise CheckpointError(
        f"the checkpoint contains a {module}.{name}, {why}; it was written by another version, so run the study again"
    )


def _dtype(token: bytes) -> np.dtype[Any]:
    order, letter = map(chr, token)
    if order not in "<>|" or letter not in LETTERS:
        raise ValueError(f"unknown dtype {token!r}")
    return np.dtype(order + letter)


def _read_scalar(reader: Decoder) -> Any:
    dtype = _dtype(_take(reader, 2))
    return np.frombuffer(_take(reader, dtype.itemsize), dtype)[0]


def _read_array(reader: Decoder) -> AnyArray:
    _, token, writeable, pooled, ndim = ARRAY.unpack(b"a" + _take(reader, ARRAY.size - 1))
    shape, dtype = tuple(_size(reader) for _ in range(ndim)), _dtype(token)
    reader.room -= math.prod(shape) * dtype.itemsize
    if reader.room < 0:
        raise ValueError("its arrays exceed the allowed number of bytes")
    size = shape[0] * 4 if pooled else math.prod(shape) * dtype.itemsize
    contents = np.frombuffer(reader.buffers, np.uint8, size, reader.buffer) if size else np.empty(0, np.uint8)
    reader.buffer += size
    pool = reader.pools[math.prod(shape[1:]) * dtype.itemsize] if pooled else None
    value: AnyArray = np.empty(shape, dtype)  # its own memory, aligned as any other: sums may round by it
    if pool is None:
        value.reshape(-1).view(np.uint8)[:] = contents
    else:
        _fill(value, pool, contents.view("<u4"))
    value.flags.writeable = writeable
    reader.arrays.append(value)
    return value


def _fill(value: AnyArray, pool: AnyArray, rows: AnyArray) -> None:
    if rows.max() >= len(pool):
        raise ValueError("it refers to a missing row")
    np.take(pool, rows, out=value.view(pool.dtype).ravel(), mode="clip")  # which saves a copy that a check would cost


READERS: dict[int, Callable[[Decoder], Any]] = {
    ord("N"): lambda reader: None,
    ord("T"): lambda reader: True,
    ord("F"): lambda reader: False,
    ord("i"): lambda reader: INT.unpack(b"i" + _take(reader, 8))[1],
    ord("I"): lambda reader: int.from_bytes(_piece(reader), "little", signed=True),
    ord("f"): lambda reader: FLOAT.unpack(b"f" + _take(reader, 8))[1],
    ord("u"): lambda reader: _piece(reader).decode("utf-8", "surrogatepass"),
    ord("b"): _piece,
    ord("r"): lambda reader: range(read(reader), read(reader), read(reader)),
    ord("t"): lambda reader: tuple(_sequence(reader)),
    ord("l"): _sequence,
    ord("m"): _read_dict,
    ord("s"): _read_set,
    ord("z"): lambda reader: frozenset(_read_set(reader)),
    ord("c"): _read_record,
    ord("n"): _read_scalar,
    ord("a"): _read_array,
    ord("@"): lambda reader: reader.arrays[_size(reader)],
}
