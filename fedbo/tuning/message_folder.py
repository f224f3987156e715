"""A folder through which ask/tell agents exchange messages: on any storage, or copied between machines, without locks.

A file holds one message. Only its sender writes it, once, and its name ends with the SHA-256 of its content. So files may
arrive late, in any order, repeatedly and under other names, and an incomplete one is detected. Where the terms list public
keys, each file is signed with its sender's. Otherwise nothing proves who wrote a file: all who can write into the folder are
trusted to use their own numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from fedbo.actors.storage import atomic
from fedbo.actors.storage.checkpoint import CheckpointError, ReadBounds, pack, unpack
from fedbo.algorithms.base import LARGEST, Algorithm, Declaration, Inbound, Payload, Problem
from fedbo.algorithms.messages import declared_size, fault, longest, named
from fedbo.algorithms.returned import check_message, pair, updated
from fedbo.algorithms.reveals import Reveals, read_reveals, revealed_by
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.arguments import path
from fedbo.settings.errors import ArgumentError
from fedbo.settings.own_code import ReturnError
from fedbo.sites.errors import SignatureError
from fedbo.sites.keys import SIGNATURE_BYTES, PrivateKey, PublicKey
from fedbo.study.storage import reached

_NAME = re.compile(r"([0-9a-f]{16})-(\d{5,9})-(\d{6,9})-([0-9a-f]{64})\.message")
_NODES = 2**16  # bytes of a message's file that are not its arrays; some 300 are needed


_SIGNED = b"fedbo signed message 1\n"


class MessageKeys(NamedTuple):
    """The keys of a meeting whose messages are signed.

    - `terms`: digest of the terms, which a signature covers, so that no message passes for one of another meeting.
    - `public`: the key of each agent; `own`: this agent's private key, None for one that only reads.
    """

    terms: str
    public: tuple[PublicKey, ...]
    own: PrivateKey | None

    def signed(self, data: bytes) -> bytes:
        """Return the signed content of a file; ValueError without a key of one's own."""
        if self.own is None:
            raise ValueError("its terms list keys; open the agent with fedbo.Meeting(folder, key='site.key')")
        return _SIGNED + self.own.sign(self._text(data)) + data

    def opened(self, agent: int, data: bytes) -> bytes:
        """Return what an agent has signed; ValueError unless it did."""
        head = len(_SIGNED) + SIGNATURE_BYTES
        try:
            if not data.startswith(_SIGNED) or not 0 <= agent < len(self.public):
                raise SignatureError("there is no signature")
            self.public[agent].verify(self._text(data[head:]), data[len(_SIGNED) : head])
        except SignatureError:
            raise ValueError(f"it is not signed with the key that the terms list for agent {agent}") from None
        return data[head:]

    def _text(self, data: bytes) -> bytes:
        return _SIGNED + self.terms.encode() + b"\n" + data


class FileName(NamedTuple):
    """The parts of a message file's name: its terms, its sender, the sender's step, and the SHA-256 of its content."""

    terms: str
    agent: int
    step: int
    digest: str


class StoredMessage(NamedTuple):
    """A message of an agent after one of its steps, under terms identified by their digest."""

    terms: str
    agent: int
    step: int
    payload: Payload

    def file(self, keys: MessageKeys | None = None) -> tuple[str, bytes]:
        """Return the name and the content of its file, signed if there are `keys`."""
        data = pack(self) if keys is None else keys.signed(pack(self))
        return f"{self.terms}-{self.agent:05d}-{self.step:06d}-{hashlib.sha256(data).hexdigest()}.message", data


def parsed(name: str) -> FileName | None:
    """Return the parts of a file's name; None when it is not a message's name."""
    found = _NAME.fullmatch(name)
    return None if found is None else FileName(found[1], int(found[2]), int(found[3]), found[4])


def is_whole(name: str, data: bytes) -> bool:
    """Return whether a content matches the digest in its file's name."""
    found = parsed(name)
    return found is not None and hashlib.sha256(data).hexdigest() == found.digest


def largest_file(declared: Declaration) -> int:
    """Return the largest size in bytes of a message's file."""
    return declared_size(declared, longest(declared)) + _NODES


def read_message(name: str, data: bytes, declared: Declaration, keys: MessageKeys | None = None) -> StoredMessage:
    """Read the content of a complete file.

    ValueError when its sender did not sign it, or the message does not match its declaration or the name.
    """
    found = parsed(name)
    content = data if keys is None or found is None else keys.opened(found.agent, data)
    try:
        message = unpack(content, ReadBounds(_NODES, largest_file(declared), (StoredMessage,)))
    except CheckpointError as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, StoredMessage) or found != (*message[:3], hashlib.sha256(data).hexdigest()):
        raise ValueError("its content does not match the agent and the step in its name")
    if wrong := fault(message.payload, declared, LARGEST):
        raise ValueError(wrong)
    return message


class Meeting:
    """A folder with messages only, shared by several sites; each site may have a synchronised copy of it.

    `folder` is a path of this machine, an address such as "s3://bucket/folder", or a path in a `filesystem` of pyarrow.
    `reveals` is the most that messages may reveal of observations; an agent whose algorithm declares more is refused. It is
    "draws" unless you accept "computable" or "observations". `key` is the file of this site's private key, made by
    `fedbo site new`, if the terms list public keys. Without keys, everybody who can write there is trusted to use their own
    number. ArgumentError when an address cannot be read. No file is ever changed or removed there.
    """

    def __init__(
        self,
        folder: str | Path,
        filesystem: FileSystem | None = None,
        *,
        reveals: str = Reveals.DRAWS,
        key: str | Path | None = None,
    ) -> None:
        path("folder", folder)
        self.key = None if key is None else Path(path("key", key, "file"))
        try:
            self.folder, self.reveals = folder, read_reveals(reveals)
            self._files, self._path = reached(folder, filesystem)
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    def __repr__(self) -> str:
        """Return the folder, and the most that messages may reveal."""
        return f"<Meeting in '{self.folder}', reveals at most {self.reveals}>"

    def check(self, algorithm: Algorithm, name: str) -> None:
        """Raise ArgumentError when an algorithm's messages reveal more than the meeting accepts."""
        declared = revealed_by(algorithm)
        if declared.exceeds(self.reveals):
            remedy = f"open the meeting with reveals = '{declared}' to accept that"
            raise ArgumentError(f"algorithm = '{name}': {declared.meaning}; {remedy}")

    def check_key(self, number: int, keys: Sequence[str]) -> None:
        """Raise ArgumentError unless this site's key is the one that the terms list for its agent, or there are none."""
        if self.key is None and not keys:
            return
        if self.key is None:
            raise ArgumentError("key = None: the terms list keys; write fedbo.Meeting(folder, key='site.key')")
        if not keys:
            raise ArgumentError(f"key = '{self.key}': the terms list no keys; set keys in fedbo.Terms, one for each agent")
        if (own := PrivateKey.read(self.key).public.hex) != keys[number]:
            words = f"its public key is {own}, which is not number {number} of the terms; correct keys in fedbo.Terms"
            raise ArgumentError(f"key = '{self.key}': {words}")

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all message files by name; OSError when the folder cannot be reached."""
        found = self._files.get_file_info(FileSelector(self._path, allow_not_found=True))
        return {each.base_name: each.size for each in found if each.is_file and parsed(each.base_name) is not None}

    def read(self, name: str, most: int) -> bytes | None:
        """Read at most `most` bytes of a file; None when it is gone, OSError when the folder cannot be reached."""
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as file:
                data: bytes = file.read(most)
        except FileNotFoundError:
            return None
        return data

    def write(self, files: dict[str, bytes]) -> None:
        """Write files; OSError when the folder cannot be reached. On a local disk they appear complete and are synced."""
        if isinstance(self._files, LocalFileSystem):
            for name, data in files.items():
                atomic.write_bytes(Path(self._path) / name, data)
            return
        if files:
            self._files.create_dir(self._path, recursive=True)
        for name, data in files.items():
            with self._files.open_output_stream(f"{self._path}/{name}") as file:
                file.write(data)


class Answered(NamedTuple):
    """The answer to a set of messages, and the reasons why some of them were left out, by the names of their files."""

    inbox: tuple[Inbound, ...]
    left_out: dict[str, str]


def answer_to(agent: int, step: int, messages: dict[str, StoredMessage], half: tuple[Algorithm, Problem, Streams]) -> Answered:
    """Run the coordinator's part for an agent on a set of messages, by the names of their files.

    Messages count in the order of steps and then of agents, whatever order they arrived in. Two different messages with the
    same sender and step are both left out, since nobody can know which is genuine. So is a message that makes the coordinator's
    part raise an error, as hostile numbers may. `half` is what the coordinator knows beforehand.
    """
    genuine, left_out = _genuine(messages)
    try:
        return Answered(_answer(agent, step, [messages[name] for name in genuine], half), left_out)
    except ReturnError:  # of the author of the algorithm
        raise
    except Exception:  # noqa: BLE001 -- of a message of anybody; its sender is named below
        pass
    # Some message makes the algorithm fail: adding them one by one finds which.
    kept: list[str] = []
    for name in genuine:
        try:
            _answer(agent, step, [messages[each] for each in (*kept, name)], half)
        except Exception as error:  # noqa: BLE001
            left_out[name] = f"the algorithm cannot use it: {named(error)}"
        else:
            kept.append(name)
    return Answered(_answer(agent, step, [messages[name] for name in kept], half), left_out)


def _genuine(messages: dict[str, StoredMessage]) -> tuple[list[str], dict[str, str]]:
    """Return the names of messages in order, and those that share sender and step, with the reason."""
    order = sorted(messages, key=lambda name: (messages[name].step, messages[name].agent, name))
    count = Counter((messages[name].agent, messages[name].step) for name in order)
    left_out = {
        name: f"there are {number} different messages of agent {messages[name].agent} after its step {messages[name].step}"
        for name in order
        if (number := count[messages[name].agent, messages[name].step]) > 1
    }
    return [name for name in order if name not in left_out], left_out


def _answer(
    agent: int, step: int, messages: list[StoredMessage], half: tuple[Algorithm, Problem, Streams]
) -> tuple[Inbound, ...]:
    algorithm, problem, streams = half
    state = algorithm.server_init(problem)
    for each in messages:
        inbound = Inbound(each.agent, each.step, float(each.step), each.payload)
        state = updated(algorithm, "receive", state, inbound, float(each.step))
    answers, _ = pair(algorithm, "broadcast", state, [agent], np.ones(problem.n_agents), streams.of(COORDINATOR).at(step))
    if agent not in answers:
        return ()
    check_message(algorithm, "broadcast", answers[agent], algorithm.download(problem))
    return (Inbound(COORDINATOR, step, float(step), answers[agent]),)
