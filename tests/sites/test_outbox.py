"""The journal: what was written is there after a kill, a torn end is cut off, and a change is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbo.actors.storage.sealed import DamagedError
from fedbo.sites.errors import SitesError
from fedbo.sites.outbox import Journal

RECORDS = [b"", b"one", b"two" * 1000, bytes(700)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "folder" / "journal")
    for record in RECORDS:
        journal.append(record)
    journal.close()
    return tmp_path / "folder" / "journal"


def _read(path: Path) -> list[bytes]:
    journal = Journal(path)
    try:
        return journal.read()
    finally:
        journal.close()


def test_records_are_there_again(path: Path) -> None:
    assert _read(path) == RECORDS
    assert path.stat().st_mode & 0o077 == 0


def test_a_journal_that_is_replaced_goes_on(path: Path) -> None:
    journal = Journal(path)
    journal.replace([b"new"])
    journal.append(b"newer")
    journal.close()
    assert _read(path) == [b"new", b"newer"]


def test_it_is_long_after_a_mebibyte_and_short_after_it_was_replaced(path: Path) -> None:
    journal = Journal(path)
    assert not journal.is_long
    journal.append(bytes(2**20 + 1))
    assert journal.is_long
    journal.replace([])
    assert not journal.is_long
    journal.close()


def test_two_processes_cannot_have_it_open(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(SitesError, match="another process has this journal open"):
        Journal(path)
    journal.close()
    assert _read(path) == RECORDS


def test_an_end_that_a_power_cut_tore_is_cut_off(path: Path) -> None:
    data = path.read_bytes()
    for size in range(len(data) - 700, len(data)):
        path.write_bytes(data[:size])
        assert _read(path) == RECORDS[:3]
        assert _read(path) == RECORDS[:3]
    for torn in (data[:-700] + bytes(100), data + bytes(4096), data + bytes(512) + b"x" * 100):
        path.write_bytes(torn)
        assert _read(path)[:3] == RECORDS[:3]


def test_a_change_is_found(path: Path) -> None:
    data = path.read_bytes()
    for place in range(len(b"fedbo journal 1\n"), len(data) - 700, 7):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DamagedError, match="has changed"):
            Journal(path)
    path.write_bytes(b"another file")
    with pytest.raises(DamagedError, match="does not begin"):
        Journal(path)


def test_what_follows_a_torn_end_is_read_again(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])
    journal = Journal(path)
    journal.append(b"after")
    journal.close()
    assert _read(path) == [*RECORDS[:3], b"after"]
