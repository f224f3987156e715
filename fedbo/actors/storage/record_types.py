"""Record types of checkpoints: named tuples and dataclasses, found by name and recreated from their fields."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

from fedbo.settings.errors import FedboError


class CheckpointError(FedboError, ValueError):
    """A value that a checkpoint cannot hold, or a file that this version cannot read."""


class RecordType(NamedTuple):
    """A named tuple class or a dataclass.

    - `kind`: the class; `names`: its fields.
    - `head`: bytes that name both in a checkpoint.
    - `read`: returns the values of an instance's fields.
    """

    kind: type
    names: tuple[str, ...]
    head: bytes
    read: Callable[[Any], Sequence[Any]]

    def values(self, value: Any) -> Sequence[Any]:
        """Return the values of an instance's fields; CheckpointError when a field is missing or it has other attributes."""
        for name in getattr(value, "__dict__", ()):
            if name not in self.names:
                raise CheckpointError(f"has {name!r} besides its fields")
        try:
            return self.read(value)
        except AttributeError as error:
            raise CheckpointError(f"has no value in its field {error.name!r}") from None

    def make(self, values: Sequence[Any]) -> Any:
        """Create an instance without a call of its class, so that only this code runs."""
        if issubclass(self.kind, tuple):
            return tuple.__new__(self.kind, values)
        value = object.__new__(self.kind)
        for name, held in zip(self.names, values, strict=True):
            object.__setattr__(value, name, held)
        return value


def is_record(kind: type) -> bool:
    """Return whether a class is a named tuple class or a dataclass."""
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple))


def record_of(kind: type) -> RecordType:
    """Return the record type of a class; CheckpointError when instances cannot be recreated from their fields."""
    read: Callable[[Any], Sequence[Any]] = tuple
    if dataclasses.is_dataclass(kind):
        names = tuple(each.name for each in dataclasses.fields(kind))
        own = [vars(base).get("__slots__", ()) for base in kind.__mro__]
        slots = {slot for some in own for slot in ((some,) if isinstance(some, str) else some)}
        if slots - {*names, "__weakref__", "__dict__"}:
            raise CheckpointError("has slots besides its fields")
        try:
            object.__new__(kind)
        except TypeError as error:  # an abstract class, or one that is made from a list, a number, an exception
            raise CheckpointError(f"cannot be constructed from its fields alone ({error})") from None
        read = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]
    else:
        names = tuple(getattr(kind, "_fields", ()))
    if hasattr(kind, "__del__"):
        raise CheckpointError("defines __del__, which runs code when it is deleted")
    if find_class(kind.__module__, kind.__qualname__) is not kind:
        raise CheckpointError("cannot be imported by its name; define it at the top level of a module")
    return RecordType(kind, names, head_of(kind, names), read)


def head_of(kind: type, names: Sequence[str]) -> bytes:
    """Return the bytes that name a class and fields in a checkpoint."""
    return "\0".join((kind.__module__, kind.__qualname__, *names)).encode()


def find_class(module: str, name: str) -> type | None:
    """Return the class of a module and qualified name, or None; only modules of this package are imported for it."""
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
