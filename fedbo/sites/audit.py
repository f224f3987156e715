"""The audit log of a site or a coordinator: JSON lines that are only appended, each with the SHA-256 of the one before.

A record is on the disk before its request or answer leaves the machine. The chain shows when a line was changed, removed or put
in. It cannot show that the end of a file was cut off, or that its owner wrote the whole file anew.

An order that a site asks for again and again is recorded once, and then by its SHA-256, so that no site can fill the disk.
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError
from fedbo.sites.errors import SitesError

MOST_REFUSALS = 100_000  # that are recorded in full: strangers must not fill the disk
SHORT = 256  # bytes of a part of a body that is recorded again each time
_BLOCK = 2**16
_FIRST = "0" * 64


class AuditLog:
    """An audit log, which one process at a time has open; its methods may be called from several threads.

    SitesError when another process has it open. An incomplete last line is cut off: its request or answer never left.
    """

    def __init__(self, path: Path) -> None:
        atomic.make_folder(path.parent)
        self.path, self._lock, self._refusals = path, threading.Lock(), 0
        self.on_refused: Callable[[str, int | None], None] = lambda why, agent: None
        self._whole: dict[tuple[Any, int], str] = {}  # SHA-256 of the last long part, by agent and place
        self._file = atomic.open_log(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise SitesError(f"'{path}': another process has this log open; wait for it, or end it") from None
        os.fchmod(self._file, 0o600)  # bodies of messages are nobody else's
        line, size = _last_line(path, path.stat().st_size)
        os.ftruncate(self._file, size)
        self._previous, self._number = _FIRST, 0
        if line:
            self._previous, self._number = _sha256(line), _parsed(line, path, "the last line")["number"] + 1

    def record(self, event: str, *, sync: bool = True, **facts: Any) -> None:
        """Append a record, on the disk before this returns unless `sync` is False; bytes are written as base64.

        OSError when the disk is full: then the recorded bytes must not leave.
        """
        with self._lock:
            self._append(event, facts, sync)

    def sent(self, target: str, *parts: bytes, **facts: Any) -> None:
        """Record every byte of a body that is about to leave, given in parts, and its target, such as "POST /sync".

        A long part is recorded by its SHA-256 alone where the last long one in the same place for the same `agent` was equal.
        """
        body = b"".join(parts)
        facts |= {"target": target, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        places = {(facts.get("agent"), place): part for place, part in enumerate(parts)}
        sums = {place: hashlib.sha256(part).hexdigest() for place, part in places.items() if len(part) > SHORT}
        with self._lock:
            again = {place for place, digest in sums.items() if self._whole.get(place) == digest}
            recorded = [{"sha256": sums[place]} if place in again else part for place, part in places.items()]
            self._append("sent", {**facts, "body": recorded}, sync=True)
            self._whole |= sums

    def refused(self, why: str, **facts: Any) -> None:
        """Record a refused request, without waiting for the disk.

        Beyond `MOST_REFUSALS` only each doubling of their number is recorded. `on_refused` is called with reason and agent.
        """
        self.on_refused(why, facts.get("agent"))
        with self._lock:
            self._refusals += 1
            beyond = self._refusals - MOST_REFUSALS
            if beyond <= 0:
                self._append("refused", {"why": why, **facts}, sync=False)
            elif beyond & (beyond - 1) == 0:
                self._append("refused", {"why": "too many to record each", "number_of_them": self._refusals}, sync=False)

    def close(self) -> None:
        """Close the file. May be called repeatedly."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _append(self, event: str, facts: dict[str, Any], sync: bool) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        known = {"number": self._number, "time": now, "event": event, "previous": self._previous}
        line = json.dumps({**known, **facts}, default=_plain).encode() + b"\n"
        atomic.append(self._file, line, sync)
        self._previous, self._number = _sha256(line), self._number + 1


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log in order; DamagedError where a line was changed, removed or put in.

    An incomplete last line is left out.
    """
    previous = _FIRST
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                return
            found = _parsed(line, path, f"line {number + 1}")
            if found["previous"] != previous or found["number"] != number:
                raise DamagedError(path, f"line {number + 1} does not follow the one before", "compare it with a copy")
            previous = _sha256(line)
            yield found


def read_sent(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the records of `AuditLog.sent`, each with the whole body; DamagedError as `read_audit`, or where a part lacks."""
    whole = dict[tuple[Any, int], bytes]()
    for record in (record for record in read_audit(path) if record["event"] == "sent"):
        places = {(record.get("agent"), place): part for place, part in enumerate(record["body"])}
        here = {place: base64.b64decode(part) for place, part in places.items() if isinstance(part, str)}
        whole |= {place: part for place, part in here.items() if len(part) > SHORT}
        body = b"".join(here.get(place, whole.get(place, b"")) for place in places)
        if hashlib.sha256(body).hexdigest() != record["sha256"]:
            words = f"line {record['number'] + 1} refers to a part that is not there"
            raise DamagedError(path, words, "compare it with a copy")
        yield record, body


def _parsed(line: bytes, path: Path, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("number"), int) or "previous" not in found:
        raise DamagedError(path, f"{where} is not a record", "compare it with a copy")
    return found


def _last_line(path: Path, size: int) -> tuple[bytes, int]:
    """Return the last complete line of the first `size` bytes, empty without one, and the length up to its end."""
    with path.open("rb") as file:
        place, tail = size, b""
        while place > 0:
            start = max(0, place - _BLOCK)
            file.seek(start)
            tail, place = file.read(place - start) + tail, start
            end = tail.rfind(b"\n") + 1
            begin = tail.rfind(b"\n", 0, end - 1) + 1 if end else 0
            if end and (begin or place == 0):
                torn = atomic.is_torn(tail[begin:end], place + begin)
                return _last_line(path, place + begin) if torn else (tail[begin:end], place + end)
    return b"", 0


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(f"an audit record cannot hold {type(value).__name__}")
