"""The audit log: every byte that left, in a chain that shows each change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedbo.actors.storage.sealed import DamagedError
from fedbo.sites import audit
from fedbo.sites.audit import AuditLog, read_audit, read_sent
from fedbo.sites.errors import SitesError


def written(path: Path, number: int = 5) -> bytes:
    log = AuditLog(path)
    for each in range(number):
        log.sent("POST /sync", bytes([each]) * 300, sequence=each)
    log.close()
    return path.read_bytes()


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    log = AuditLog(path)
    log.record("refused by the coordinator", why="revoked")
    log.close()
    found = list(read_audit(path))
    assert [record["number"] for record in found] == list(range(6))
    assert [body for _, body in read_sent(path)] == [bytes([each]) * 300 for each in range(5)]
    assert path.stat().st_mode & 0o077 == 0


def test_every_change_in_the_middle_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path).splitlines(keepends=True)
    other = json.loads(lines[2])
    changed = {
        "removed": [*lines[:2], *lines[3:]],
        "put in": [*lines[:2], lines[1], *lines[2:]],
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "changed": [*lines[:2], json.dumps({**other, "sequence": 9}).encode() + b"\n", *lines[3:]],
        "not JSON": [*lines[:2], b"{\n", *lines[3:]],
        "its beginning gone": lines[1:],
    }
    for name, those in changed.items():
        path.write_bytes(b"".join(those))
        with pytest.raises(DamagedError, match="does not follow the one before|is not a record"):
            list(read_audit(path))
            pytest.fail(name)


@pytest.mark.parametrize("size", [0, 1, 300, 70_000, 200_000])
def test_an_append_that_a_kill_cut_short_is_cut_off(size: int, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    whole = written(path, 2)
    log = AuditLog(path)
    log.sent("POST /sync", bytes(size))
    log.close()
    third = len(path.read_bytes())
    for cut in {len(whole), len(whole) + 1, (len(whole) + third) // 2, third - 1}:
        data = path.read_bytes() if path.stat().st_size == third else b""
        assert data, "the log was not restored"
        path.write_bytes(data[:cut])
        assert len(list(read_audit(path))) == 2
        AuditLog(path).close()
        assert path.read_bytes() == whole
        log = AuditLog(path)
        log.sent("POST /sync", bytes(size))
        log.close()
        assert [record["number"] for record in read_audit(path)] == [0, 1, 2]


def test_sectors_that_a_power_cut_lost_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    whole = written(path, 3)
    torn = bytearray(whole)
    last = whole.rindex(b"\n", 0, -1) + 1
    sector = (last // 512 + 1) * 512
    assert sector + 10 < len(whole)
    torn[last:sector] = bytes(sector - last)
    path.write_bytes(torn)
    AuditLog(path).close()
    assert path.read_bytes() == whole[:last]


def test_records_of_several_threads_are_one_chain(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    threads = [threading.Thread(target=lambda: [log.record("x", sync=False) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    log.close()
    assert len(list(read_audit(tmp_path / "audit.jsonl"))) == 400


def test_one_process_at_a_time_writes_a_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    code = (
        f"from pathlib import Path\nfrom fedbo.sites.audit import AuditLog\nAuditLog(Path({str(tmp_path / 'audit.jsonl')!r}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SitesError" in told.stderr and "another process has this log open" in told.stderr
    with pytest.raises(SitesError, match="another process has this log open"):
        AuditLog(tmp_path / "audit.jsonl")
    log.close()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_strangers_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_REFUSALS", 10)
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(1000):
        log.refused("no signature", peer=f"192.0.2.{number % 250}")
    log.record("stopped")
    log.close()
    found = list(read_audit(tmp_path / "audit.jsonl"))
    # Ten in full, then after 1, 2, 4, … 512 more of them.
    assert len(found) == 10 + 10 + 1 and [one.get("number_of_them") for one in found[9:11]] == [None, 11]
    assert found[-2]["number_of_them"] == 10 + 512


def test_a_full_disk_is_an_error_before_anything_leaves(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    log = AuditLog(tmp_path / "audit.jsonl")
    real, log._file = log._file, os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError):  # noqa: PT011
            log.sent("POST /sync", b"x")
    finally:
        os.close(log._file)
        log._file = real
    log.record("goes on")
    log.close()
    assert [record["event"] for record in read_audit(tmp_path / "audit.jsonl")] == ["goes on"]
