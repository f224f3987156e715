"""A residual network with gated layers that replaces many tuning tasks (YAHPO Gym), evaluated by NumPy.

The network of Gorishniy et al. 2021 for tables: categories are embedded and numbers transformed to a common range. Blocks h + B
(a(h) relu(g(h))) follow, each after a batch normalisation. Normalisations and ranges are folded into the adjacent matrices, in
double precision, so that an evaluation is little more than products of matrices. Compiled code evaluates one point
(`point_network`).

The weights are read from a graph in the Open Neural Network Exchange format (ONNX) without the library: tensors of float32,
float64 and int64, and nodes with at most one constant, since small networks need no more. The numbers of fields are those of
the format's `onnx.proto3`, the coding is that of Protocol Buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.objectives.base import Array
from fedbo.objectives.tasks.surrogate_layers import Codes, Columns, PointLayers, Weights

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


_EPSILON = 1e-5  # of the batch normalisations
# How a column is transformed before the first layer, and after the last one, operation by operation.
_BEFORE = {("Sub", "Div"): "", ("Add", "Log", "Sub", "Div"): "log", ("Div", "Neg", "Exp", "Sub", "Sub", "Div"): "nexp"}
_AFTER = {("Mul", "Add"): "", ("Mul", "Add", "Exp", "Sub"): "log", ("Mul", "Add", "Add", "Log", "Neg", "Mul"): "nexp"}


class ResidualBlock(NamedTuple):
    """The two layers of a block, which widen and narrow: the factor and the offset of each."""

    widen: Array
    widened: Array
    narrow: Array
    narrowed: Array


@dataclass(frozen=True, eq=False)
class SurrogateNetwork:
    """The arrays of a network: `embedded` has, for each category, what its codes contribute to the first layer, `(codes, h)`.

    `blocks` are the two layers of each block, `scaled` is the last normalisation; each is a pair of a factor and an offset.
    `layers` are the same for one point, and `starts (k,)` the places in `layers.embedded` where categories begin.
    """

    embedded: tuple[Array, ...]
    inputs: Columns
    first: tuple[Array, Array]
    blocks: tuple[ResidualBlock, ...]
    scaled: tuple[Array, Array]
    head: tuple[Array, Array]
    outputs: Columns
    layers: PointLayers
    starts: Codes

    def at(self, codes: Codes, numbers: Array) -> Array:
        """Return the outputs `(o,)` at the codes `(k,)` and the numbers `(c,)` of one point, which are overwritten."""
        from fedbo.objectives.tasks.point_network import outputs

        return np.asarray(outputs(numbers, codes + self.starts, self.layers, self.inputs, self.outputs))

    def __call__(self, codes: Codes, numbers: Array) -> Array:
        """Return the outputs `(…, o)` at the codes of categories `(…, k)` and the numbers `(…, c)` of one point or of many."""
        hidden = self.inputs.before(numbers) @ self.first[0] + self.first[1]
        for place, table in enumerate(self.embedded):
            hidden = hidden + table[codes[..., place]]
        for block in self.blocks:
            both = hidden @ block.widen + block.widened
            half = both.shape[-1] // 2
            hidden = hidden + (both[..., :half] * np.maximum(both[..., half:], 0.0)) @ block.narrow + block.narrowed
        last = np.maximum(hidden * self.scaled[0] + self.scaled[1], 0.0) @ self.head[0] + self.head[1]
        return self.outputs.after(scipy.special.expit(last))


@cache
def read_network(path: Path) -> SurrogateNetwork:
    """Read a network from its publisher's file, once for each process; ValueError where it is built in another way."""
    graph = read_graph(path)
    weights = {name: np.asarray(value, dtype=np.float64) for name, value in graph.weights.items()}
    try:
        return _network(graph, weights)
    except (KeyError, IndexError) as missing:
        raise ValueError(f"'{path}': is not a supported network: it lacks {missing}") from None


def _network(graph: Graph, weights: dict[str, Array]) -> SurrogateNetwork:
    tables = [weights[f"embds_fct.{place}.weight"] for place in range(_count(weights, "embds_fct"))]
    sigmoid = [node.output for node in graph.nodes if node.kind == "Sigmoid"][0]
    inputs, outputs = _columns(graph, "x_cont", _BEFORE), _columns(graph, sigmoid, _AFTER)
    first, wide = weights["first_layer.weight"].T, sum(table.shape[1] for table in tables)
    starts = np.cumsum([0, *(table.shape[1] for table in tables)])
    numbers = first[wide:] / inputs.width[:, None]
    blocks = tuple(_block(weights, f"layers.{place}") for place in range(_count(weights, "layers")))
    embedded = tuple(table @ first[start : start + table.shape[1]] for table, start in zip(tables, starts, strict=False))
    offset = weights["first_layer.bias"] - inputs.low @ numbers
    return SurrogateNetwork(
        embedded=embedded,
        inputs=inputs,
        first=(numbers, offset),
        blocks=blocks,
        scaled=_normalisation(weights, "last_normalization"),
        head=(weights["head.weight"].T, weights["head.bias"]),
        outputs=outputs,
        layers=_point_layers(weights, np.concatenate(embedded), numbers, offset),
        starts=np.cumsum([0, *(len(table) for table in embedded[:-1])]),
    )


def _point_layers(weights: dict[str, Array], embedded: Array, first: Array, first_offset: Array) -> PointLayers:
    """Return the layers for one point, whose products are of vectors of length 128."""
    names = [f"layers.{place}" for place in range(_count(weights, "layers"))]
    if len(first_offset) != 128:
        raise KeyError("a hidden layer of width 128")
    normal = [_normalisation(weights, name) for name in (*(f"{name}.norm" for name in names), "last_normalization")]
    widen, widened, narrow, narrowed = (
        np.array([weights[f"{name}.{kind}"] for name in names])
        for kind in ("linear0.weight", "linear0.bias", "linear1.weight", "linear1.bias")
    )
    half = narrow.shape[2]
    return PointLayers(
        embedded=embedded,
        first=first,
        first_offset=first_offset,
        factor=np.array([factor for factor, _ in normal]),
        offset=np.array([offset for _, offset in normal]),
        gate=_narrowly(widen[:, half:].transpose(0, 2, 1)),
        gate_offset=np.ascontiguousarray(widened[:, half:]),
        value=_narrowly(widen[:, :half]),
        value_offset=np.ascontiguousarray(widened[:, :half]),
        narrow=_narrowly(narrow.transpose(0, 2, 1)),
        narrowed=narrowed,
        head=np.ascontiguousarray(weights["head.weight"].T),
        head_offset=weights["head.bias"],
    )


def _narrowly(weights: Array) -> Weights:
    """Return the weights in their published 32 bits."""
    return np.ascontiguousarray(weights, dtype=np.float32)


def _block(weights: dict[str, Array], name: str) -> ResidualBlock:
    """Return the two layers of a block, with the normalisation before them folded into the first."""
    factor, offset = _normalisation(weights, f"{name}.norm")
    widen = weights[f"{name}.linear0.weight"]
    widened = widen @ offset + weights[f"{name}.linear0.bias"]
    narrow, narrowed = weights[f"{name}.linear1.weight"].T, weights[f"{name}.linear1.bias"]
    return ResidualBlock((widen * factor).T, widened, narrow=narrow, narrowed=narrowed)


def _normalisation(weights: dict[str, Array], name: str) -> tuple[Array, Array]:
    factor = weights[f"{name}.weight"] / np.sqrt(weights[f"{name}.running_var"] + _EPSILON)
    return factor, weights[f"{name}.bias"] - factor * weights[f"{name}.running_mean"]


def _count(weights: dict[str, Array], prefix: str) -> int:
    return len({name.split(".")[1] for name in weights if name.startswith(f"{prefix}.")})


def _columns(graph: Graph, source: str, known: dict[tuple[str, ...], str]) -> Columns:
    """Follow each column of `source` through the operations that transform it."""
    constants = {
        node.output: float(node.constant) for node in graph.nodes if node.constant is not None and not node.constant.ndim
    }
    users = {name: node for node in graph.nodes for name in node.inputs}
    taken = [node for node in graph.nodes if node.kind == "Gather" and node.inputs[0] == source]
    taken.sort(key=lambda node: constants[node.inputs[1]])
    kinds, low, width, scale = list[str](), list[float](), list[float](), list[float]()
    for node in taken:
        steps = _steps(node, users)
        kind = known[tuple(step.kind for step in steps)]
        by = [constants[name] for step in steps for name in step.inputs if name in constants]
        range_ = by[:2][::-1] if known is _AFTER else by[-2:]
        kinds.append(kind)
        low.append(range_[0])
        width.append(range_[1])
        scale.append(by[-1] if known is _AFTER else by[0])
    log, nexp = (np.array([i for i, kind in enumerate(kinds) if kind == one], dtype=np.int64) for one in ("log", "nexp"))
    return Columns(np.array(low), np.array(width), log, nexp, np.array(scale)[nexp])


def _steps(node: Operation, users: dict[str, Operation]) -> list[Operation]:
    """List the operations on a column until it is put beside the others; changes of precision are none."""
    found: list[Operation] = []
    while (node := users[node.output]).kind != "Unsqueeze":
        if node.kind != "Cast":
            found.append(node)
    return found
