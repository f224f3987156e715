"""The names that a study gives: to itself, to algorithms, to groups and to faults."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from fedbo.settings.shown import unfit

MAX_BYTES = 200  # bytes of a name in UTF-8: with a date it is still the name of a folder


def _fit(name: str) -> str:
    """Return a name that fits on one line; ValueError with the remedy otherwise."""
    if not name.strip():
        raise ValueError("must not be empty")
    if (letter := unfit(name)) is not None:
        raise ValueError(f"contains the control character U+{ord(letter):04X}; use a name on one line")
    size = len(name.encode())
    if size > MAX_BYTES:
        raise ValueError(f"has {size} bytes; use a name of at most {MAX_BYTES} bytes")
    return name


def _of_folder(name: str) -> str:
    """Return a name that a folder can have; ValueError with the remedy otherwise."""
    slash = next((letter for letter in name if letter in "/\\"), None)
    if slash is not None:
        raise ValueError(f"holds '{slash}', but a folder is named after it; use '-' instead")
    return name


Name = Annotated[str, Field(min_length=1), AfterValidator(_fit)]
FolderName = Annotated[Name, AfterValidator(_of_folder)]
