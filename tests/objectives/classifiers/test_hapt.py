"""The raw smartphone recordings: made from published text, recognised by their arrays, refused when they are others."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedbo.objectives.classifiers import hapt
from fedbo.objectives.datasets import data
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError, locate
from fedbo.objectives.datasets.inventory import DataSet

CLOSED = "http://127.0.0.1:9/hapt.zip"  # nobody listens there
LENGTHS = {(1, 1): 40, (2, 1): 30, (10, 2): 50}  # samples by experiment and user
SPANS = [(1, 1, 5, 2, 9), (1, 1, 7, 10, 14), (2, 1, 6, 0, 29), (10, 2, 1, 20, 48)]  # from sample, to sample, counted from 0


def recordings() -> hapt.Recordings:
    """Draw three short recordings with labels as in `SPANS`."""
    draws, total = np.random.Generator(np.random.Philox(4)), sum(LENGTHS.values())
    acc = draws.integers(-1440, 1441, (total, 3)).astype(np.int16)
    gyro = draws.integers(-32768, 32768, (total, 3)).astype(np.int16)
    label = np.full(total, -1, dtype=np.int8)
    starts = dict(zip([experiment for experiment, _ in LENGTHS], [0, 40, 70], strict=True))
    for experiment, _, activity, first, last in SPANS:
        label[starts[experiment] + first : starts[experiment] + last + 1] = activity
    offset, subject = np.array([0, 40, 70, 120], dtype=np.int32), np.array([1, 1, 2], dtype=np.int8)
    return hapt.Recordings(acc, gyro, label, offset, subject)


def published(path: Path, top: str = "HAPT Data Set/", left_out: str = "") -> Path:
    """Write the recordings as UCI does: text of seven decimals, off by a rounding error, in a zip."""
    given = recordings()
    offsets = zip(given.recording_offset[:-1], given.recording_offset[1:], strict=True)
    with zipfile.ZipFile(path, "w") as archive:
        # not in the order of the experiments, and 10 before 2 in the alphabet
        for (experiment, user), (a, b) in reversed(list(zip(LENGTHS, offsets, strict=True))):
            for kind, counts, scale in (("acc", given.acc, hapt.ACC_SCALE), ("gyro", given.gyro, hapt.GYRO_SCALE)):
                name = f"{top}RawData/{kind}_exp{experiment:02d}_user{user:02d}.txt"
                text = io.StringIO()
                np.savetxt(text, counts[a:b] * scale, fmt="%.7f")
                if name.rpartition("/")[2] != left_out:
                    archive.writestr(name, text.getvalue())
        archive.writestr(f"{top}RawData/labels.txt", "".join(" ".join(map(str, span)) + "\n" for span in SPANS))
    return path


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache, its own FEDBO_DATA, and a set of which only the small recordings are the right ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path / "own"))
    hapt.make(published(tmp_path / "first.zip"), tmp_path / "first.npz")
    (file,) = data.DATA_SETS["hapt"].files
    small = dataclasses.replace(file, sha256=hapt.digest(tmp_path / "first.npz"), address=CLOSED)
    monkeypatch.setitem(data.DATA_SETS, "hapt", DataSet("hapt", (small,), "none", "Nobody 2020"))


def same(one: hapt.Recordings, other: hapt.Recordings) -> bool:
    names = [field.name for field in dataclasses.fields(hapt.Recordings)]
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("top", ["HAPT Data Set/", ""])
def test_the_counts_are_restored_from_rounded_text(tmp_path: Path, top: str) -> None:
    hapt.make(published(tmp_path / "set.zip", top), tmp_path / "made.npz")
    assert same(hapt.read(tmp_path / "made.npz"), recordings())


def test_an_archive_that_the_user_put_there_is_made_into_the_cache(tmp_path: Path) -> None:
    (tmp_path / "own" / "hapt").mkdir(parents=True)
    published(tmp_path / "own" / "hapt" / "hapt.zip")
    folder = locate("hapt")
    assert folder == tmp_path / "cache" / "fedbo" / "hapt"
    assert [path.name for path in folder.iterdir()] == ["hapt_raw_int16.npz"]
    assert same(hapt.read(folder / "hapt_raw_int16.npz"), recordings())
    (tmp_path / "own" / "hapt" / "hapt.zip").unlink()
    assert locate("hapt") == folder


def test_a_zip_within_a_zip_is_opened(tmp_path: Path) -> None:
    inner = published(tmp_path / "HAPT Data Set.zip")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as outer:
        outer.write(inner, inner.name)
        outer.writestr("read.me", "as UCI packs data set 240")
    hapt.make(tmp_path / "outer.zip", tmp_path / "made.npz")
    assert same(hapt.read(tmp_path / "made.npz"), recordings())


def test_the_digest_is_of_the_arrays_and_not_of_their_packing(tmp_path: Path) -> None:
    given = vars(recordings())
    np.savez(tmp_path / "loose.npz", **given)
    np.savez_compressed(tmp_path / "packed.npz", **dict(reversed(given.items())), remark=1)
    loose, packed = hapt.digest(tmp_path / "loose.npz"), hapt.digest(tmp_path / "packed.npz")
    assert loose == packed and len(loose) == 64
    for name, array in given.items():
        changed = array.copy()
        changed.flat[-1] ^= 1
        np.savez(tmp_path / "other.npz", **{**given, name: changed})
        assert hapt.digest(tmp_path / "other.npz") != loose
    np.savez(tmp_path / "wide.npz", **{**given, "acc": given["acc"].astype(np.int32)})
    assert hapt.digest(tmp_path / "wide.npz") != loose


def test_recordings_with_another_count_are_refused_and_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "own" / "hapt"
    folder.mkdir(parents=True)
    given = vars(recordings())
    given["acc"][5, 1] += 1
    np.savez(folder / "hapt_raw_int16.npz", **given)
    with pytest.raises(DataDamagedError, match=r"hapt_raw_int16\.npz is not the published .* sha256 \w{64}, found \w{64}"):
        locate("hapt")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", "half"])
def test_a_file_that_is_no_file_of_recordings_is_refused(tmp_path: Path, content: bytes | str) -> None:
    folder = tmp_path / "own" / "hapt"
    folder.mkdir(parents=True)
    whole = (tmp_path / "first.npz").read_bytes()
    path = folder / "hapt_raw_int16.npz"
    path.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    with pytest.raises(DataDamagedError, match="expected sha256 .*, found unreadable"):
        locate("hapt")
    with pytest.raises(ValueError, match="contains no recordings"):
        hapt.read(path)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: path.write_bytes(b"moved"), "not UCI's archive of recordings: File is not a zip file"),
        (lambda path: published(path, left_out="gyro_exp02_user01.txt"), "no item named .*gyro_exp02_user01.txt"),
        (lambda path: published(path, "elsewhere/un"), "no RawData/acc_expXX_userYY.txt"),
    ],
)
def test_another_archive_is_refused(tmp_path: Path, make: object, complaint: str) -> None:
    (tmp_path / "own" / "hapt").mkdir(parents=True)
    make(tmp_path / "own" / "hapt" / "hapt.zip")  # type: ignore[operator]
    with pytest.raises(DataDamagedError, match=f"hapt_raw_int16.npz cannot be built from .*: .*{complaint}"):
        locate("hapt")


def test_without_a_network_one_error_says_which_archive_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="from which hapt_raw_int16.npz is made") as raised:
        locate("hapt")
    assert CLOSED in str(raised.value) and str(tmp_path / "cache" / "fedbo" / "hapt" / "hapt.zip") in str(raised.value)
