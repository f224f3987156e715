"""The original 561 features of UCI HAR (data set 240), for users who have them: read, and checked against the published ids.

Only the small files of the set are among our data sets (`uci_har_meta`); the feature matrices were never at hand here, so that
their sha256 is not known. A user's copy must have the published subjects and labels, bit for bit, and a row of 561
finite numbers for each of them. `FeatureTable` keeps features of all subjects in
the user's cache: many processes need them, and it takes time to compute them.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedbo.objectives.datasets.data import DATA_SETS, DataDamagedError, DataMissingError, cache, places, sha256_of
from fedbo.settings.errors import warn_caller


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Rows of all subjects: `features (n, m)`, the class `label (n,)` from 0, and whose row it is, `subject (n,)` from 1."""

    features: npt.NDArray[np.float32]
    label: npt.NDArray[np.int64]
    subject: npt.NDArray[np.int64]

    def of(self, subject: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return one subject's features and labels."""
        own = self.subject == subject
        return self.features[own], self.label[own]


def kept(name: str, make: Callable[[], FeatureTable]) -> FeatureTable:
    """Return the table `name` from the user's cache, or make and store it; the name must contain all inputs of the table.

    Several processes may do so at once: each writes a separate file, and the last step is a rename. A damaged file is made
    again. If the cache is not writable, a RuntimeWarning is issued, and the table is for this process only.
    """
    path = cache() / "features" / f"{name}.npz"
    table = _read(path)
    if table is not None:
        return table
    table = make()
    try:
        _write(path, table)
    except OSError as failure:
        told = f"the features {name} could not be stored at {path} ({failure}); every process will compute them"
        warn_caller(told, RuntimeWarning)
    return table


def _read(path: Path) -> FeatureTable | None:
    if not path.is_file():
        return None
    try:
        # a zip has a checksum for each of its members, which is compared when they are read
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return FeatureTable(stored["features"], stored["label"], stored["subject"])
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile):
        return None  # nothing is lost: it is only a copy of what can be computed


def _write(path: Path, table: FeatureTable) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as workshop:
        fresh = Path(workshop) / path.name
        np.savez(fresh, features=table.features, label=table.label, subject=table.subject)
        fresh.replace(path)


FEATURES = 561
PARTS = ("train", "test")
FILES = tuple(f"{kind}_{part}.txt" for part in PARTS for kind in ("X", "y", "subject"))
ZIP = "UCI HAR Dataset.zip"
ADDRESS = "https://archive.ics.uci.edu/dataset/240"


def original() -> FeatureTable:
    """Return the original features of all subjects, the training part before the test part.

    They are in a folder `uci_har`, as six text files or as "UCI HAR Dataset.zip". DataMissingError without such a folder,
    DataDamagedError when its contents are not the published set.
    """
    files = _present()
    digest = hashlib.sha256("".join(sha256_of(path) for path in files).encode()).hexdigest()
    return _kept(tuple(files), digest)


@lru_cache(maxsize=1)
def _kept(files: tuple[Path, ...], digest: str) -> FeatureTable:
    return kept(f"uci_har-{digest}", lambda: _table(_reader(files)))


def _present() -> list[Path]:
    for folder in places("uci_har"):
        for files in ([folder / name for name in FILES], [folder / ZIP]):
            if all(path.is_file() for path in files):
                return files
    raise DataMissingError(
        f"the original UCI HAR features are not on this machine: get {ZIP!r} from {ADDRESS} and put it, or its six files "
        f"{', '.join(FILES)}, into {places('uci_har')[-1]}, or into a folder 'uci_har' whose parent is set by the "
        "environment names as FEDBO_DATA; features = 'recomputed' needs none of them"
    )


def _reader(files: tuple[Path, ...]) -> Callable[[str], bytes]:
    """Return a function that reads one of the six files by name."""
    folder = files[0].parent
    return (lambda name: (folder / name).read_bytes()) if len(files) > 1 else (lambda name: _member(files[0], name))


def _member(archive: Path, name: str) -> bytes:
    part = name.removesuffix(".txt").rpartition("_")[2]
    try:
        with zipfile.ZipFile(archive) as stored:
            return stored.read(f"UCI HAR Dataset/{part}/{name}")
    except (zipfile.BadZipFile, KeyError) as failure:
        raise DataDamagedError(f"{archive} is not the published file: {failure}; download it again from {ADDRESS}") from failure


def _table(read: Callable[[str], bytes]) -> FeatureTable:
    label, subject = (np.concatenate([_ids(read, f"{kind}_{part}.txt") for part in PARTS]) for kind in ("y", "subject"))
    features = [_matrix(read, f"X_{part}.txt", len(_ids(read, f"y_{part}.txt"))) for part in PARTS]
    return FeatureTable(np.concatenate(features), label - 1, subject)


def _ids(read: Callable[[str], bytes], name: str) -> npt.NDArray[np.int64]:
    content = read(name)
    (expected,) = (file.sha256 for file in DATA_SETS["uci_har_meta"].files if file.name == name)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DataDamagedError(f"{name} is not the published file: expected sha256 {expected}, found {found}; see {ADDRESS}")
    return np.loadtxt(io.BytesIO(content), dtype=np.int64)


def _matrix(read: Callable[[str], bytes], name: str, rows: int) -> npt.NDArray[np.float32]:
    try:
        matrix = np.loadtxt(io.BytesIO(read(name)), dtype=np.float32, ndmin=2)
    except ValueError as failure:
        raise DataDamagedError(f"{name} is not a table of numbers: {failure}; see {ADDRESS}") from failure
    if matrix.shape != (rows, FEATURES) or not np.isfinite(matrix).all():
        raise DataDamagedError(
            f"{name} is not the published file: {rows} rows of {FEATURES} finite numbers were expected, "
            f"but it has {matrix.shape[0]} of {matrix.shape[1]}; see {ADDRESS}"
        )
    return matrix
