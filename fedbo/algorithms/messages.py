"""Messages: their size, their serialisation, and the check against their declaration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import hypot, isfinite
from typing import Any, Final

import numpy as np

from fedbo.algorithms.base import Declaration, Field, Payload

DUMMY: Payload = {}  # sent in place of a message, where it shall not show who has something to say

# Without NumPy's question whether an array of another library comes, a third of its time; `dot` would warn of an overflow.
vdot: Final[Callable[..., Any]] = getattr(np.vdot, "_implementation", np.vdot)
_ndarray: Final = np.ndarray
_FEW_WORDS = 40  # characters of a sender's own words that a refusal repeats
_FEW = 8  # numbers whose length is found in less time than by NumPy
PlainFields = dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]] | None
ROUNDING = 1e-9  # of matrices that are declared positive, relative to their diagonal


def size(payload: Payload) -> int:
    """Return a message's size in bytes, serialised: the arrays alone, since the declaration and the size fix the rest."""
    total = 0
    for array in payload.values() if isinstance(payload, dict) else ():
        if isinstance(array, _ndarray):
            total += array.nbytes
    return total


def declared_size(declaration: Declaration | None, length: int = 1) -> int:
    """Return the size in bytes of a declared message, with `length` where a length varies; 0 without a declaration."""
    fields = (declaration or {}).values()
    return sum(math.prod(_shape(field, length)) * np.dtype(field.dtype).itemsize for field in fields)


def sizer(declaration: Declaration | None, more: int = 0) -> Callable[[Payload], int]:
    """Return the function that counts a message's bytes plus `more`; for a fixed length it does not read the message."""
    if varies(declaration):
        return size if not more else lambda payload: size(payload) + more
    fixed = declared_size(declaration) + more
    return lambda payload: fixed


def varies(declaration: Declaration | None) -> bool:
    """Check whether messages differ in length."""
    return any(None in field.shape for field in (declaration or {}).values())


def _shape(field: Field, length: int) -> tuple[int, ...]:
    return tuple(length if size is None else size for size in field.shape)


def _length(size: int, declaration: Declaration) -> int:
    """Return the variable length of a serialised message of `size` bytes; ValueError if no length results in that size."""
    if not varies(declaration):
        return 1
    least = declared_size(declaration, 0)
    length, rest = divmod(size - least, declared_size(declaration, 1) - least)
    if rest or not 0 <= length <= longest(declaration):
        raise ValueError(f"message of {size} bytes does not match any length of its variable fields")
    return length


def longest(declaration: Declaration) -> int:
    """Return the largest variable length in a message."""
    return min((field.longest for field in declaration.values() if None in field.shape), default=0)


def encode(payload: Payload, declaration: Declaration) -> bytes:
    """Serialise a message: its arrays in the order of the declaration, little-endian, without padding."""
    return b"".join(
        np.ascontiguousarray(payload[name], dtype=np.dtype(field.dtype).newbyteorder("<")).tobytes()
        for name, field in declaration.items()
    )


def decode(data: bytes, declaration: Declaration) -> Payload:
    """Read a serialised message; ValueError when its length is not the declared one."""
    arrays, place, length = {}, 0, _length(len(data), declaration)
    for name, field in declaration.items():
        dtype = np.dtype(field.dtype).newbyteorder("<")
        shape = _shape(field, length)
        count = math.prod(shape)
        if place + count * dtype.itemsize > len(data):
            raise ValueError(f"message of {len(data)} bytes ends inside field '{name}'")
        arrays[name] = np.frombuffer(data, dtype, count, place).astype(field.dtype).reshape(shape)
        place += count * dtype.itemsize
    if place != len(data):
        raise ValueError(f"message of {len(data)} bytes, but {place} bytes are declared")
    return arrays


def fault(payload: object, declaration: Declaration, most: float = math.inf) -> str | None:
    """Return the fault of a payload, or None if it is as declared and no number of it is larger than `most`."""
    # Exact types only: a subclass answers every question below by code of its sender.
    if type(payload) is not dict:
        return f"payload is a {_shown(type(payload).__name__)}, not named arrays"
    if len(payload) != len(declaration) or not all(type(name) is str and name in declaration for name in payload):
        return _names(payload, declaration)
    length: int | None = None
    for name, field in declaration.items():
        array = payload[name]
        if type(array) is not _ndarray:
            return f"field '{name}' is a {_shown(type(array).__name__)}, not an array"
        if array.dtype != _dtype(field.dtype):
            return f"field '{name}' is {array.dtype}, declared {field.dtype}"
        if array.shape != field.shape:
            if len(array.shape) != len(field.shape) or None not in field.shape:
                return _wrong_shape(name, array, field)
            length = array.shape[field.shape.index(None)] if length is None else length
            if array.shape != _shape(field, length):
                return _wrong_shape(name, array, field)
            if length > field.longest:
                return f"field '{name}' has length {length}, but at most {field.longest} is allowed"
        # A finite sum of squares shows it at a third of the price; one that is too large shows nothing.
        total = vdot(array, array)
        if not (isfinite(total) and total <= most * most) and (wrong := _too_large(array, field, most)):
            return f"field '{name}' contains a value that is {wrong}"
        if field.positive and not _is_positive(array):
            return f"field '{name}' is not a symmetric positive semi-definite matrix, as declared"
    return None


@dataclass(slots=True)
class _Checked:
    """A field that is a vector of known length; if it `is_short`, its sum of squares is computed without an array."""

    name: str
    dtype: Any
    shape: tuple[int | None, ...]
    is_short: bool


def checker(declaration: Declaration, most: float = math.inf) -> Callable[[object], str | None]:
    """Return the function payload -> `fault`, which is fastest for vectors that are as declared."""
    bound = most * most
    if not all(len(field.shape) == 1 and field.shape[0] is not None for field in declaration.values()):
        return lambda payload: fault(payload, declaration, most)
    fields = []
    for name, field in declaration.items():
        dtype = np.dtype(field.dtype)
        is_short = dtype == np.float64 and declared_size({name: field}) <= 8 * _FEW
        fields.append(_Checked(name, dtype, field.shape, is_short))

    def check(payload: object) -> str | None:
        if type(payload) is not dict or len(payload) != len(fields):
            return fault(payload, declaration, most)
        for field in fields:
            array, dtype, is_short = payload.get(field.name), field.dtype, field.is_short
            if type(array) is not _ndarray or (array.dtype is not dtype and array.dtype != dtype):
                return fault(payload, declaration, most)
            if array.shape != field.shape:
                return fault(payload, declaration, most)
            # See `fault`, of which this is the greater part; of few numbers the length costs a third.
            total = hypot(*array.tolist()) if is_short else float(vdot(array, array))
            if not total <= (most if is_short else bound) or total == math.inf:
                return fault(payload, declaration, most)
        return None

    return check


def plain_fields(declared: Declaration) -> PlainFields:
    """Return type and shape of each declared field, of which none is a matrix that must be positive."""
    if any(field.positive for field in declared.values()):
        return None
    return {name: (np.dtype(field.dtype), field.shape) for name, field in declared.items()}


def are_sound(payload: Mapping[str, np.ndarray[Any, Any]], fields: PlainFields, most: float = math.inf) -> bool:
    """Check whether payloads `(k, ...)` are as declared, where that is easily seen, and no number is larger than `most`."""
    if fields is None or payload.keys() != fields.keys():
        return False
    for name, (dtype, shape) in fields.items():
        array = payload[name]
        if array.dtype != dtype or array.shape[1:] != shape:
            return False
        if dtype.kind == "f" and not (isfinite(total := vdot(array, array)) and total <= most * most):
            return False
    return True


def _is_positive(matrix: np.ndarray[Any, Any]) -> bool:
    """Check whether a matrix is symmetric and positive semi-definite up to rounding, scaled to a diagonal of ones."""
    size = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    size[size == 0.0] = 1.0
    scaled = matrix / size / size[:, None]
    if not np.abs(scaled - scaled.T).max(initial=0.0) <= ROUNDING:
        return False
    try:
        np.linalg.cholesky(scaled + ROUNDING * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        return False
    return True


def _too_large(array: np.ndarray[Any, Any], field: Field, most: float) -> str | None:
    finite = np.isfinite(array)
    if field.finite and not finite.all():
        return "not finite"
    return f"too large: beyond {most:g}" if float(np.abs(array[finite]).max(initial=0.0)) > most else None


def _wrong_shape(name: str, array: np.ndarray[Any, Any], field: Field) -> str:
    varying = " with one common variable length" if None in field.shape else ""
    return f"field '{name}' has shape {array.shape}, declared {field.shape}{varying}"


_dtype = cache(np.dtype)  # to compare with a name would parse it for every message


def _names(came: Mapping[object, object], declared: Declaration) -> str:
    for name in came:
        if type(name) is not str:
            return f"name of a field is a {_shown(type(name).__name__)}, not a string"
        if name not in declared:
            return f"undeclared field '{_shown(name)}'"
    return f"field '{min(declared.keys() - came.keys())}' is missing"


def named(error: Exception) -> str:
    """Return an exception that a message has caused in few words, since its text may repeat the sender's."""
    words = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {_shown(words, 120)}" if words else type(error).__name__


def _shown(words: str, most: int = _FEW_WORDS) -> str:
    """Return a sender's text in a form that is safe for a log: short, printable ASCII."""
    return ascii(words[:most])[1:-1]
