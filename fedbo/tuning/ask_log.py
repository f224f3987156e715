"""The log of an ask/tell agent: in memory, or lines of JSON, each on disk before the call returns."""

from __future__ import annotations

import hashlib
import json
import os
import time
import weakref
from collections.abc import Container
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError
from fedbo.algorithms.base import Array
from fedbo.settings.arguments import short
from fedbo.study.paths import PRIVATE, DirectoryError, locked

LogEntry = dict[str, Any]
LOG = "log.jsonl"


class AskLog:
    """What an agent was asked and told, in memory.

    - `entries`: entries found at opening.
    - `points`: every point by its token: its coordinates, its client, and the end of its lease.
    - `told`: values by token, None for points that failed or were `withdrawn`.
    - `metrics`: metrics by token, of points that were told with a dictionary.
    - `taken`: messages that the agent has processed, its own included.
    - `queued`: points to be asked next.
    """

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.points: dict[str, LogEntry] = {}
        self.told: dict[str, float | None] = {}
        self.metrics: dict[str, dict[str, float | None]] = {}
        self.withdrawn: set[str] = set()
        self.taken: list[str] = []
        self.queued: list[list[float]] = []

    def append(self, entry: LogEntry) -> None:
        """Note an entry, which a stored log writes to disk before; OSError when the disk is full."""
        self.note(entry)

    def note(self, entry: LogEntry) -> None:
        """Update the points and their values from an entry."""
        if "metrics" in entry:
            self.metrics[entry["tell"] if "tell" in entry else entry["add"]] = entry["metrics"]
        if "tell" in entry:
            self.told[entry["tell"]] = entry["value"]
            if entry.get("withdrawn"):
                self.withdrawn.add(entry["tell"])
        elif "add" in entry:
            self.points[entry["add"]] = {"u": entry["u"], "client": None, "until": None}
            self.told[entry["add"]] = entry["value"]
        elif "queue" in entry:
            self.queued.append(entry["queue"])
        elif "met" in entry:
            self.taken += entry["took"]
        else:
            if entry.get("queued"):
                self.queued.pop(0)
            self.points[entry["ask"]] = {name: entry[name] for name in ("u", "client", "until")}

    @property
    def failed(self) -> Array:
        """Return the points `(f, d)` that failed and have no value from another try."""
        values = [(self.points[token]["u"], value) for token, value in self.told.items() if token not in self.withdrawn]
        known = {tuple(u) for u, value in values if value is not None}
        return np.array([u for u, value in values if value is None and tuple(u) not in known])

    @property
    def open(self) -> list[str]:
        """Return the tokens of points without a value, oldest first."""
        return [token for token in self.points if token not in self.told]

    def again(self, client: str | None, handed: Container[str]) -> list[str]:
        """Return the open points that a client may get again; `handed` are tokens that this process has returned."""
        found, now = [], time.time()
        for token in self.open:
            point = self.points[token]
            ran_out = point["until"] is not None and point["until"] < now
            mine = point["client"] == client and (client is not None or token not in handed)
            if mine or ran_out:
                found.append(token)
        return found

    def close(self) -> None:
        """Close the log. May be called repeatedly."""


class StoredLog(AskLog):
    """The log in a folder, which one process at a time may open. Its first line is the `head`, which identifies the agent.

    Raises DirectoryError when the log is of another agent, or another process has it open.
    """

    def __init__(self, folder: Path, head: LogEntry) -> None:
        super().__init__()
        atomic.make_folder(folder, PRIVATE)
        self._folder, self._held, self._closed, self._process = folder, ExitStack(), False, os.getpid()
        self._held.enter_context(locked(folder))
        weakref.finalize(self, self._held.close)  # at the latest when Python ends, before it takes modules apart
        path = folder / LOG
        self._file = atomic.open_log(path)
        self._held.callback(os.close, self._file)
        found, size = read_log(path)
        os.ftruncate(self._file, size)
        if found and found[0] != head:
            self.close()
            raise DirectoryError(f"'{folder}': {_difference(found[0], head)}")
        self._sum = hashlib.sha256()
        self._sums = [self._added(line) for line in path.read_bytes()[:size].splitlines(keepends=True)]
        if not found:
            self._write(head)
        self.entries = found[1:]

    def append(self, entry: LogEntry) -> None:
        """Write an entry to disk and note it; OSError when the disk is full."""
        self._write(entry)
        super().append(entry)

    def _write(self, entry: LogEntry) -> None:
        if self._closed:
            raise DirectoryError(f"'{self._folder}': is the folder of a closed agent; open the agent again with fedbo.Agent")
        if self._process != os.getpid():  # two that write would hand out the same tokens
            words = f"is open in process {self._process}, of which this one is a fork; ask and tell there"
            raise DirectoryError(f"'{self._folder}': {words}")
        line = _written(entry)
        atomic.append(self._file, line, sync=True)
        self._added(line)

    def _added(self, line: bytes) -> str:
        self._sum.update(line)
        return self._sum.hexdigest()

    @property
    def sum(self) -> str:
        """Return the SHA-256 of all that is written."""
        return self._sum.hexdigest()

    def had(self, count: int, digest: str) -> bool:
        """Return whether the head and the first `count` entries found at opening have this SHA-256."""
        return count < len(self._sums) and self._sums[count] == digest

    def close(self) -> None:
        """Close the log, so that another process can open it. May be called repeatedly."""
        self._closed = True
        self._held.close()


def _difference(found: LogEntry, head: LogEntry) -> str:
    """Return what the head of a log has other than this one, with the remedy."""
    names = {"agent": "agent", "space": "space", "terms": "terms"}
    name = next((name for name in names if found.get(name) != head[name]), "terms")
    theirs, ours = found.get(name, {}), head[name]
    if name == "terms" and isinstance(theirs, dict):
        keys = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
        said = "".join(f", {key} = {short(theirs.get(key))} instead of {short(ours.get(key))}" for key in keys)
    else:
        said = f", {theirs} instead of {ours}" if name == "agent" else ""
    remedy = "use the same, or a new folder with start= this one"
    return f"belongs to another {names[name]}{said}; {remedy}" if name != "terms" else f"has other terms{said}; {remedy}"


def _written(entry: LogEntry) -> bytes:
    digest = hashlib.sha256(json.dumps(entry).encode()).hexdigest()[:16]
    return json.dumps({**entry, "sum": digest}).encode() + b"\n"


def read_log(path: Path) -> tuple[list[LogEntry], int]:
    """Read the entries of a log and their size in bytes; DamagedError where a line is not as it was written.

    An incomplete last line is ignored: a kill or a power cut came before its writer returned.
    """
    found, size, lines = list[LogEntry](), 0, path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or entry.pop("sum", None) is None or line != _written(entry):
            if number < len(lines) or (line.endswith(b"\n") and not atomic.is_torn(line, size)):
                raise DamagedError(path, f"line {number} is damaged", "restore a copy of the file, or open a new folder")
            break
        found.append(entry)
        size += len(line)
    return found, size
