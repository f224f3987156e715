"""The messages that an ask/tell agent has sent and fetched, as files in its folder."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError
from fedbo.algorithms.base import Declaration, Payload
from fedbo.settings.errors import warn_caller
from fedbo.tuning.message_folder import (
    FileName,
    Meeting,
    MessageKeys,
    StoredMessage,
    is_whole,
    largest_file,
    parsed,
    read_message,
)


class MessageStore:
    """Message files in the agent's folder, with the same names as in a meeting: the ones it has sent and fetched.

    They are on the disk before they count, so a failed exchange or a killed process loses none.
    """

    def __init__(
        self, folder: Path, terms: str, place: tuple[int, int], declared: Declaration, keys: MessageKeys | None = None
    ) -> None:
        """Open the folder of an agent at its `place`: its number, and how many agents there are. `keys` sign messages."""
        self._folder, self._terms, self._declared, self._keys = folder, terms, declared, keys
        self._agent, self._agents = place
        names = (path.name for path in folder.glob("*.message")) if folder.is_dir() else ()
        self._names: dict[str, FileName] = {name: found for name in names if (found := parsed(name)) is not None}
        self._read: dict[str, StoredMessage] = {}
        self._told: set[str] = set()  # names of files of which a warning has told why they are left out

    @property
    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        return sorted(self._names)

    def write(self, step: int, payload: Payload) -> None:
        """Store the agent's message of a step, unless there is one; ValueError when it does not match its declaration."""
        if any(each.agent == self._agent and each.step == step for each in self._names.values()):
            return
        try:
            name, data = StoredMessage(self._terms, self._agent, step, payload).file(self._keys)
            self._read[name] = read_message(name, data, self._declared, self._keys)
        except ValueError as error:
            raise ValueError(f"agent {self._agent}: its message of step {step} is invalid: {error}") from None
        self._keep(name, data)

    def exchange(self, meeting: Meeting) -> None:
        """Write the agent's messages that a meeting lacks, and fetch those of others.

        OSError when the meeting cannot be reached. A file that cannot be used is left out with a warning. An incomplete file is
        read again the next time.
        """
        there = meeting.sizes()
        mine = (name for name, each in self._names.items() if each.agent == self._agent)
        # A file of another size was cut short in an earlier upload, and is written again.
        lacking = [name for name in mine if there.get(name) != (self._folder / name).stat().st_size]
        meeting.write({name: self._content(name) for name in lacking})
        self._check_terms(meeting, there)
        for name in sorted(there):
            if name.startswith(self._terms) and name not in self._names and name not in self._told:
                self._fetch(name, there[name], meeting)

    def read(self, name: str) -> StoredMessage:
        """Read a message; ValueError with the remedy when its file is gone or damaged."""
        if name not in self._read:
            path = self._folder / name
            try:
                self._read[name] = read_message(name, self._content(name), self._declared, self._keys)
            except (ValueError, FileNotFoundError) as error:
                raise ValueError(f"'{path}': {error}; copy the file of the same name from the meeting") from None
        return self._read[name]

    def leave_out(self, name: str, why: str, where: object = None) -> None:
        """Warn once that a message is left out."""
        if name not in self._told:
            self._told.add(name)
            warn_caller(f"'{where or self._folder}': {name} is ignored: {why}", RuntimeWarning)

    def _content(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def _keep(self, name: str, data: bytes) -> None:
        atomic.write_bytes(self._folder / name, data)
        found = parsed(name)
        assert found is not None
        self._names[name] = found

    def _fetch(self, name: str, size: int, meeting: Meeting) -> None:
        """Store a message of another agent, if it is complete and can be used."""
        most, found = largest_file(self._declared), parsed(name)
        assert found is not None
        if wrong := self._misplaced(found, size, most):
            self.leave_out(name, wrong, meeting.folder)
            return
        data = meeting.read(name, most)
        if data is None or not is_whole(name, data):
            return
        try:
            self._read[name] = read_message(name, data, self._declared, self._keys)
        except ValueError as error:
            self.leave_out(name, str(error), meeting.folder)
            return
        self._keep(name, data)

    def _misplaced(self, found: FileName, size: int, most: int) -> str | None:
        """Return why a file cannot be used whatever its content; None if it can."""
        if found.agent == self._agent:
            words = f"agent {self._agent} did not send it: another site uses its number, or this folder is an old copy"
            return f"{words}; set another number, or restore the folder"
        if found.agent >= self._agents:
            return f"there are {self._agents} agents, numbered from 0 to {self._agents - 1}"
        return f"it has {size:,} bytes, but at most {most:,} are allowed" if size > most else None

    def _check_terms(self, meeting: Meeting, there: dict[str, int]) -> None:
        """Warn if all other agents have other terms. A single file of a stranger must not stop an agent."""
        others = [found for name in there if (found := parsed(name)) is not None and found.agent != self._agent]
        if others and all(each.terms != self._terms for each in others):
            self.leave_out(
                "every message", "its terms differ from ours; set the same space and terms at all sites", meeting.folder
            )


def secret_step(folder: Path, begun: bool) -> int:
    """Return the agent's secret: 62 random bits, drawn once and kept in its folder; warn where one that has `begun` lacks it.

    All sites know the seed of the terms, so they could repeat the random draws of a message. The secret prevents this: it is
    added to the step, which is part of the counter of the random streams.
    """
    path = folder / "draws.key"
    if not path.is_file():
        if begun:
            words = "is missing, and another secret was drawn: messages that are drawn again may reveal more than one did"
            warn_caller(f"'{path}': {words}; restore a copy of the file before the agent goes on", RuntimeWarning)
        drawn = str(secrets.randbits(62)).encode()
        atomic.write(path, lambda file: file.write(drawn + b" " + _sum(drawn)), new=True, mode=0o600)
    step, _, noted = path.read_bytes().partition(b" ")
    if _sum(step) != noted:
        raise DamagedError(path, "its checksum differs from its content", "restore a copy of the file, or open a new folder")
    return int(step)


def _sum(step: bytes) -> bytes:
    return hashlib.sha256(step).hexdigest().encode()
