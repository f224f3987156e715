"""MNIST's handwritten digits with their writers: its images, and the extended labels of QMNIST (Yadav and Bottou 2019).

QMNIST found each of MNIST's digits again in NIST's Special Database 19, and with it the writer. Row i of the labels belongs
to image i; the test part has 60,000 rows for its 10,000 images, which the first 10,000 belong to.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbo.objectives.datasets.data import DataDamagedError

Labels = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]

FILES = {
    "train": ("train-images-idx3-ubyte.gz", "qmnist-train-labels-idx2-int.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "qmnist-test-labels-idx2-int.gz"),
}
SIDE = 28  # pixels
COLUMNS = 8  # of a row of labels: digit, series, writer, and five that say where in NIST's database the image is
KINDS: dict[int, np.dtype[Any]] = {0x08: np.dtype(">u1"), 0x0C: np.dtype(">i4")}  # of the IDX format, those that there are here


@dataclass(frozen=True, eq=False)
class Handwriting:
    """Images `(n, 28, 28)` of 0 (paper) to 255 (ink), and for each its digit, NIST series (hsf) and writer, all `(n,)`.

    Series 0 was written by employees of the US Census Bureau, series 4 by high-school students.
    """

    images: Pixels
    digit: Labels
    series: Labels
    writer: Labels


def read(folder: Path, part: Literal["train", "test"]) -> Handwriting:
    """Read one part of the data set from its folder; DataDamagedError when a file is no whole IDX file of the right size."""
    pictures, marks = (folder / name for name in FILES[part])
    images, label = _idx(pictures, 0x08, (SIDE, SIDE)), _idx(marks, 0x0C, (COLUMNS,)).astype(np.int64)
    if len(label) < len(images) or (part == "train" and len(label) > len(images)):
        raise DataDamagedError(f"{marks} has {len(label)} rows of labels for the {len(images)} images of {pictures.name}")
    digit, series, writer = label[: len(images), :3].T
    if len(digit) and not 0 <= digit.min() <= digit.max() <= 9:
        raise DataDamagedError(f"{marks}: the first column has digits from {digit.min()} to {digit.max()}, not 0 to 9")
    return Handwriting(images, digit, series, writer)


def _idx(path: Path, kind: int, row: tuple[int, ...]) -> npt.NDArray[Any]:
    """Read a gzipped IDX file: 0, 0, the kind of its numbers, how many axes, their lengths (big-endian), the numbers."""
    content = _unpacked(path)
    magic = bytes([0, 0, kind, 1 + len(row)])
    if content[:4] != magic:
        raise DataDamagedError(
            f"{path} begins with {content[:4].hex() or 'nothing'}, not with {magic.hex()}, so it is not the expected IDX file"
        )
    head = 4 + 4 * (1 + len(row))
    if len(content) < head:
        raise DataDamagedError(f"{path} ends after {len(content)} bytes, but its header has {head}")
    count, *found = struct.unpack(f">{1 + len(row)}I", content[4:head])
    if tuple(found) != row:
        raise DataDamagedError(f"{path} has rows of shape {tuple(found)}, not {row}")
    due = head + count * math.prod(row) * KINDS[kind].itemsize
    if len(content) != due:
        raise DataDamagedError(f"{path} has {len(content)} bytes unpacked, but its header, of {count} rows, requires {due}")
    numbers: npt.NDArray[Any] = np.frombuffer(content, KINDS[kind], offset=head)
    return numbers.reshape(count, *row)


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as failure:
        raise DataDamagedError(f"{path} is not a complete gzip file: {failure}") from failure
