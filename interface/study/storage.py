"""Folders on storage that is not a disk of this machine: S3, Google Cloud Storage, HDFS, and whatever else pyarrow reaches."""

from __future__ import annotations

import re
from pathlib import Path

from pyarrow.fs import FileSystem, LocalFileSystem

from fedbo.study.paths import DirectoryError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # with one slash, which is what pathlib leaves of two


def is_remote(folder: str | Path) -> bool:
    """Say whether a folder is given by its address, such as "s3://bucket/folder"."""
    return _SCHEME.match(str(folder)) is not None


def refuse_remote(folder: Path, what: str) -> None:
    """DirectoryError where a folder that is written to is an address."""
    if is_remote(folder):
        words = f"{what} on a disk of this machine; name a folder there, and copy it to the storage when it is complete"
        raise DirectoryError(f"'{folder}': {words}")


def reached(folder: str | Path, filesystem: FileSystem | None = None) -> tuple[FileSystem, str]:
    """Give the filesystem of a folder and its path there; ValueError where an address cannot be read, OSError as it answers."""
    if filesystem is not None:
        return filesystem, str(folder)
    if not is_remote(folder):
        return LocalFileSystem(), str(Path(folder).absolute())
    try:
        found, path = FileSystem.from_uri(str(folder))
        why = "" if path else "names no folder"
    except ValueError as error:
        why = " ".join(str(error).split())[:200]
    if why:
        words = "an address such as s3://bucket/folder, gs://, abfss:// or hdfs:// would do, or a folder of this machine"
        raise ValueError(f"'{folder}': {why}; {words}")
    return found, path
