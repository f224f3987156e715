"""Public data sets by name: their location, how to fetch them, and the check of their integrity.

The search order is the folder that the environment names (`FEDBO_DATA`), the user's cache, and last the publisher. Every file
is checked against its sha256, once for each process and state of the file. Files without a publisher are made here from
published ones.

A folder of objectives declares its data sets as `DATA_SETS` in its module `data_sets.py`, which is found at run time.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import IO, Literal
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import platformdirs

from fedbo.objectives.datasets.inventory import DataFile, DataSet
from fedbo.settings.errors import FedboError, unknown
from fedbo.settings.rooms import package_folders

CHUNK = 1 << 20
PATIENCE = 30  # seconds without a byte before a publisher's server counts as absent


class DataMissingError(FedboError, FileNotFoundError):
    """A data set is in no known place and could not be fetched."""


class DataDamagedError(FedboError, ValueError):
    """A file of a data set is not the published one, bit for bit."""


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """The state of one data set on this machine; `where` is its folder when found whole."""

    name: str
    files: tuple[str, ...]
    size: int
    where: Path | None
    state: Literal["found", "missing", "damaged"]
    licence: str
    citation: str


def _declared() -> dict[str, DataSet]:
    """Return the data sets of all folders of objectives, sorted by name."""
    folders = [folder for folder, files in package_folders(Path(__file__).parents[1]) if "data_sets.py" in files]
    modules = [import_module(f"fedbo.objectives.{folder.name}.data_sets") for folder in folders]
    return dict(sorted((name, data_set) for module in modules for name, data_set in module.DATA_SETS.items()))


DATA_SETS = _declared()


def locate(name: str) -> Path:
    """Return the checked folder with every file of a data set; fetch the set if it is missing.

    KeyError for an unknown name, DataMissingError when the set is not here and cannot be fetched, DataDamagedError when a file
    is not the published one.
    """
    data_set = _named(name)
    if found := _found(data_set):
        return found
    if not _may_fetch.get():
        raise DataMissingError(f"the data set {name!r} is not on this machine; fetch it with: fedbo data fetch {name}")
    return _fetched(data_set)


def fetch(name: str, source: str | None = None) -> Path:
    """Fetch a data set into the user's cache unless it is found whole, and return its folder.

    `source` is where to take it from instead of its publisher: the file itself or the published archive of it, a folder with
    these, or the address of one. Raises: as `locate`.
    """
    data_set = _named(name)
    with suppress(DataDamagedError):  # a damaged one in the cache is replaced
        if found := _found(data_set):
            return found
    _fetched(data_set, source)
    return locate(name)


_may_fetch: ContextVar[bool] = ContextVar("may fetch", default=True)


@contextmanager
def without_fetching() -> Iterator[None]:
    """Disable fetching, so that only data on this machine is used."""
    token = _may_fetch.set(False)
    try:
        yield
    finally:
        _may_fetch.reset(token)


def inventory() -> list[InventoryRow]:
    """List all data sets and where each was found, without fetching any."""
    return [_row(data_set) for data_set in DATA_SETS.values()]


def places(name: str) -> list[Path]:
    """Return the folders in which a data set is looked for, in order; the last one is in the user's cache."""
    own = os.environ.get("FEDBO_DATA")
    return [Path(own) / name, cache() / name] if own else [cache() / name]


def cache() -> Path:
    """Return fedbo's folder in the user's cache, which need not exist."""
    return Path(platformdirs.user_cache_dir("fedbo"))


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes, computed once for each process and state of the file."""
    return _digest(path, _of_bytes)


def _row(data_set: DataSet) -> InventoryRow:
    state: Literal["found", "missing", "damaged"]
    try:
        where = _found(data_set)
        state = "found" if where else "missing"
    except DataDamagedError:
        where, state = None, "damaged"
    names, size = tuple(file.name for file in data_set.files), sum(file.size for file in data_set.files)
    return InventoryRow(
        data_set.name, names, size, where=where, state=state, licence=data_set.licence, citation=data_set.citation
    )


def _named(name: str) -> DataSet:
    if name in DATA_SETS:
        return DATA_SETS[name]
    raise KeyError(unknown("data set", name, DATA_SETS))


def _found(data_set: DataSet) -> Path | None:
    for folder in places(data_set.name):
        if all((folder / file.name).is_file() for file in data_set.files):
            for file in data_set.files:
                _check(folder / file.name, file)
            return folder
    return None


def _check(path: Path, file: DataFile) -> None:
    found = _digest(path, file.made_from.digest if file.made_from else _of_content if file.gzipped else _of_bytes)
    if found != file.sha256:
        raise DataDamagedError(
            f"{path} is not the published {file.name}: expected sha256 {file.sha256}, found {found}{_sizes(path, file)}; "
            f"delete it and fetch it again from {file.address}"
        )


def _sizes(path: Path, file: DataFile) -> str:
    """Return both sizes where they differ; others may pack the same content in other bytes."""
    size = path.stat().st_size
    return "" if file.gzipped or file.made_from or size == file.size else f" ({size:,} bytes instead of {file.size:,})"


def _digest(path: Path, of: Callable[[Path], str]) -> str:
    state = path.stat()
    return _digest_once(path, of, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_once(path: Path, of: Callable[[Path], str], size: int, modified: int) -> str:
    return of(path)


def _of_bytes(path: Path) -> str:
    with path.open("rb") as stream:
        return _sha256(stream)


def _of_content(path: Path) -> str:
    try:
        with gzip.open(path) as stream:
            return _sha256(stream)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return "no complete gzip file"


def _sha256(stream: IO[bytes] | gzip.GzipFile) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _fetched(data_set: DataSet, source: str | None = None) -> Path:
    folder = cache() / data_set.name
    folder.mkdir(parents=True, exist_ok=True)
    for file in data_set.files:
        # several processes may fetch at once: each in its own folder, and the last step is a rename
        with tempfile.TemporaryDirectory(dir=folder) as workshop:
            fresh = _download(data_set, file, Path(workshop), source)
            _check(fresh, file)
            fresh.replace(folder / file.name)
    return folder


def _download(data_set: DataSet, file: DataFile, workshop: Path, source: str | None) -> Path:
    if source is None:
        got = _archive(data_set, file) or _retrieved(data_set, file, workshop)
    else:
        got = _taken(source, data_set, file, workshop)
        if _is(got, file):  # as it is, and no archive of it
            return got
    if file.made_from:
        try:
            file.made_from.make(got, workshop / "made")
        except ValueError as failure:
            raise DataDamagedError(f"{file.name} cannot be built from the download of {file.address}: {failure}") from failure
        return workshop / "made"
    return _unpacked(got, file, workshop) if file.member else got


def _archive(data_set: DataSet, file: DataFile) -> Path | None:
    """Return the archive that a file is made from, if the user has provided it."""
    own = [folder / file.made_from.archive for folder in places(data_set.name)] if file.made_from else []
    return next((path for path in own if path.is_file()), None)


def _taken(source: str, data_set: DataSet, file: DataFile, workshop: Path) -> Path:
    """Copy a file, or its archive, from a place that a user names."""
    scheme = urlsplit(source).scheme
    if scheme in ("http", "https"):
        return _retrieved(data_set, file, workshop, f"{source}{file.name}" if source.endswith("/") else source)
    place = Path(url2pathname(urlsplit(source).path)) if scheme == "file" else Path(source)
    archive = file.made_from.archive if file.made_from else unquote(file.address.rpartition("/")[2])
    names = dict.fromkeys((file.name, archive))
    found = [place / name for name in names if (place / name).is_file()] if place.is_dir() else [place]
    if not found or not found[0].is_file():
        held = f"contains no {' and no '.join(names)}" if place.is_dir() else "is not a file"
        raise DataMissingError(f"'{source}' {held}; pass a file, a folder, or an address that starts with http:// or https://")
    return Path(shutil.copyfile(found[0], workshop / "taken"))


def _is(path: Path, file: DataFile) -> bool:
    try:
        _check(path, file)
    except (DataDamagedError, ValueError, OSError):  # the digest of arrays fails on a file that is an archive
        return False
    return True


def _retrieved(data_set: DataSet, file: DataFile, workshop: Path, address: str = "") -> Path:
    if file.by_hand and not address:
        raise DataMissingError(_how_to_get(data_set, file, None))
    import pooch  # only here: it waits for what is needed to fetch by any protocol, and most runs fetch nothing

    pooch.get_logger().setLevel("WARNING")
    try:
        # the hash of an archive says nothing of its member, so the check is ours, after unpacking
        got = pooch.retrieve(
            address or file.address,
            known_hash=None,
            path=workshop,
            fname="download",
            downloader=pooch.HTTPDownloader(timeout=PATIENCE),
        )
    except (OSError, ValueError) as failure:
        raise DataMissingError(_how_to_get(data_set, file, failure)) from failure
    return Path(got)


def _unpacked(archive: Path, file: DataFile, workshop: Path) -> Path:
    assert file.member is not None
    try:
        with _member(archive, file.member) as source, (workshop / "member").open("wb") as target:
            left = file.size + 1  # a byte too many is enough for the check, however much an archive would unpack to
            while left and (some := source.read(min(left, 2**20))):
                target.write(some)
                left -= len(some)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, KeyError) as failure:
        raise DataDamagedError(f"the download of {file.address} contains no {file.member}: {failure}") from failure
    return workshop / "member"


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    if tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar, _regular(tar.extractfile(name), name) as source:
            yield source
    else:
        with zipfile.ZipFile(archive) as stored, stored.open(name) as source:
            yield source


def _regular(source: IO[bytes] | None, name: str) -> IO[bytes]:
    if source is None:
        raise KeyError(f"{name} is not a file")
    return source


def _how_to_get(data_set: DataSet, file: DataFile, failure: Exception | None) -> str:
    within = f" (the member {file.member} of that archive)" if file.member else ""
    name = file.made_from.archive if file.made_from else file.name
    of = "sha256 of its content" if file.gzipped else "sha256"
    rest = f", from which {file.name} is made" if file.made_from else f", {of} {file.sha256}"
    why = "it cannot be fetched" if failure is None else f"could not be fetched ({type(failure).__name__})"
    rest += f": {file.by_hand}" if file.by_hand else ""
    return (
        f"the data set {data_set.name!r} is not on this machine and {why}. "
        f"Get {name} from {file.address}{within}{rest}, and put it at "
        f"{cache() / data_set.name / name}, or into a folder {data_set.name!r} whose parent is set by the "
        f"environment variable FEDBO_DATA, or run: fedbo data fetch {data_set.name} --from FILE"
    )
