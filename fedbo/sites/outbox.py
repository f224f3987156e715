"""A journal on disk: short records, each of which is on the disk before the call that writes it returns.

A site keeps its sequence, its newest order and its unacknowledged reports in one, and the coordinator each site's sequence.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError
from fedbo.sites.errors import SitesError

_MAGIC = b"fedbo journal 1\n"
_HEAD, _CHECK = struct.Struct("<II"), struct.Struct("<I")  # length and CRC-32 of a record, and a checksum of these
_FRAME = _HEAD.size + _CHECK.size
_ROOM = 2**20  # bytes that a journal may grow by before it is written anew


class JournalRecords(Protocol):
    """The place where a state machine keeps records that must survive its process."""

    def read(self) -> list[bytes]:
        """Return all records, oldest first."""

    def append(self, record: bytes) -> None:
        """Write a record; it is on the disk when this returns."""

    def replace(self, records: Sequence[bytes]) -> None:
        """Write these records in place of all others, at once or not at all."""

    @property
    def is_long(self) -> bool:
        """Return whether it has grown so much that its owner should replace it by what is still needed."""


class Journal(JournalRecords):
    """A journal in a file, which one process at a time has open; SitesError when another has.

    An incomplete last record, which a power cut leaves, is cut off: nothing has followed from it.
    """

    def __init__(self, path: Path) -> None:
        atomic.make_folder(path.parent)
        self._path = path
        self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SitesError(f"'{path}': another process has this journal open; end it first") from None
        self._file = -1
        try:
            if not path.exists():
                atomic.write(path, lambda file: file.write(_MAGIC), mode=0o600)
            self._records = self._opened()
        except BaseException:
            os.close(self._lock)
            raise

    def read(self) -> list[bytes]:
        """Return the records that the file had when it was opened or replaced."""
        return self._records

    def append(self, record: bytes) -> None:
        """Append a record and put it on the disk; OSError when that is impossible."""
        atomic.append(self._file, _framed(record), sync=True)
        self._grown += len(record)

    def replace(self, records: Sequence[bytes]) -> None:
        """Replace the file by one with these records."""
        atomic.write(self._path, lambda file: file.write(_MAGIC + b"".join(map(_framed, records))), mode=0o600)
        os.close(self._file)
        self._file, self._grown, self._records = atomic.open_log(self._path), 0, list(records)

    @property
    def is_long(self) -> bool:
        """Return whether a mebibyte has been appended since the file was opened or replaced."""
        return self._grown > _ROOM

    def close(self) -> None:
        """Close the file and let other processes open it. May be called repeatedly."""
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    def _opened(self) -> list[bytes]:
        data = self._path.read_bytes()
        if not data.startswith(_MAGIC):
            raise DamagedError(self._path, "it does not begin as a journal of this version", "restore the folder")
        records, place = list[bytes](), len(_MAGIC)
        while place < len(data):
            record = _record_at(data, place)
            if record is None:
                break
            records.append(record)
            place += _FRAME + len(record)
        if place < len(data) and not _is_torn(data, place):
            raise DamagedError(self._path, f"its record at byte {place} has changed", "restore the folder")
        self._file, self._grown = atomic.open_log(self._path), 0
        os.ftruncate(self._file, place)
        return records


def _framed(record: bytes) -> bytes:
    head = _HEAD.pack(len(record), zlib.crc32(record))
    return head + _CHECK.pack(_checksum(head)) + record


def _checksum(head: bytes) -> int:
    # Not from 0: zeros, as a power cut leaves them, would be empty records.
    return zlib.crc32(head, 1)


def _length_at(data: bytes, place: int) -> int | None:
    """Return the length of the record at a place; None where its frame is incomplete or has changed."""
    head = data[place : place + _HEAD.size]
    check = data[place + _HEAD.size : place + _FRAME]
    return int(_HEAD.unpack(head)[0]) if check == _CHECK.pack(_checksum(head)) else None


def _record_at(data: bytes, place: int) -> bytes | None:
    """Return the record at a place; None where it is incomplete or has changed."""
    if (length := _length_at(data, place)) is None:
        return None
    record = data[place + _FRAME : place + _FRAME + length]
    return record if len(record) == length and zlib.crc32(record) == _HEAD.unpack_from(data, place)[1] else None


def _is_torn(data: bytes, place: int) -> bool:
    """Return whether a wrong record may be the last append, torn by a power cut; all others were on the disk before."""
    end = place + _FRAME
    if (length := _length_at(data, place)) is None:
        return end > len(data) or atomic.is_torn(data[place:end], place)
    return end + length > len(data) or (end + length == len(data) and atomic.is_torn(data[place:], place))
