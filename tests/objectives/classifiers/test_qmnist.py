"""MNIST with its writers: the published facts, and files that are not what they should be."""

from __future__ import annotations

import gzip
import struct
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from fedbo.objectives.classifiers.qmnist import FILES, Handwriting, read
from fedbo.objectives.datasets.data import DataDamagedError, inventory, locate

NO_DATA = not any(row.name == "qmnist" and row.state == "found" for row in inventory())
needs_data = pytest.mark.skipif(NO_DATA, reason="QMNIST is not here: see `fedbo data list`")
IMAGES, MARKS = FILES["train"]
IMAGE_KIND, MARK_KIND = 0x08, 0x0C


@cache
def stored(part: Literal["train", "test"]) -> Handwriting:
    return read(locate("qmnist"), part)


def counts(found: Handwriting) -> npt.NDArray[np.int64]:
    return np.unique(found.writer, return_counts=True)[1]


def writers_of(found: Handwriting, series: int) -> int:
    return len(np.unique(found.writer[found.series == series]))


def packed(kind: int, array: npt.NDArray[Any]) -> bytes:
    """Give an IDX file's bytes, unpacked: 8 is a byte, 12 a number of four."""
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def rows(n: int) -> npt.NDArray[np.int32]:
    """Give the labels of n images, all of the digit 3, hsf 4 and writer 2154."""
    return np.tile(np.array([3, 4, 2154, 1, 35, 7, 0, 0], dtype=">i4"), (n, 1))


def put(folder: Path, images: bytes | None = None, marks: bytes | None = None) -> Path:
    """Write two good images and their labels, or what is given instead."""
    good = packed(IMAGE_KIND, np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28))
    (folder / IMAGES).write_bytes(gzip.compress(good if images is None else images))
    (folder / MARKS).write_bytes(gzip.compress(packed(MARK_KIND, rows(2)) if marks is None else marks))
    return folder


@needs_data
def test_the_training_part_has_the_published_writers() -> None:
    found = stored("train")
    n = counts(found)
    assert found.images.shape == (60_000, 28, 28) and found.images.max() == 255
    assert (len(n), n.min(), n.max(), np.median(n), np.sum(n >= 100)) == (539, 19, 131, 116, 440)
    assert (writers_of(found, 0), writers_of(found, 4)) == (289, 250)
    assert set(np.unique(found.series)) == {0, 4}


@needs_data
def test_the_test_part_has_the_published_writers_and_none_of_the_training_part() -> None:
    found = stored("test")
    n = counts(found)
    assert found.images.shape == (10_000, 28, 28)
    assert (len(n), np.median(n), np.sum(n >= 30)) == (297, 21, 52)
    assert (writers_of(found, 0), writers_of(found, 4)) == (48, 249)
    assert not set(found.writer) & set(stored("train").writer)


@needs_data
def test_the_digits_are_those_of_the_old_mnist() -> None:
    """How many of each digit there are in MNIST, and its first ten labels, are well known."""
    train, test = stored("train").digit, stored("test").digit
    assert np.bincount(train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert test[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


@needs_data
def test_labels_belong_to_their_images_so_that_nearly_all_neighbours_agree() -> None:
    """The nearest of 5,000 images has the same digit for more than nine in ten; were rows shifted by one, for one in ten."""
    found = stored("train")
    flat = found.images[:5200].reshape(-1, 784).astype(np.float32)
    known, asked = flat[:5000], flat[5000:]
    nearest = np.argmin((known**2).sum(axis=1) - 2.0 * asked @ known.T, axis=1)
    assert np.mean(found.digit[nearest] == found.digit[5000:5200]) > 0.9
    assert np.mean(found.digit[nearest + 1] == found.digit[5000:5200]) < 0.25


def test_images_and_labels_are_read_row_by_row(tmp_path: Path) -> None:
    found = read(put(tmp_path), "train")
    assert found.images.shape == (2, 28, 28) and found.images[0, 1, 2] == 30
    assert (found.digit.tolist(), found.series.tolist(), found.writer.tolist()) == ([3, 3], [4, 4], [2154, 2154])


def test_labels_beyond_the_images_are_left_out_of_the_test_part_only(tmp_path: Path) -> None:
    put(tmp_path, marks=packed(MARK_KIND, rows(5)))
    with pytest.raises(DataDamagedError, match=f"{MARKS} has 5 rows of labels for the 2 images of {IMAGES}"):
        read(tmp_path, "train")
    for name, other in zip(FILES["train"], FILES["test"], strict=True):
        (tmp_path / name).rename(tmp_path / other)
    assert len(read(tmp_path, "test").digit) == 2


def test_fewer_labels_than_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataDamagedError, match="has 1 rows of labels for the 2 images"):
        read(put(tmp_path, marks=packed(MARK_KIND, rows(1))), "train")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "begins with nothing, not with 00000803"),
        (packed(0x0D, np.zeros((2, 28, 28), dtype=np.uint8)), "begins with 00000d03, not with 00000803"),
        (packed(IMAGE_KIND, np.zeros((2, 784), dtype=np.uint8)), "begins with 00000802, not with 00000803"),
        (packed(IMAGE_KIND, np.zeros((2, 28, 28), dtype=np.uint8))[:10], "ends after 10 bytes, but its header has 16"),
        (packed(IMAGE_KIND, np.zeros((2, 27, 28), dtype=np.uint8)), r"has rows of shape \(27, 28\), not \(28, 28\)"),
        (packed(IMAGE_KIND, np.zeros((2, 28, 28), dtype=np.uint8))[:-1], "has 1583 bytes .* of 2 rows, requires 1584"),
        (packed(IMAGE_KIND, np.zeros((2, 28, 28), dtype=np.uint8)) + b"?", "has 1585 bytes .* of 2 rows, requires 1584"),
    ],
)
def test_images_that_are_no_whole_idx_file_of_the_right_kind_are_refused(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    with pytest.raises(DataDamagedError, match=f"{IMAGES} {complaint}"):
        read(put(tmp_path, images=content), "train")


def test_labels_of_another_width_or_with_other_digits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataDamagedError, match=rf"{MARKS} has rows of shape \(7,\), not \(8,\)"):
        read(put(tmp_path, marks=packed(MARK_KIND, rows(2)[:, :7])), "train")
    wrong = rows(2)
    wrong[1, 0] = 11
    with pytest.raises(DataDamagedError, match=f"{MARKS}: the first column has digits from 3 to 11, not 0 to 9"):
        read(put(tmp_path, marks=packed(MARK_KIND, wrong)), "train")


@pytest.mark.parametrize("damage", ["cut short", "one byte changed", "not packed"])
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, damage: str) -> None:
    whole = bytearray((put(tmp_path) / IMAGES).read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    damaged = {"cut short": whole[:-100], "one byte changed": whole, "not packed": b"plain text"}[damage]
    (tmp_path / IMAGES).write_bytes(damaged)
    with pytest.raises(DataDamagedError, match=f"{IMAGES} is not a complete gzip file: "):
        read(tmp_path, "train")


def test_the_data_set_is_registered_with_its_source() -> None:
    (row,) = (row for row in inventory() if row.name == "qmnist")
    assert set(row.files) == {name for names in FILES.values() for name in names}
    assert "Cold case: the lost MNIST digits" in row.citation and "Proc. IEEE 86, 1998" in row.citation
