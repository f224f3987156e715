"""Public data sets by name: where they are looked for, how they are fetched, and the proof that they are whole.

A set is looked for in the folder that the environment names (`FEDBO_DATA`), then in the user's cache, and is fetched
from its publisher last. Every file is checked against its sha256, wherever it was found; the check is done once for
each process and state of the file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Literal

import pooch

from fedbo.objectives.data_sets import DATA_SETS, DataFile, DataSet

CHUNK = 1 << 20
PATIENCE = 30  # seconds without a byte before a publisher's server counts as absent


class DataMissing(FileNotFoundError):
    """A data set is in no known place and could not be fetched."""


class DataDamaged(ValueError):
    """A file of a data set is not the published one, bit for bit."""


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """What is known of one data set on this machine; `where` is its folder when found whole."""

    name: str
    files: tuple[str, ...]
    size: int
    where: Path | None
    state: Literal["found", "missing", "damaged"]
    licence: str
    citation: str


def locate(name: str) -> Path:
    """Give the folder that holds every file of a data set, checked; fetch the set when it is nowhere.

    KeyError for an unknown name, DataMissing when the set is not here and cannot be fetched, DataDamaged when a file
    is not the published one.
    """
    data_set = _named(name)
    return _found(data_set) or _fetched(data_set)


def inventory() -> list[InventoryRow]:
    """List all data sets and where each was found, without fetching any."""
    return [_row(data_set) for data_set in DATA_SETS.values()]


def _row(data_set: DataSet) -> InventoryRow:
    state: Literal["found", "missing", "damaged"]
    try:
        where = _found(data_set)
        state = "found" if where else "missing"
    except DataDamaged:
        where, state = None, "damaged"
    names, size = tuple(file.name for file in data_set.files), sum(file.size for file in data_set.files)
    return InventoryRow(data_set.name, names, size, where, state, data_set.licence, data_set.citation)


def _named(name: str) -> DataSet:
    if name in DATA_SETS:
        return DATA_SETS[name]
    close = get_close_matches(name, DATA_SETS, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise KeyError(f"no data set {name!r}; {guess}there are: {', '.join(sorted(DATA_SETS))}")


def _places(name: str) -> list[Path]:
    own = os.environ.get("FEDBO_DATA")
    return [Path(own) / name, _cache() / name] if own else [_cache() / name]


def _cache() -> Path:
    return Path(pooch.os_cache("fedbo"))


def _found(data_set: DataSet) -> Path | None:
    for folder in _places(data_set.name):
        if all((folder / file.name).is_file() for file in data_set.files):
            for file in data_set.files:
                _check(folder / file.name, file)
            return folder
    return None


def _check(path: Path, file: DataFile) -> None:
    state = path.stat()
    found = _sha256(path, state.st_size, state.st_mtime_ns)
    if found != file.sha256:
        raise DataDamaged(
            f"{path} is not the published {file.name}: expected sha256 {file.sha256}, found {found}; "
            f"delete it and fetch it again from {file.address}"
        )


@lru_cache(maxsize=256)
def _sha256(path: Path, size: int, modified: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _fetched(data_set: DataSet) -> Path:
    folder = _cache() / data_set.name
    folder.mkdir(parents=True, exist_ok=True)
    for file in data_set.files:
        # several processes may fetch at once: each in its own folder, and the last step is a rename
        with tempfile.TemporaryDirectory(dir=folder) as workshop:
            fresh = _download(data_set, file, Path(workshop))
            _check(fresh, file)
            fresh.replace(folder / file.name)
    return folder


def _download(data_set: DataSet, file: DataFile, workshop: Path) -> Path:
    pooch.get_logger().setLevel("WARNING")
    try:
        # the hash of a zip says nothing of its member, so the check is ours, after unpacking
        got = pooch.retrieve(
            file.address, known_hash=None, path=workshop, fname="download", downloader=_downloader(file.address)
        )
    except (OSError, ValueError) as failure:
        raise DataMissing(_how_to_get(data_set, file, failure)) from failure
    return _unzipped(Path(got), file, workshop) if file.member else Path(got)


def _downloader(address: str) -> object:
    return pooch.HTTPDownloader(timeout=PATIENCE) if address.startswith("http") else pooch.choose_downloader(address)


def _unzipped(archive: Path, file: DataFile, workshop: Path) -> Path:
    assert file.member is not None
    try:
        with zipfile.ZipFile(archive) as stored, stored.open(file.member) as source:
            with (workshop / "member").open("wb") as target:
                shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError) as failure:
        raise DataDamaged(f"what came from {file.address} has no {file.member} to unpack: {failure}") from failure
    return workshop / "member"


def _how_to_get(data_set: DataSet, file: DataFile, failure: Exception) -> str:
    within = f" (the member {file.member} of that zip)" if file.member else ""
    return (
        f"the data set {data_set.name!r} is not on this machine and could not be fetched ({type(failure).__name__}). "
        f"Get {file.name} from {file.address}{within}, sha256 {file.sha256}, and put it at "
        f"{_cache() / data_set.name / file.name}, or into a folder {data_set.name!r} of your own whose parent the "
        "environment names as FEDBO_DATA"
    )
