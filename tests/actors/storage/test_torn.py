"""Logs whose last append was torn by a power cut lose that append; logs whose bytes are damaged since are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluation_log import EvaluationLog, read_log
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.task import StepReport
from fedbo.coordinator.kernel.engine import RecordedEvent
from fedbo.coordinator.runtime.event_log import EventLog, read_moments
from fedbo.objectives.outcome import Outcome
from fedbo.tuning.ask_log import StoredLog

ENTRIES, NUMBERS, SECTOR = 3, 60, 512  # an entry is longer than a sector
STRIDE = 11  # one place of so many is tried


class Written(NamedTuple):
    """A log: its file, its size after each append, and what reads it."""

    path: Path
    sizes: list[int]
    read: Callable[[], list[Any]]


def _numbers(entry: int) -> list[float]:
    return [float(number) for number in np.random.default_rng(entry).random(NUMBERS)]


def evaluations(folder: Path) -> Written:
    home = RunFolder.of(folder, RunKey(0, "FTS", 0)).claim()
    log, sizes = EvaluationLog(home, {1}, None), list[int]()
    for number in range(ENTRIES):
        log.append([Query(1, number, 0, np.array(_numbers(number))).evaluated(Outcome(2.0, 3.0))])
        (path,) = home.path.glob("log-*")
        sizes.append(path.stat().st_size)
    log.close()
    return Written(path, sizes, lambda: read_log(path, 0, real=True)[0])


def events(folder: Path) -> Written:
    home = RunFolder.of(folder, RunKey(0, "FTS", 0)).claim()
    log, path, sizes = EventLog(home), home.moments(1), list[int]()
    log.note_from(1)
    for number in range(ENTRIES):
        log.record(RecordedEvent(float(number), number), StepReport(1, number, 1, {"x": np.array(_numbers(number))}))
        sizes.append(path.stat().st_size)
    return Written(path, sizes, lambda: list(read_moments(path)))


def asked(folder: Path) -> Written:
    head, sizes = {"head": 1}, list[int]()
    log, path = StoredLog(folder / "agent", head), folder / "agent" / "log.jsonl"
    for number in range(ENTRIES):
        log.append({"ask": str(number), "u": _numbers(number), "client": None, "until": None})
        sizes.append(path.stat().st_size)
    log.close()

    def read() -> list[Any]:
        data = path.read_bytes()
        try:
            again = StoredLog(path.parent, head)
            again.close()
            return again.entries
        finally:
            path.write_bytes(data)  # opening it cuts off what does not count

    return Written(path, sizes, read)


LOGS = pytest.mark.parametrize("write", [evaluations, events, asked], ids=lambda write: write.__name__)


def _sectors(start: int, end: int) -> list[tuple[int, int]]:
    """Return where the sectors of the file that hold these bytes begin and end, the first and last cut short."""
    edges = [start, *(edge for edge in range(0, end, SECTOR) if edge > start), end]
    return [*itertools.pairwise(edges)]


@LOGS
def test_an_append_of_which_any_sectors_are_missing_does_not_count(write: Callable[[Path], Written], tmp_path: Path) -> None:
    log = write(tmp_path)
    whole, start = log.path.read_bytes(), log.sizes[-2]
    expected = [repr(entry) for entry in log.read()]
    assert len(expected) == ENTRIES
    sectors = _sectors(start, len(whole))
    assert len(sectors) > 1
    for kept in itertools.product((True, False), repeat=len(sectors)):
        parts = [whole[a:b] if keeps else bytes(b - a) for keeps, (a, b) in zip(kept, sectors, strict=True)]
        log.path.write_bytes(whole[:start] + b"".join(parts))
        assert [repr(entry) for entry in log.read()] == expected[: ENTRIES - (not all(kept))], kept
    for size in range(start, len(whole), STRIDE):
        log.path.write_bytes(whole[:size])
        assert [repr(entry) for entry in log.read()] == expected[:-1], size


@LOGS
def test_an_append_that_is_whole_and_damaged_since_is_refused(write: Callable[[Path], Written], tmp_path: Path) -> None:
    log = write(tmp_path)
    whole = log.path.read_bytes()
    ends = {size - 1 for size in log.sizes if write is not events}  # a line without its end is one that was cut off
    for place in range(log.sizes[-2], len(whole), STRIDE):
        if place not in ends:
            log.path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
            with pytest.raises(DamagedError):
                log.read()


@LOGS
def test_a_sector_that_is_missing_before_the_last_append_is_refused(write: Callable[[Path], Written], tmp_path: Path) -> None:
    """The appends after it were synced, so that a power cut cannot have torn it."""
    log = write(tmp_path)
    whole = log.path.read_bytes()
    for start, end in _sectors(log.sizes[0], log.sizes[1]):
        log.path.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
        with pytest.raises(DamagedError):
            log.read()


def test_blank_sectors_are_those_of_the_file() -> None:
    assert atomic.is_torn(b"a" * 12 + bytes(SECTOR), SECTOR - 12)
    assert not atomic.is_torn(b"a" * 12 + bytes(SECTOR - 1) + b"a", SECTOR - 12)
    assert not atomic.is_torn(b"a" + bytes(SECTOR) + b"a", SECTOR - 12)
    assert atomic.is_torn(bytes(12) + b"a", SECTOR - 12)
