"""The original features of UCI HAR, with made-up numbers: read where the user has put them, refused when they are others."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedbo.algorithms.streams import Streams
from fedbo.objectives.classifiers.har import Har
from fedbo.objectives.classifiers.logistic import LogisticAgent
from fedbo.objectives.datasets import data
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError


def holder(agent: int, **settings: object) -> LogisticAgent:
    return Har(**settings).objective(agent, Streams(0).rng("world"), Streams(0).rng("own"))  # type: ignore[arg-type]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path / "own"))
    return tmp_path / "cache" / "fedbo" / "features"


@pytest.fixture
def original_set(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a set of 30 subjects with 24 rows each, register its ids as the published ones, and put its zip in its place."""
    draws, contents = np.random.Generator(np.random.Philox(2)), {}
    for part, subjects in (("train", range(1, 22)), ("test", range(22, 31))):
        subject, label = np.repeat(subjects, 24), np.tile(np.arange(24) % 6, len(subjects))
        x = np.eye(6)[label] + 0.1 * draws.standard_normal((len(subject), 6))
        rows = ["".join(f"{value:16.7e}" for value in row) + f"{0.0:16.7e}" * 555 for row in x]
        contents[f"X_{part}.txt"] = ("\n".join(rows) + "\n").encode()
        contents[f"y_{part}.txt"] = "".join(f"{one + 1}\n" for one in label).encode()
        contents[f"subject_{part}.txt"] = "".join(f"{one}\n" for one in subject).encode()
    known = data.DATA_SETS["uci_har_meta"]
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    files = tuple(dataclasses.replace(file, sha256=digests.get(file.name, file.sha256)) for file in known.files)
    monkeypatch.setitem(data.DATA_SETS, "uci_har_meta", dataclasses.replace(known, files=files))
    folder = tmp_path / "own" / "uci_har"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "UCI HAR Dataset.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"UCI HAR Dataset/{name.removesuffix('.txt').rpartition('_')[2]}/{name}", content)
    return folder


def unpacked(folder: Path, leave_out: str = "") -> None:
    """Put the six files where the zip was."""
    with zipfile.ZipFile(folder / "UCI HAR Dataset.zip") as archive:
        for name in archive.namelist():
            (folder / Path(name).name).write_bytes(archive.read(name))
    (folder / "UCI HAR Dataset.zip").unlink()


@pytest.mark.parametrize("loose", [False, True])
def test_the_original_features_are_read_from_the_zip_or_its_files(original_set: Path, loose: bool) -> None:
    if loose:
        unpacked(original_set)
    agents = [holder(agent, features="uci", epochs=60) for agent in (0, 29)]
    for one in agents:
        assert one.train[0].shape == (12, 561) and np.bincount(one.validation[1]).tolist() == [2] * 6
        assert one.evaluate(np.array([20.0, 1e-6, 0.1]), Streams(0).rng("none")) == 0.0
    assert not np.array_equal(agents[0].train[0], agents[1].train[0])


@pytest.mark.parametrize(
    ("name", "harm", "complaint"),
    [
        (
            "subject_train.txt",
            lambda b: b.replace(b"21", b"I1", 1),
            "subject_train.txt is not the published file: expected sha256",
        ),
        ("y_test.txt", lambda b: b[:-2], "y_test.txt is not the published file: expected sha256"),
        (
            "X_test.txt",
            lambda b: b[: b.rindex(b"\n", 0, -1) + 1],
            "216 rows of 561 finite numbers were expected, but it has 215 of 561",
        ),
        ("X_train.txt", lambda b: b[:-100], "X_train.txt is not a table of numbers: .*columns"),
        (
            "X_train.txt",
            lambda b: b.replace(b"0.0000000e+00", b"          nan", 1),
            "504 rows of 561 finite numbers were expected",
        ),
    ],
)
def test_another_original_is_refused(original_set: Path, name: str, harm: Callable[[bytes], bytes], complaint: str) -> None:
    unpacked(original_set)
    path = original_set / name
    changed = harm(path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    with pytest.raises(DataDamagedError, match=complaint):
        holder(0, features="uci")


def test_a_zip_without_the_original_files_is_refused(original_set: Path) -> None:
    (original_set / "UCI HAR Dataset.zip").write_bytes(b"not found")
    with pytest.raises(DataDamagedError, match="UCI HAR Dataset.zip is not the published file: File is not a zip file"):
        holder(0, features="uci")


def test_without_the_original_files_the_error_says_what_to_put_where(own_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="get 'UCI HAR Dataset.zip' from .*dataset/240") as raised:
        holder(0, features="uci")
    assert str(tmp_path / "cache" / "fedbo" / "uci_har") in str(raised.value) and "recomputed" in str(raised.value)
