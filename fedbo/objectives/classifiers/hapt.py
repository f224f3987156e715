"""The raw smartphone recordings of UCI's data set 341 (HAPT), as the sensor's counts: reading, conversion, and check.

UCI publishes decimal text, one file for each recording and sensor. This module stores the integer counts in one file: a count
is value / scale, rounded, and the text differs from it by less than 1/600 of a count. Nobody publishes that file, so it is made
from UCI's archive on the user's machine. Its sha256 is computed over the arrays, not over the file. The public address was not
reachable during development: the layout follows its README, and a test makes a small archive of it. The sha256 decides whether
the conversion of the real archive is right; otherwise it is refused.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

ACC_SCALE = 1.0 / 720.0  # g a count
GYRO_SCALE = 0.0003054326225956446  # rad/s a count: 0.0175 degrees a second
UNLABELLED = -1
NAME = re.compile(r"(?:^|/)RawData/acc_exp(\d+)_user(\d+)\.txt$")


@dataclass(frozen=True, eq=False)
class Recordings:
    """All recordings, one after the other: counts `acc (n, 3)` and `gyro (n, 3)`, and the activity `label (n,)` of each sample.

    Recording k is of `recording_subject[k]` (1 … 30) and has the samples `recording_offset[k]` up to `recording_offset[k + 1]`.
    """

    acc: npt.NDArray[np.int16]
    gyro: npt.NDArray[np.int16]
    label: npt.NDArray[np.int8]
    recording_offset: npt.NDArray[np.int32]
    recording_subject: npt.NDArray[np.int8]


def read(path: Path) -> Recordings:
    """Read the file that `make` writes; ValueError when it is not one."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return Recordings(**{one.name: stored[one.name] for one in fields(Recordings)})
    except (OSError, KeyError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as failure:
        raise ValueError(f"{path} contains no recordings: {failure}") from failure


def digest(path: Path) -> str:
    """Return the sha256 over the arrays of such a file, each with its name, type and shape; "unreadable" for other files."""
    try:
        recordings = read(path)
    except ValueError:
        return "unreadable"
    total = hashlib.sha256()
    for one in fields(Recordings):
        array = np.ascontiguousarray(getattr(recordings, one.name))
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        total.update(f"{one.name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def make(archive: Path, target: Path) -> None:
    """Make the file of counts at `target` from UCI's zip; ValueError when the zip holds no whole set of recordings."""
    try:
        with zipfile.ZipFile(archive) as outer:
            inner = _nested(outer)
            recordings = _gathered(inner or outer)
            if inner:
                inner.close()
    except (zipfile.BadZipFile, KeyError, IndexError) as failure:
        raise ValueError(f"{archive.name} is not UCI's archive of recordings: {failure}") from failure
    arrays = {one.name: getattr(recordings, one.name) for one in fields(Recordings)}
    with target.open("wb") as stream:
        np.savez_compressed(stream, **arrays, acc_scale=ACC_SCALE, gyro_scale=GYRO_SCALE, rate_hz=50.0)


def _nested(archive: zipfile.ZipFile) -> zipfile.ZipFile | None:
    """Open the zip within a zip, as UCI packs some of its sets."""
    within = [name for name in archive.namelist() if name.endswith(".zip")]
    return zipfile.ZipFile(archive.open(within[0])) if len(within) == 1 else None


def _gathered(archive: zipfile.ZipFile) -> Recordings:
    found = sorted((int(m[1]), int(m[2]), name) for name in archive.namelist() if (m := NAME.search(name)))
    if not found:
        raise ValueError(f"no RawData/acc_expXX_userYY.txt in {Path(str(archive.filename)).name}")
    acc = [_counts(archive, name, ACC_SCALE) for _, _, name in found]
    gyro = [_counts(archive, name.replace("RawData/acc_", "RawData/gyro_"), GYRO_SCALE) for _, _, name in found]
    spans = _table(archive, found[0][2].rpartition("/")[0] + "/labels.txt").astype(np.int64)
    label = [_labels(spans[spans[:, 0] == experiment], len(a)) for (experiment, _, _), a in zip(found, acc, strict=True)]
    return Recordings(
        np.concatenate(acc),
        np.concatenate(gyro),
        np.concatenate(label),
        np.cumsum([0, *map(len, acc)]).astype(np.int32),
        np.array([user for _, user, _ in found], dtype=np.int8),
    )


def _table(archive: zipfile.ZipFile, name: str) -> npt.NDArray[np.float64]:
    with archive.open(name) as stream:
        return np.loadtxt(stream, ndmin=2)


def _counts(archive: zipfile.ZipFile, name: str, scale: float) -> npt.NDArray[np.int16]:
    return np.rint(_table(archive, name) / scale).astype(np.int16)


def _labels(spans: npt.NDArray[np.int64], samples: int) -> npt.NDArray[np.int8]:
    """Label the samples of one recording by rows (experiment, user, activity, first sample, last sample), counted from 0."""
    label = np.full(samples, UNLABELLED, dtype=np.int8)
    for activity, first, last in spans[:, 2:]:
        label[first : last + 1] = activity
    return label
