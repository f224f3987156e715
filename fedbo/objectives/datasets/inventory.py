"""Records of a public data set: its files, sizes, sha256, addresses, licence, and the paper to cite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MadeFrom:
    """The recipe of a file that is not published.

    archive: the published archive. A user without a network may put it, under this name, into the file's folder.
    make: `make(archive, target)` writes the file, or raises ValueError for another archive.
    digest: `digest(path)` is a sha256 over the contents, since the same contents may be packed in other bytes.
    """

    archive: str
    make: Callable[[Path, Path], None]
    digest: Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set.

    name: its name.
    size: its size in bytes.
    sha256: its sha256; of a `gzipped` file that of its content, which may be packed in other bytes.
    address: its public address.
    member: the member of a zip or tar at the address.
    made_from: the recipe of a file without a publisher.
    by_hand: how to make the file from the published data; such a file is never fetched.
    """

    name: str
    size: int
    sha256: str
    address: str
    member: str | None = None
    made_from: MadeFrom | None = None
    gzipped: bool = False
    by_hand: str = ""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published set of files with its licence and the paper to cite."""

    name: str
    files: tuple[DataFile, ...]
    licence: str
    citation: str
