"""The log of evaluations: each is logged before another process learns of it, so no computed value is lost."""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Container, Iterable, Iterator
from math import isfinite
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import EvaluationRecord, Query, reader
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError

_READERS = tuple(reader(name) for name in EvaluationRecord.COLUMNS)
_DELAY = 0.1  # seconds of computing that a kill may cost where time is virtual: a write for each evaluation is most of its work


class EvaluationLog:
    """Every evaluation of some agents, appended as a line to this process's file before it is reported to another process.

    A process that takes over reads the files of earlier processes, so that it need not repeat their evaluations. A line
    is the JSON of an `EvaluationRecord` in its columns. In real time it is written at once, else together with others of
    the same tenth of a second.
    """

    def __init__(self, folder: RunFolder, agents: Container[int], since: int | None) -> None:
        atomic.make_folder(folder.path)
        self._folder, self._agents, self._real = folder, agents, since is None
        self._found = {_place(record): record for record in self._records()}
        self._file: int | None = None
        self._pending, self._written = list[EvaluationRecord](), time.monotonic()
        self.begin(since)

    def begin(self, since: int | None) -> None:
        """Start a new file for evaluations after snapshot `since`; None where snapshots make no line obsolete."""
        self.close()
        self._path = self._folder.log(since)

    @property
    def reached(self) -> float:
        """Return the time at which the last evaluation of earlier processes ended."""
        return max((float(record.finished) for record in self._found.values()), default=0.0)

    def find(self, query: Query) -> EvaluationRecord | None:
        """Return the logged evaluation of a query, if its point and its number of pulls agree."""
        place = query.agent, query.number
        found, whole = self._found.get((*place, query.fidelity)), self._found.get((*place, None))
        found = whole if found is None and whole is not None and whole.finished else found  # in real time, of any fidelity
        if found is None or found.x != query.x.tolist() or found.pulls != query.times:
            return None
        return found

    def append(self, records: Iterable[EvaluationRecord]) -> None:
        """Append evaluations, which are written at once in real time, else soon; OSError when the disk is full."""
        self._pending += records
        if self._real or time.monotonic() - self._written > _DELAY:
            self.flush()

    def flush(self) -> None:
        """Write the pending records; OSError when the disk is full."""
        if not self._pending:
            return
        if self._file is None:
            self._file = atomic.open_log(self._path)
        # In virtual time an evaluation that a power cut forgets is made again to the same bits; in real time it is not.
        atomic.append(self._file, b"".join([_line(record) for record in self._pending]), sync=self._real)
        self._pending, self._written = [], time.monotonic()

    def begun_at(self, begun: set[tuple[int, float]]) -> list[EvaluationRecord]:
        """Return the evaluations with these pairs (agent, started), in the order of agents and numbers."""
        found = (record for record in self._records() if (record.agent, record.started) in begun)
        return sorted(found, key=lambda record: (record.agent, record.number))

    def close(self) -> None:
        """Write the pending records and close the file."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def release(self) -> None:
        """Close the file and discard the pending records."""
        self._pending = []
        self.close()

    def _records(self) -> Iterator[EvaluationRecord]:
        for path in sorted(self._folder.path.glob("log-*.jsonl")):
            with contextlib.suppress(FileNotFoundError):  # a snapshot has made it superfluous meanwhile
                yield from (record for record in read_log(path, 0, self._real)[0] if record.agent in self._agents)


def read_log(path: Path, place: int, real: bool = False) -> tuple[list[EvaluationRecord], int]:
    """Read the complete lines of a log from a position on; return the records and the position after them.

    A damaged line is skipped, since its evaluation can be repeated with the same result. With `real` it raises DamagedError,
    unless it is the last line and torn by a power cut: no process has learned of that one.
    """
    with path.open("rb") as file:
        file.seek(place)
        whole, _, _ = file.read().rpartition(b"\n")  # its writer may be at the last line, or was killed there
    lines = whole.split(b"\n") if whole else []
    found = [_read(line) for line in lines]
    if real and None in found:
        at = found.index(None)
        if at < len(found) - 1 or not atomic.is_torn(lines[-1], place + len(whole) - len(lines[-1])):
            raise DamagedError(path, f"line {at + 1} after byte {place} is damaged")
    return [record for record in found if record is not None], place + len(whole) + (1 if whole else 0)


def _place(record: EvaluationRecord) -> tuple[int, int, int | None]:
    """Return the key of a record. Only records of real time have times here, and these belong to whole evaluations."""
    return record.agent, record.number, None if record.finished else record.fidelity


def _line(record: EvaluationRecord) -> bytes:
    """Return the JSON of a record's columns, with its checksum (CRC-32) after a tab.

    For plain numbers it is formatted directly, to the same text in a third of the time.
    """
    outcome, x = record.outcome, record.x
    value, score = outcome.value, outcome.score
    plain = record.error is None and record.fidelity is None and not (outcome.metrics or outcome.reports)
    if plain and isfinite(value) and isfinite(score):
        numbers = f"[{record.agent}, {record.number}, {x}, {value}, {score}, {record.started}, {record.finished}, null"
        line = f"{numbers}, {record.pulls}, null, null, null, null]".encode()
    else:
        line = json.dumps([read(record) for read in _READERS]).encode()
    return line + b"\t%08x\n" % zlib.crc32(line)


def _read(line: bytes) -> EvaluationRecord | None:
    """Read a line; None when it is damaged."""
    text, _, check = line.rpartition(b"\t")
    if check != b"%08x" % zlib.crc32(text):
        return None
    try:
        return EvaluationRecord.of_columns(dict(zip(EvaluationRecord.COLUMNS, json.loads(text), strict=True)))
    except (LookupError, TypeError, ValueError):  # also where it has another number of entries
        return None
