"""Meetings without locks: files that are late, doubled, out of order or cut short, on several kinds of storage."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import fs
from synchronised import Synchroniser

import fedbo
from fedbo.algorithms.base import Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.tuning.message_folder import Meeting, StoredMessage, answer_to
from fedbo.tuning.messages import MessageStore

SITES, DECLARED = 5, {"x": Field((3,))}
PROBLEM = Problem(1, SITES, tuple(range(SITES)), 0, 10)
SPACE: dict[str, Any] = {"rate": (1e-4, 1.0), "n": (1, 30)}


class Ledger:
    """A coordinator's half for which every message counts, and their order too."""

    def download(self, problem: Problem) -> Declaration:
        return {"counted": Field((None, 2), "int64"), "total": Field((1,))}

    def server_init(self, problem: Problem) -> tuple[list[tuple[int, int]], float]:
        return [], 0.0

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        counted, total = state
        return [*counted, (message.step, message.sender)], 0.7 * total + float(message.payload["x"].sum())

    def broadcast(self, state: Any, recipients: Sequence[int], worth: Any, streams: Streams) -> tuple[dict[int, Payload], Any]:
        return dict.fromkeys(recipients, {"counted": np.array(state[0]), "total": np.array([state[1]])}), state


def answers(store: MessageStore, taken: Sequence[str]) -> bytes:
    half: Any = (Ledger(), PROBLEM, Streams(0))
    ((_, _, _, payload),) = answer_to(0, 0, {name: store.read(name) for name in taken}, half).inbox
    assert len(payload["counted"]) == len({(int(step), int(agent)) for step, agent in payload["counted"]})
    return bytes(payload["counted"].tobytes() + payload["total"].tobytes())


def lives(seed: int, steps: int) -> Iterator[tuple[int, int, Payload]]:
    """List who sends what at which of its steps, of sites that are of unlike speed."""
    rng, done = np.random.default_rng(seed), [0] * SITES
    for site in rng.choice(SITES, size=SITES * steps, p=[0.4, 0.25, 0.2, 0.1, 0.05]):
        yield int(site), done[site], {"x": np.random.default_rng([seed, site, done[site]]).random(3)}
        done[site] += 1


def stores(root: Path) -> list[MessageStore]:
    return [MessageStore(root / f"site {site}", "a" * 16, (site, SITES), DECLARED) for site in range(SITES)]


def check_against_one_folder(tmp_path: Path, seed: int, steps: int) -> dict[str, int]:
    together, shared = stores(tmp_path / "together"), Meeting(tmp_path / "shared")
    for site, step, payload in lives(seed, steps):
        together[site].write(step, payload)
        together[site].exchange(shared)
    apart, copies = stores(tmp_path / "apart"), [tmp_path / "copies" / str(site) for site in range(SITES)]
    meetings, between, rng = [Meeting(folder) for folder in copies], Synchroniser(copies, seed), np.random.default_rng(seed)
    for site, step, payload in lives(seed, steps):
        apart[site].write(step, payload)
        if rng.random() < 0.7:
            apart[site].exchange(meetings[site])
        if rng.random() < 0.5:
            between.tick()
        if rng.random() < 0.1:  # its process has ended, and another one goes on
            apart[site] = stores(tmp_path / "apart")[site]
    for _ in range(2):
        for site in range(SITES):
            apart[site].exchange(meetings[site])
            together[site].exchange(shared)
        between.tick(settle=True)
    for one, other in zip(together, apart, strict=True):
        assert one.names == other.names and len(one.names) == SITES * steps
        assert answers(one, one.names) == answers(other, other.names[::-1])
    return between.done


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4, 5))])
def test_badly_synchronised_copies_come_to_what_one_folder_comes_to(seed: int, tmp_path: Path) -> None:
    done = check_against_one_folder(tmp_path, seed, 4)
    assert all(done[kind] for kind in ("late", "cut", "doubled", "whole"))


@pytest.mark.long
@pytest.mark.parametrize(("seeds", "steps"), [(range(100, 200), 4), (range(200, 203), 60)])
def test_many_and_long_series_of_badly_synchronised_copies(seeds: range, steps: int, tmp_path: Path) -> None:
    for seed in seeds:
        check_against_one_folder(tmp_path / str(seed), seed, steps)


def play(agent: fedbo.Agent, count: int = 1) -> None:
    for _ in range(count):
        (one,) = agent.ask()
        agent.tell(one.token, -((one.configuration["rate"] - 0.3) ** 2) - 0.01 * one.configuration["n"])


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_agents_with_badly_synchronised_folders_lose_nothing_and_count_nothing_twice(seed: int, tmp_path: Path) -> None:
    """Agents that follow their own surrogate send the same whatever they hear, and so the same as with one folder."""
    steps = 3 if seed else 2
    terms = fedbo.Terms({"name": "fts", "p": 1.0, "features": 10}, agents=SITES, seed=seed, initial=1)
    copies = [tmp_path / "copies" / str(site) for site in range(SITES)]
    places = {"one": [tmp_path / "shared"] * SITES, "apart": copies}
    between, rng = Synchroniser(copies, seed), np.random.default_rng(seed)
    for name, folders in places.items():
        for k in range(SITES):  # else the draws in messages would differ
            (tmp_path / name / str(k)).mkdir(parents=True)
            (tmp_path / name / str(k) / "draws.key").write_text(f"{k} {hashlib.sha256(str(k).encode()).hexdigest()}")
        agents = [fedbo.Agent(tmp_path / name / str(k), SPACE, terms, k, Meeting(folder)) for k, folder in enumerate(folders)]
        for _ in range(steps):
            for place, agent in enumerate(agents):
                play(agent)
                if name == "apart" and rng.random() < 0.5:
                    between.tick()
                if rng.random() < 0.2:
                    agent.close()
                    agents[place] = fedbo.Agent(agent.folder, SPACE, terms, place, Meeting(folders[place]))
        for _ in range(2):
            between.tick(settle=True)
            for agent in agents:
                agent.exchange()
        assert not any(agent.exchange() for agent in agents), "there is no news any more"
        for agent in agents:
            agent.close()
    sent = {
        name: [{path.name for path in (tmp_path / name / str(k) / "messages").iterdir()} for k in range(SITES)]
        for name in places
    }
    assert sent["one"] == sent["apart"] and all(len(names) == SITES * steps for names in sent["one"])
    for k in range(SITES):
        taken = [name for entry in log(tmp_path / "apart" / str(k)) for name in entry.get("took", ())]
        assert len(taken) == len(set(taken)) and set(taken) == sent["apart"][k]


def test_an_agent_goes_on_by_its_log_and_its_messages_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    terms, meeting = fedbo.Terms({"name": "fts", "p": 0.0}, agents=2, seed=3, initial=2), Meeting(tmp_path / "shared")
    with (
        fedbo.Agent(tmp_path / "0", SPACE, terms, 0, meeting) as other,
        fedbo.Agent(tmp_path / "1", SPACE, terms, 1, meeting) as agent,
    ):
        for _ in range(5):
            play(other)
            play(agent)
        expected = [one.configuration for one in agent.ask(2)]
    lines = (tmp_path / "1" / "log.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "1" / "log.jsonl").write_text("".join(lines[:-2]))
    (tmp_path / "1" / "state.checkpoint").unlink()
    with fedbo.Agent(tmp_path / "1", SPACE, terms, 1, meeting) as agent:
        assert [one.configuration for one in agent.ask(2)] == expected


def test_what_could_not_be_sent_is_sent_later(tmp_path: Path) -> None:
    terms, place = fedbo.Terms("fts", agents=2, initial=1), tmp_path / "mounted"
    place.touch()  # cannot create a folder there
    with fedbo.Agent(tmp_path / "0", SPACE, terms, 0, Meeting(place / "shared")) as agent:
        for _ in range(3):
            with pytest.raises(OSError, match="Not a directory"):
                play(agent)
        assert len(agent.pending()) == 0 and agent.best() is not None
        place.unlink()
        assert agent.exchange()
    assert [name.split("-")[2] for name in sorted(Meeting(place / "shared").sizes())] == ["000000", "000001", "000002"]
    with (
        fedbo.Agent(tmp_path / "alone", SPACE, terms) as alone,
        pytest.raises(ValueError, match="this agent has no meeting; pass a meeting"),
    ):
        alone.exchange()


def test_a_file_that_was_cut_short_by_a_kill_is_written_again(tmp_path: Path) -> None:
    one, other = stores(tmp_path)[:2]
    meeting = Meeting(tmp_path / "shared")
    one.write(0, {"x": np.arange(3.0)})
    one.exchange(meeting)
    (path,) = (tmp_path / "shared").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    other.exchange(meeting)
    assert other.names == []
    stores(tmp_path)[0].exchange(meeting)
    other.exchange(meeting)
    assert other.names == one.names == [path.name]


def filesystems(tmp_path: Path) -> Iterator[tuple[str, fs.FileSystem]]:
    (tmp_path / "tree").mkdir()
    yield "meeting", fs.SubTreeFileSystem(str(tmp_path / "tree"), fs.LocalFileSystem())
    yield "bucket/meeting", fs._MockFileSystem()
    fsspec = pytest.importorskip("fsspec")
    yield "bucket/meeting", fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("memory")))


def test_any_filesystem_of_pyarrow_carries_a_meeting(tmp_path: Path) -> None:
    for number, (folder, filesystem) in enumerate(filesystems(tmp_path)):
        sites = stores(tmp_path / str(number))
        for site, step, payload in lives(number, 2):
            sites[site].write(step, payload)
            sites[site].exchange(Meeting(folder, filesystem))
        for site in sites:
            site.exchange(Meeting(folder, filesystem))
        assert all(site.names == sites[0].names and len(site.names) == 2 * SITES for site in sites)
    assert isinstance(Meeting((tmp_path / "local").as_uri())._files, fs.LocalFileSystem)


def test_a_meeting_is_copied_and_sent_to_other_processes(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path)
    for same in (copy.deepcopy(meeting), pickle.loads(pickle.dumps(meeting))):
        assert same.sizes() == {} and same.folder == tmp_path


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (
            "ftp://host/folder",
            "'ftp://host/folder': Unrecognized filesystem type .*; use an address such as s3://bucket/folder",
        ),
        ("s3://", "'s3://': contains no folder; use an address such as s3://bucket/folder"),
    ],
)
def test_an_address_that_cannot_be_read_is_one_line(address: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        Meeting(address)
    assert "\n" not in str(error.value)


def test_two_agents_with_one_number_are_told(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "shared")
    first, second = stores(tmp_path / "first")[2], stores(tmp_path / "second")[2]
    for store, value in ((first, 1.0), (second, 2.0)):
        store.write(0, {"x": np.full(3, value)})
    first.exchange(meeting)
    with pytest.warns(RuntimeWarning, match="ignored: agent 2 did not send it: another site uses its number.*restore") as told:
        second.exchange(meeting)
        second.exchange(meeting)
    assert len(told) == 1 and len(second.names) == 1, "told once, and its own message is sent all the same"
    third = stores(tmp_path / "third")[0]  # nobody can know which of the two is genuine, and no choice by name would tell
    third.write(0, {"x": np.ones(3)})
    third.exchange(meeting)
    assert len(third.names) == 3
    assert answers(third, third.names) == answers(third, third.names[::-1]) == answers(third, third.names[:1])
    half: Any = (Ledger(), PROBLEM, Streams(0))
    left_out = answer_to(0, 0, {name: third.read(name) for name in third.names}, half).left_out
    assert [*left_out] == third.names[1:] and {"there are 2 different messages of agent 2 after its step 0"} == {
        *left_out.values()
    }


def test_messages_that_cannot_be_used_are_told_once_and_left_out(tmp_path: Path) -> None:
    meeting, (one, other) = Meeting(tmp_path / "shared"), stores(tmp_path)[:2]
    for number, payload in enumerate(({"x": np.arange(4.0)}, {"x": np.full(3, np.nan)}, {"y": np.arange(3.0)}, "words")):
        meeting.write(dict([StoredMessage("a" * 16, 1, number, payload).file()]))  # type: ignore[arg-type]
    one.write(0, {"x": np.arange(3.0)})
    with pytest.warns(RuntimeWarning, match="is ignored") as warned:
        one.exchange(meeting)
    assert len(warned) == 4 and len(one.names) == 1
    one.exchange(meeting)
    with pytest.raises(ValueError, match="agent 1: its message of step 9 is invalid: field 'x' has shape"):
        other.write(9, {"x": np.arange(4.0)})


def test_a_message_of_ones_own_that_is_damaged_is_told_with_where_it_is(tmp_path: Path) -> None:
    store = stores(tmp_path)[0]
    store.write(0, {"x": np.arange(3.0)})
    (path,) = (tmp_path / "site 0").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="damaged or incomplete.*; copy the file of the same name from the meeting"):
        stores(tmp_path)[0].read(path.name)
