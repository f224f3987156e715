"""Whatever somebody writes into a meeting, agents go on, say once what they leave out, and can be opened again."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_hostile_messages import FEW, HOSTILE_MESSAGES

import fedbo
from fedbo.actors.storage.checkpoint import FRAME, LENGTHS, MAGIC, CheckpointError, ReadBounds, pack, unpack
from fedbo.algorithms.base import Field, Overlapping, Private, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.tuning.message_folder import Meeting, StoredMessage, largest_file, read_message

SPACE = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
MEETING = Problem(2, 3, range(3), 2, 10**6, rounds=False)


def can_meet(name: str) -> bool:
    made: Any = entry(name).make()
    return isinstance(made, Overlapping) and made.queries == 1 and not isinstance(made, Private) and bool(made.upload(MEETING))


MEET = [name for name in algorithms() if can_meet(name)]


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of overflows, and of what is left out
        yield


def play(agent: fedbo.Agent, steps: int = 1) -> None:
    for _ in range(steps):
        (asked,) = agent.ask()
        assert all(np.isfinite(value) for value in asked.configuration.values())
        agent.tell(asked.token, -((asked.configuration["a"] - 0.3) ** 2))


def written(agent: fedbo.Agent, number: int, step: int, payload: Any) -> dict[str, bytes]:
    return dict([StoredMessage(agent._digest[:16], number, step, payload).file()])


def check(name: str, messages: tuple[str, ...], folder: Path) -> None:
    """Play two agents while a third one's files are hostile, with one sound file among them, and open both again."""
    terms = fedbo.Terms({"name": name, "every": 1}, agents=3, initial=2)
    meeting = Meeting(folder / "meeting", reveals="observations")
    agents = [fedbo.Agent(folder / str(number), SPACE, terms, number, meeting) for number in range(2)]
    for agent in agents:
        play(agent, 2)
    declared = entry(name).make().upload(MEETING) or {}
    sound = next(iter((folder / "0" / "messages").iterdir()))
    payload = dict(read_message(sound.name, sound.read_bytes(), declared).payload)
    for step, message in enumerate(messages):
        try:
            meeting.write(written(agents[0], 2, step, HOSTILE_MESSAGES[message](declared, payload)))
        except CheckpointError:  # what cannot be written as a file
            continue
        for agent in agents:
            play(agent)
    for agent in agents:
        agent.close()
    for number in range(2):
        with fedbo.Agent(folder / str(number), SPACE, terms, number, meeting) as again:
            play(again, 2)
            assert again.best() is not None


@pytest.mark.parametrize("name", ["fts", pytest.param("share_best", marks=pytest.mark.long)])
def test_hostile_files_end_nothing(name: str, tmp_path: Path) -> None:
    check(name, FEW, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", MEET)
def test_no_hostile_file_ends_a_meeting_of_any_method(name: str, tmp_path: Path) -> None:
    check(name, tuple(HOSTILE_MESSAGES), tmp_path)


def test_a_message_of_an_agent_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    meeting, terms = Meeting(tmp_path / "meeting"), fedbo.Terms("fts", agents=3, initial=1)
    with fedbo.Agent(tmp_path / "0", SPACE, terms, 0, meeting) as agent:
        meeting.write(written(agent, 77, 0, {"omega": np.zeros(100)}))
        with pytest.warns(RuntimeWarning, match="00077-.* is ignored: there are 3 agents, numbered from 0 to 2") as told:
            play(agent, 3)
        assert len([one for one in told if "ignored" in str(one.message)]) == 1
    with fedbo.Agent(tmp_path / "0", SPACE, terms, 0, meeting) as agent:
        play(agent)


def bomb(name: str) -> bytes:
    """Return a small file that asks for gigabytes: nodes that inflate, or rows of a pool, each written once."""
    if name == "nodes":
        nodes, extra = zlib.compress(b"N" * 2**26, 9), b""
        body = LENGTHS.pack(2**31, len(nodes), 0) + nodes + extra
    else:
        row = np.zeros(2**17)  # one megabyte, named by four bytes as often as its sender likes
        whole = pack(StoredMessage("a" * 16, 2, 0, {"x": np.zeros((64, 2**17))}))
        body = whole[len(MAGIC) + FRAME.size :]
        length, packed, pools = LENGTHS.unpack_from(body)
        nodes = bytearray(zlib.decompress(body[LENGTHS.size : LENGTHS.size + packed]))
        place = nodes.index(struct.pack("<QQ", 64, 2**17))
        nodes[place : place + 8] = struct.pack("<Q", 2**16)
        smaller = zlib.compress(bytes(nodes), 1)
        widths = struct.pack("<QQ", row.nbytes, 1)
        body = LENGTHS.pack(length, len(smaller), pools) + smaller + widths + row.tobytes() + bytes(4 * 2**16)
    return MAGIC + FRAME.pack(len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize("name", ["rows", pytest.param("nodes", marks=pytest.mark.long)])
def test_a_small_file_that_asks_for_gigabytes_is_refused_before_they_are_taken(name: str) -> None:
    data, declared = bomb(name), {"x": Field((64, 2))}
    file = f"{'a' * 16}-00002-000000-{hashlib.sha256(data).hexdigest()}.message"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="at most 65536 are allowed|exceed the allowed number of bytes|lie outside|not as"):
            read_message(file, data, declared)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_a_file_larger_than_its_declaration_allows_is_not_read(tmp_path: Path) -> None:
    meeting, terms = Meeting(tmp_path / "meeting"), fedbo.Terms("fts", agents=3, initial=1)
    with fedbo.Agent(tmp_path / "0", SPACE, terms, 0, meeting) as agent:
        meeting.write(written(agent, 1, 0, {"omega": np.random.default_rng(0).random(10**6)}))
        most = largest_file(entry("fts").make().upload(MEETING) or {})
        with pytest.warns(RuntimeWarning, match=f"is ignored: it has 8,.* bytes, but at most {most:,} are allowed"):
            play(agent, 2)
        assert most < 2**17


def test_a_file_may_name_no_class_but_that_of_messages() -> None:
    data = pack(MEETING)
    assert unpack(data).n_agents == 3
    with pytest.raises(CheckpointError, match="a class that is not allowed here"):
        unpack(data, ReadBounds(2**16, 2**20, (StoredMessage,)))
