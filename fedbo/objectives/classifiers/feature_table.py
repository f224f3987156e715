"""Features of all subjects in one table, kept in the user's cache: many processes need it, and it takes time to compute."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedbo.objectives.datasets.data import cache
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
