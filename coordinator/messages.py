"""The door of the coordinator: what a message is, what it weighs, and which ones are refused."""

from __future__ import annotations

from functools import cache
from math import isfinite

import numpy as np

from fedbo.algorithms.base import Declaration, Payload


def size(payload: Payload) -> int:
    """Count a message's bytes as they are serialised: the arrays alone, since the declaration fixes all else."""
    arrays = payload.values() if isinstance(payload, dict) else ()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def weight(declaration: Declaration | None) -> int:
    """Count the bytes of a message that is as declared; 0 where nothing is."""
    fields = (declaration or {}).values()
    return sum(int(np.prod(field.shape, dtype=np.int64)) * np.dtype(field.dtype).itemsize for field in fields)


def encode(payload: Payload, declaration: Declaration) -> bytes:
    """Serialise a message: its arrays in the order of the declaration, little-endian, nothing between them."""
    return b"".join(
        np.ascontiguousarray(payload[name], dtype=np.dtype(field.dtype).newbyteorder("<")).tobytes()
        for name, field in declaration.items()
    )


def decode(data: bytes, declaration: Declaration) -> Payload:
    """Read a serialised message; ValueError when its length is not the declared one."""
    arrays, place = {}, 0
    for name, field in declaration.items():
        dtype = np.dtype(field.dtype).newbyteorder("<")
        count = int(np.prod(field.shape, dtype=np.int64))
        if place + count * dtype.itemsize > len(data):
            raise ValueError(f"message of {len(data)} bytes ends inside field '{name}'")
        arrays[name] = np.frombuffer(data, dtype, count, place).astype(field.dtype).reshape(field.shape)
        place += count * dtype.itemsize
    if place != len(data):
        raise ValueError(f"message of {len(data)} bytes, but {place} are declared")
    return arrays


def fault(payload: object, declaration: Declaration) -> str | None:
    """Say what is wrong with a payload, or None when it is as declared."""
    if not isinstance(payload, dict):
        return f"payload is a {type(payload).__name__}, not named arrays"
    if payload.keys() != declaration.keys():
        return _names(set(payload), set(declaration))
    for name, field in declaration.items():
        array = payload[name]
        if not isinstance(array, np.ndarray):
            return f"field '{name}' is a {type(array).__name__}, not an array"
        if array.dtype != _dtype(field.dtype):
            return f"field '{name}' is {array.dtype}, declared {field.dtype}"
        if array.shape != field.shape:
            return f"field '{name}' has shape {array.shape}, declared {field.shape}"
        # A finite sum of squares shows it at a third of the price; one that overflows shows nothing.
        if field.finite and not isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
            return f"field '{name}' holds a value that is not finite"
    return None


_dtype = cache(np.dtype)  # to compare with a name would parse it for every message


def _names(came: set[object], declared: set[str]) -> str:
    extra = sorted(str(name) for name in came - declared)
    return f"undeclared field '{extra[0]}'" if extra else f"field '{min(declared - came)}' is missing"
