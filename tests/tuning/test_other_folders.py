"""Folders of agents that are swapped, mixed, or given back from an older copy: refused by name, or without any effect."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedbo
from fedbo.actors.host_storage import AgentCheckpoint, HostConfig, HostStorage
from fedbo.actors.storage.checkpoint import write_checkpoint
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError

SPACE: dict[str, Any] = {"x": (0.0, 1.0)}
TERMS = fedbo.Terms("fts", agents=2, initial=2)


def open_agent(folder: Path, number: int, meeting: fedbo.Meeting | None = None) -> fedbo.Agent:
    return fedbo.Agent(folder, SPACE, TERMS, number, meeting)


def play(agent: fedbo.Agent, count: int) -> list[float]:
    asked = []
    for _ in range(count):
        (one,) = agent.ask()
        asked.append(one.configuration["x"])
        agent.tell(one.token, -((one.configuration["x"] - 0.4 - 0.1 * agent.number) ** 2))
    return asked


def test_swapped_folders_are_refused_by_name(tmp_path: Path) -> None:
    for number in (0, 1):
        with open_agent(tmp_path / str(number), number) as agent:
            play(agent, 3)
    with pytest.raises(ValueError, match=f"'{tmp_path}/1': belongs to another agent, 1 instead of 0"):
        open_agent(tmp_path / "1", 0)


@pytest.mark.parametrize("kept", ["log.jsonl", "state.checkpoint"])
def test_a_folder_that_is_part_old_goes_on_by_its_log(kept: str, tmp_path: Path) -> None:
    """One of the two files is from an older copy; the log says what was told, and the checkpoint is taken for it alone."""
    with open_agent(tmp_path / "own", 0) as agent:
        play(agent, 3)
    shutil.copytree(tmp_path / "own", tmp_path / "old")
    with open_agent(tmp_path / "own", 0) as agent:
        play(agent, 3)
    shutil.copy(tmp_path / "old" / kept, tmp_path / "own" / kept)
    shutil.copytree(tmp_path / "own", tmp_path / "log alone")
    (tmp_path / "log alone" / "state.checkpoint").unlink()
    asked = []
    for folder in ("own", "log alone"):
        with open_agent(tmp_path / folder, 0) as agent:
            asked.append(play(agent, 3))
    assert asked[0] == asked[1]


@pytest.mark.parametrize("file", ["draws.key", "log.jsonl"])
def test_a_key_or_a_log_that_is_changed_anywhere_is_damaged(file: str, tmp_path: Path) -> None:
    """Also where it is still a number, or a line of JSON: each byte in turn has another value, or is missing."""
    with open_agent(tmp_path / "own", 0) as agent:
        play(agent, 3)
    path, drawn = tmp_path / "own" / file, random.Random(4)
    whole = path.read_bytes()
    for place in drawn.sample(range(len(whole) - 1), 12):
        other = bytes([drawn.choice([each for each in b"0123456789\xff{" if each != whole[place]])])
        for changed in other, b"":
            path.write_bytes(whole[:place] + changed + whole[place + 1 :])
            with pytest.raises(DamagedError, match=f"{file}': is damaged"):
                open_agent(tmp_path / "own", 0)
    path.write_bytes(whole)
    open_agent(tmp_path / "own", 0).close()


def test_a_key_that_is_lost_is_drawn_anew_with_a_warning(tmp_path: Path) -> None:
    with open_agent(tmp_path / "own", 0) as agent:
        play(agent, 1)
    (tmp_path / "own" / "draws.key").unlink()
    with pytest.warns(RuntimeWarning, match=r"own/draws.key': is missing, and another secret was drawn"):
        open_agent(tmp_path / "own", 0).close()
    open_agent(tmp_path / "own", 0).close()


def test_the_checkpoint_of_another_agent_does_not_count(tmp_path: Path) -> None:
    for number in (0, 1):
        with open_agent(tmp_path / str(number), number) as agent:
            play(agent, 4)
    shutil.copytree(tmp_path / "0", tmp_path / "same")
    shutil.copy(tmp_path / "1" / "state.checkpoint", tmp_path / "0" / "state.checkpoint")
    asked = []
    for folder in ("0", "same"):
        with open_agent(tmp_path / folder, 0) as agent:
            asked.append(play(agent, 3))
    assert asked[0] == asked[1]


def test_an_old_folder_whose_later_messages_the_meeting_has_is_refused_by_name(tmp_path: Path) -> None:
    meeting = fedbo.Meeting(tmp_path / "meeting")
    with open_agent(tmp_path / "own", 0, meeting) as agent:
        play(agent, 3)
    shutil.copytree(tmp_path / "own", tmp_path / "old")
    with open_agent(tmp_path / "own", 0, meeting) as agent:
        play(agent, 3)
    with open_agent(tmp_path / "old", 0, meeting) as agent, pytest.warns(RuntimeWarning, match="this folder is an old copy"):
        agent.exchange()


def test_a_meeting_that_is_given_back_old_receives_what_it_lacks(tmp_path: Path) -> None:
    meeting = fedbo.Meeting(tmp_path / "meeting")
    with open_agent(tmp_path / "own", 0, meeting) as agent:
        play(agent, 3)
        shutil.copytree(tmp_path / "meeting", tmp_path / "old")
        play(agent, 3)
        whole = meeting.sizes()
        shutil.rmtree(tmp_path / "meeting")
        shutil.copytree(tmp_path / "old", tmp_path / "meeting")
        agent.exchange()
        assert meeting.sizes() == whole


def test_a_checkpoint_of_another_agent_of_a_run_in_real_time_is_refused_by_name(tmp_path: Path) -> None:
    folder = RunFolder.of(tmp_path, RunKey(0, "ts", 0))
    folder.path.mkdir(parents=True, exist_ok=True)
    storage = HostStorage(HostConfig(folder, real=True), 0, (0, 1))
    agents: Any = {number: SimpleNamespace() for number in (0, 1)}
    for number in (0, 1):
        write_checkpoint(AgentCheckpoint(None, None, None, number), folder.checkpoint(number, 0))  # type: ignore[arg-type]
    storage.restore(agents)
    assert all(agents[number].state is None for number in (0, 1))
    shutil.copy(folder.checkpoint(1, 0), folder.checkpoint(0, 0))
    with pytest.raises(DamagedError, match=r"is damaged \(is the checkpoint of agent 1; restore the checkpoint of agent 0\)"):
        storage.restore(agents)
