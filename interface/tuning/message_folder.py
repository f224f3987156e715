"""A folder through which ask/tell agents exchange messages: on any storage, or copied between machines, without locks.

A file holds one message. Its sender alone writes it, once, and its name ends with the SHA-256 of its content: so it does not
matter how late files arrive, in which order, how often and under what other names, and one that is cut short is not taken
for whole.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from fedbo.actors.storage import atomic
from fedbo.actors.storage.checkpoint import CheckpointError, pack, unpack
from fedbo.algorithms.base import Algorithm, Declaration, Inbound, Payload, Problem
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.messages import fault
from fedbo.study.storage import reached

_NAME = re.compile(r"([0-9a-f]{16})-(\d{5,})-(\d{6,})-([0-9a-f]{64})\.message")


class FileName(NamedTuple):
    """What the name of a message's file says: its terms, its sender, the sender's step, and the SHA-256 of its content."""

    terms: str
    agent: int
    step: int
    digest: str


class StoredMessage(NamedTuple):
    """A message of an agent after one of its steps, under terms that are given by their digest."""

    terms: str
    agent: int
    step: int
    payload: Payload

    def file(self) -> tuple[str, bytes]:
        """Give the name of its file and the content."""
        data = pack(self)
        return f"{self.terms}-{self.agent:05d}-{self.step:06d}-{hashlib.sha256(data).hexdigest()}.message", data


def parsed(name: str) -> FileName | None:
    """Read the name of a file; None when it is not that of a message."""
    found = _NAME.fullmatch(name)
    return None if found is None else FileName(found[1], int(found[2]), int(found[3]), found[4])


def is_whole(name: str, data: bytes) -> bool:
    """Say whether this is the content that a name promises."""
    found = parsed(name)
    return found is not None and hashlib.sha256(data).hexdigest() == found.digest


def read_message(name: str, data: bytes, declared: Declaration) -> StoredMessage:
    """Read the content of a file that is whole; ValueError when it is no message as declared and as the name says."""
    try:
        message = unpack(data)
    except CheckpointError as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, StoredMessage) or parsed(name) != (*message[:3], hashlib.sha256(data).hexdigest()):
        raise ValueError("it is no message of the agent and the step in its name")
    if wrong := fault(message.payload, declared):
        raise ValueError(wrong)
    return message


class Meeting:
    """A folder that holds messages only, for several sites at once; each may have a copy of it that is synchronised.

    `folder` is a path of this machine, an address such as "s3://bucket/folder", or a path in a `filesystem` of pyarrow.
    ValueError when an address cannot be read. Nothing is ever changed or removed there.
    """

    def __init__(self, folder: str | Path, filesystem: FileSystem | None = None) -> None:
        self.folder = folder
        self._files, self._path = reached(folder, filesystem)

    def sizes(self) -> dict[str, int]:
        """List the names of all messages with the sizes of their files; OSError when the folder cannot be reached."""
        found = self._files.get_file_info(FileSelector(self._path, allow_not_found=True))
        return {each.base_name: each.size for each in found if each.is_file and parsed(each.base_name) is not None}

    def read(self, name: str) -> bytes | None:
        """Read a file, whole or not; None when it is gone; OSError when the folder cannot be reached."""
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as file:
                data: bytes = file.read()
        except FileNotFoundError:
            return None
        return data

    def write(self, files: dict[str, bytes]) -> None:
        """Write files; OSError when the folder cannot be reached. On a disk of this machine they appear whole, and stay."""
        if isinstance(self._files, LocalFileSystem):
            for name, data in files.items():
                atomic.write_bytes(Path(self._path) / name, data)
            return
        if files:
            self._files.create_dir(self._path, recursive=True)
        for name, data in files.items():
            with self._files.open_output_stream(f"{self._path}/{name}") as file:
                file.write(data)


def answer_to(
    agent: int, step: int, messages: dict[str, StoredMessage], half: tuple[Algorithm, Problem, Streams]
) -> tuple[Inbound, ...]:
    """Carry out the coordinator's half for an agent: what a set of messages, given by the names of their files, tells it.

    Each message counts once, in the order of steps and then of agents, so that it does not matter in which order they came. Of
    two with the same sender and step the first by name counts. `half` is what the coordinator knows beforehand.
    """
    algorithm, problem, streams = half
    state, counted = algorithm.server_init(problem), set[tuple[int, int]]()
    for _, each in sorted(messages.items(), key=lambda item: (item[1].step, item[1].agent, item[0])):
        if (each.step, each.agent) not in counted:
            counted.add((each.step, each.agent))
            state = algorithm.receive(state, Inbound(each.agent, each.step, float(each.step), each.payload), float(each.step))
    answers, _ = algorithm.broadcast(state, [agent], np.ones(problem.n_agents), streams.of(COORDINATOR).at(step))
    return (Inbound(COORDINATOR, step, float(step), answers[agent]),) if agent in answers else ()
