"""Power cuts: what a disk may forget, and that whatever goes on afterwards loses nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fedbo.actors.storage import atomic
from tests.random_studies.carrying_out import forked
from tests.random_studies.power.disk import POLICIES, Disk, Policy
from tests.random_studies.power.promise import STORIES, broken_by_power_cuts
from tests.random_studies.studies import draw_study


def left(folder: Path, work: str, policy: Policy, seed: int = 0) -> dict[str, bytes]:
    """Return the files that a disk with this policy has after some work in a folder, and a power cut."""
    place, image = folder / "place", folder / f"image-{os.urandom(4).hex()}"
    place.mkdir(exist_ok=True)
    (place / "old").write_bytes(b"old")

    def cut_off() -> None:
        disk = Disk(place)
        WORK[work](place)
        disk.write_image(image, policy, random.Random(seed))

    assert forked(cut_off, folder, 60.0).code == 0
    return {str(path.relative_to(image)): path.read_bytes() for path in image.rglob("*") if path.is_file()}


def _carelessly(place: Path) -> None:
    (place / "draft").write_bytes(b"new")
    (place / "draft").replace(place / "old")


def _with_data(place: Path) -> None:
    with open(place / "draft", "wb") as file:
        file.write(b"new")
        file.flush()
        os.fsync(file)
    (place / "draft").replace(place / "old")


def _log(place: Path) -> None:
    file = atomic.open_log(place / "log")
    atomic.append(file, b"one\n", sync=True)
    atomic.append(file, b"two\n")


WORK = {
    "carelessly": _carelessly,
    "with data": _with_data,
    "well": lambda place: atomic.write_bytes(place / "old", b"new"),
    "below": lambda place: atomic.write_bytes(place / "a" / "b" / "old", b"new"),
    "log": _log,
}


@pytest.mark.parametrize(
    ("work", "policy", "expected"),
    [
        ("carelessly", "all", {"old": b"new"}),
        ("carelessly", "synced", {"old": b"old"}),
        ("with data", "synced", {"old": b"old"}),
        ("with data", "names", {"old": b"new"}),
        ("log", "all", {"old": b"old", "log": b"one\ntwo\n"}),
        ("log", "synced", {"old": b"old", "log": b"one\n"}),
        *(("well", policy, {"old": b"new"}) for policy in POLICIES),
        *(("below", policy, {"old": b"old", "a/b/old": b"new"}) for policy in POLICIES),
    ],
)
def test_a_disk_forgets_what_was_not_fsynced_and_nothing_else(
    work: str, policy: Policy, expected: dict[str, bytes], tmp_path: Path
) -> None:
    assert left(tmp_path, work, policy) == expected


def test_a_file_that_is_renamed_without_fsync_may_be_empty(tmp_path: Path) -> None:
    found = {left(tmp_path, "carelessly", "names", seed)["old"] for seed in range(8)}
    assert found == {b"", bytes(3)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "seed"),
    [("run", 3), *(pytest.param(story, seed, marks=pytest.mark.long) for story, seed in (("extension", 0), ("meeting", 3)))],
)
def test_some_power_cuts_lose_nothing(story: str, seed: int, tmp_path: Path) -> None:
    """`python -m tests.random_studies --try power-cuts` makes as many as are asked for."""
    assert story in STORIES
    (files := tmp_path / "files").mkdir()
    assert broken_by_power_cuts(draw_study(seed, files)[1], tmp_path, 60.0, 2, seed, story) == []


@pytest.mark.long
@pytest.mark.parametrize("story", STORIES)
def test_many_power_cuts_lose_nothing(story: str, tmp_path: Path) -> None:
    (files := tmp_path / "files").mkdir()
    assert broken_by_power_cuts(draw_study(3, files)[1], tmp_path, 120.0, 60, 3, story) == []


@pytest.mark.long
def test_names_that_are_not_fsynced_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is planted, so that the cuts are known to find what they are for."""
    monkeypatch.setattr(atomic, "sync_names", lambda folder: None)
    (files := tmp_path / "files").mkdir()
    assert broken_by_power_cuts(draw_study(3, files)[1], tmp_path, 120.0, 8, 3, "meeting")
