"""The messages that an ask/tell agent has sent and fetched, as files in its own folder."""

from __future__ import annotations

import warnings
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.algorithms.base import Declaration, Payload
from fedbo.tuning.message_folder import FileName, Meeting, StoredMessage, is_whole, parsed, read_message


class MessageStore:
    """Files like those of a meeting, in a folder of the agent's own: what it has sent, and what it has fetched from others.

    They are on the disk before they count, so that an exchange that fails, or a process that is killed, loses none.
    """

    def __init__(self, folder: Path, terms: str, agent: int, declared: Declaration) -> None:
        self._folder, self._terms, self._agent, self._declared = folder, terms, agent, declared
        names = (path.name for path in folder.glob("*.message")) if folder.is_dir() else ()
        self._names: dict[str, FileName] = {name: found for name in names if (found := parsed(name)) is not None}
        self._read: dict[str, StoredMessage] = {}
        self._refused: set[str] = set()

    @property
    def names(self) -> list[str]:
        """List the files, in the order of their names."""
        return sorted(self._names)

    def write(self, step: int, payload: Payload) -> None:
        """Keep the agent's message of a step, unless there is one; ValueError when it is not as declared."""
        if any(each.agent == self._agent and each.step == step for each in self._names.values()):
            return
        name, data = StoredMessage(self._terms, self._agent, step, payload).file()
        try:
            self._read[name] = read_message(name, data, self._declared)
        except ValueError as error:
            raise ValueError(f"agent {self._agent}: its message of step {step} is refused: {error}") from None
        self._keep(name, data)

    def exchange(self, meeting: Meeting) -> None:
        """Give a meeting what it lacks of the agent's own messages, and fetch those of others.

        OSError when it cannot be reached. ValueError when another agent there has the same number, or when all others have
        other terms. A file that is not whole is left for the next time.
        """
        there = meeting.sizes()
        self._check(meeting, there)
        mine = (name for name, each in self._names.items() if each.agent == self._agent)
        lacking = [name for name in mine if there.get(name) != (self._folder / name).stat().st_size]
        meeting.write({name: self._content(name) for name in lacking})
        for name in sorted(there):
            if name.startswith(self._terms) and name not in self._names and name not in self._refused:
                data = meeting.read(name)
                if data is not None and is_whole(name, data):
                    self._take(name, data, meeting)

    def read(self, name: str) -> StoredMessage:
        """Read a message; ValueError when its file is gone or damaged, with the remedy."""
        if name not in self._read:
            path = self._folder / name
            try:
                self._read[name] = read_message(name, self._content(name), self._declared)
            except (ValueError, FileNotFoundError) as error:
                raise ValueError(f"'{path}': {error}; copy it from the meeting, where it has the same name") from None
        return self._read[name]

    def _content(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def _keep(self, name: str, data: bytes) -> None:
        atomic.write_bytes(self._folder / name, data)
        found = parsed(name)
        assert found is not None
        self._names[name] = found

    def _take(self, name: str, data: bytes, meeting: Meeting) -> None:
        """Keep a message of another agent; one that cannot be used never will be, and is told of once."""
        try:
            self._read[name] = read_message(name, data, self._declared)
        except ValueError as error:
            self._refused.add(name)
            warnings.warn(f"'{meeting.folder}': {name} is left out: {error}", RuntimeWarning, stacklevel=2)
            return
        self._keep(name, data)

    def _check(self, meeting: Meeting, there: dict[str, int]) -> None:
        named = {name: found for name in there if (found := parsed(name)) is not None}
        others = [each for each in named.values() if each.agent != self._agent]
        if others and all(each.terms != self._terms for each in others):
            raise ValueError(f"'{meeting.folder}': other terms hold here; let all its agents have the same space and terms")
        for name, each in named.items():
            if each[:2] == (self._terms, self._agent) and name not in self._names:
                words = f"holds messages of another agent {self._agent}, or of this one's folder before it was lost"
                raise ValueError(f"'{meeting.folder}': {words}; give every agent a number of its own, or restore that folder")
