"""The log of an ask/tell agent: lines of JSON, each on disk before the call returns."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedbo.actors.storage.run_folder import append_whole
from fedbo.execution.directory import locked

LogEntry = dict[str, Any]


class AskLog:
    """The log in a folder, which one process at a time may have open; `entries` are those found at opening.

    Its first line is the `head`, which says of what it is the log. ValueError when it is of something else, DirectoryError when
    another process has it open.
    """

    def __init__(self, folder: Path, head: LogEntry) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._held = ExitStack()
        self._held.enter_context(locked(folder))
        path = folder / "log.jsonl"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._held.callback(os.close, self._file)
        whole, _, cut = path.read_bytes().rpartition(b"\n")
        if cut:  # its writer was killed before it returned
            os.ftruncate(self._file, len(whole) + 1 if whole else 0)
        found: list[LogEntry] = [json.loads(line) for line in whole.splitlines()]
        if found and found[0] != head:
            self.close()
            raise ValueError(
                f"'{folder}': was made with another space, other terms or another number; give those, or a new folder"
            )
        if not found:
            self.append(head)
        self.entries = found[1:]

    def append(self, entry: LogEntry) -> None:
        """Write an entry down for good; OSError when the disk is full."""
        append_whole(self._file, json.dumps(entry).encode() + b"\n")
        os.fsync(self._file)

    def close(self) -> None:
        """Let others open it; it may be called again."""
        self._held.close()
