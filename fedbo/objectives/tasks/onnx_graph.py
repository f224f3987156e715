"""A graph in the Open Neural Network Exchange format (ONNX): its nodes and its weights, read without the library.

Only what small networks need: tensors of float32, float64 and int64, and nodes with at most one constant. The numbers of fields
are those of the format's `onnx.proto3`, the coding is that of Protocol Buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_KINDS = {1: "<f4", 7: "<i8", 11: "<f8"}  # TensorProto.DataType


class Operation(NamedTuple):
    """One operation; `constant` is the value of a node that has one."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    constant: npt.NDArray[Any] | None


class Graph(NamedTuple):
    """The nodes in the order in which they are computed, and the weights by name."""

    nodes: tuple[Operation, ...]
    weights: dict[str, npt.NDArray[Any]]


def read_graph(path: Path) -> Graph:
    """Read a model; ValueError where it is none, or has something that is not read here."""
    try:
        (graph,) = _all(path.read_bytes(), 7)
        weights = dict(_tensor(one) for one in _all(graph, 5))
        return Graph(tuple(_node(one) for one in _all(graph, 1)), weights)
    except (IndexError, struct.error, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"'{path}': is not a supported model ({type(error).__name__}: {error})") from None


def _node(data: bytes) -> Operation:
    constants = [_tensor(each)[1] for attribute in _all(data, 5) for each in _all(attribute, 5)]
    inputs = tuple(name.decode() for name in _all(data, 1))
    return Operation(_all(data, 4)[0].decode(), inputs, _all(data, 2)[0].decode(), constants[0] if constants else None)


def _tensor(data: bytes) -> tuple[str, npt.NDArray[Any]]:
    dims = [size for field, size in _fields(data) if field == 1]
    (kind,) = (found for field, found in _fields(data) if field == 2 and isinstance(found, int))
    names, raw = _all(data, 8), _all(data, 9)
    values = np.frombuffer(raw[0], _KINDS[kind]).reshape([size for size in dims if isinstance(size, int)])
    return (names[0].decode() if names else ""), values


def _all(data: bytes, wanted: int) -> list[bytes]:
    """List the values of a repeated field of bytes."""
    return [value for field, value in _fields(data) if field == wanted and isinstance(value, bytes)]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """List the fields of a message: number and value."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _number(data, place)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, place = _number(data, place)
        if kind not in (1, 2, 5) or place + size > len(data):
            raise IndexError(f"a field ends at {place + size} of {len(data)} bytes")
        yield key >> 3, data[place : place + size]
        place += size


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, the least first; return it with the position after it."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
