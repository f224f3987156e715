"""Agents that are asked and told: leases, idempotent values, kills at any instant, and federation through a folder."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.study.paths import DirectoryError

SPACE: dict[str, Any] = {"rate": (1e-4, 1.0), "n": (1, 30), "kind": ["a", "b"]}


def worth(configuration: dict[str, Any]) -> float:
    return (
        -((math.log10(configuration["rate"]) + 2) ** 2) - 0.01 * (configuration["n"] - 12) ** 2 - (configuration["kind"] == "a")
    )


def play(agent: fedbo.Agent, count: int) -> None:
    for _ in range(count):
        (one,) = agent.ask()
        agent.tell(one.token, worth(one.configuration))


def test_an_agent_finds_a_good_configuration(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("ts", seed=1)) as agent:
        play(agent, 30)
        best = agent.best()
        assert best is not None
        configuration, value = best
        assert configuration["kind"] == "b"
        assert value > -0.6


def test_who_minimises_is_told_the_least_value(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random", mode="min")) as agent:
        tokens = [one.token for one in agent.ask(3)]
        for token, value in zip(tokens, (3.0, 1.0, 2.0), strict=True):
            agent.tell(token, value)
        best = agent.best()
        assert best is not None and best[1] == 1.0


def test_a_value_counts_once_and_the_first_one_stays(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("ts")) as agent:
        (one,) = agent.ask()
        assert agent.tell(one.token, 2.0)
        assert not agent.tell(one.token, 5.0)
        best = agent.best()
        assert best is not None and best[1] == 2.0
        with pytest.raises(ValueError, match="is not a token of this agent; use the token that ask returned"):
            agent.tell("00000-000099", 1.0)


def test_a_restarted_client_gets_its_own_points_back(tmp_path: Path) -> None:
    terms = fedbo.Terms("ts")
    with fedbo.Agent(tmp_path, SPACE, terms) as agent:
        mine, theirs = agent.ask(2, client="left"), agent.ask(1, client="right")
        assert agent.ask(2, client="left") == mine
        free = agent.ask(2)
        assert not {one.token for one in free} & {one.token for one in agent.ask(1)}, "two loops share no point"
        agent.tell(mine[0].token, 1.0)
    with fedbo.Agent(tmp_path, SPACE, terms) as agent:
        assert agent.ask(1, client="left") == mine[1:]
        assert agent.ask(1, client="right") == theirs
        assert agent.ask(2) == free
        assert len(agent.pending()) == 5


def test_a_point_whose_lease_has_run_out_is_handed_to_the_next(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random", lease=0.05)) as agent:
        (one,) = agent.ask(client="left")
        (other,) = agent.ask(client="right")
        assert other.token != one.token
        time.sleep(0.1)
        assert agent.ask(client="third") == [one]


def test_points_under_way_are_told_apart(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("gp_ei")) as agent:
        play(agent, 5)
        asked = [json.dumps(one.configuration) for one in agent.ask(4)]
        assert len(set(asked)) == 4


@pytest.mark.parametrize("name", ["fed_prior"])
def test_those_that_learn_of_others_decide_with_some_under_way_and_some_failed(name: str, tmp_path: Path) -> None:
    terms, meeting = fedbo.Terms({"name": name, "every": 1}, agents=2), fedbo.Meeting(tmp_path / "shared", reveals="computable")
    agents = [fedbo.Agent(tmp_path / str(n), SPACE, terms, n, meeting) for n in range(2)]
    for _ in range(4):
        for agent in agents:
            asked = agent.ask(4)
            assert len({json.dumps(one.configuration) for one in asked}) == 4
            for place in (2, 0):  # one under way is told, one has failed, and two stay
                agent.tell(asked[place].token, worth(asked[place].configuration) if place else None)
    for agent in agents:
        agent.close()


def test_going_on_gives_what_would_have_come_without_the_interruption(tmp_path: Path) -> None:
    terms = fedbo.Terms("ts", seed=4)
    with fedbo.Agent(tmp_path / "whole", SPACE, terms) as agent:
        play(agent, 9)
        expected = [one.configuration for one in agent.ask(2)]
    for _ in range(3):
        with fedbo.Agent(tmp_path / "parts", SPACE, terms) as agent:
            play(agent, 3)
    (tmp_path / "parts" / "state.checkpoint").unlink()  # the log has everything
    with fedbo.Agent(tmp_path / "parts", SPACE, terms) as agent:
        assert [one.configuration for one in agent.ask(2)] == expected


KILLED = """
import os, signal, sys, fedbo
from pathlib import Path
sys.path.insert(0, {tests!r})
from tuned_functions import SPACE
agent = fedbo.Agent(Path({folder!r}), SPACE, fedbo.Terms("random"))
print("ready", flush=True)
while True:
    (one,) = agent.ask()
    agent.tell(one.token, one.configuration["rate"])
    print(one.token, flush=True)
"""


def test_nothing_told_is_lost_by_a_kill(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    heard = [process.stdout.readline() for _ in range(10)]
    os.kill(process.pid, signal.SIGKILL)
    heard += process.stdout
    process.wait()
    process.stdout.close()
    assert heard.pop(0) == "ready\n"
    tokens = [line.strip() for line in heard]
    assert len(tokens) == len(set(tokens)) >= 9
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random")) as agent:
        told = [json.loads(line).get("tell") for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert set(tokens) <= {token for token in told if token}
        assert len([token for token in told if token]) == len({token for token in told if token})
        assert len(agent.pending()) <= 1
        play_on = agent.ask()
        assert play_on[0].token in {one.token for one in agent.pending()} and play_on[0].token not in tokens


def test_agents_learn_from_each_other_through_a_folder(tmp_path: Path) -> None:
    meeting, terms = fedbo.Meeting(tmp_path / "shared"), fedbo.Terms({"name": "fts", "p": 0.0}, agents=3, seed=2)
    agents = [fedbo.Agent(tmp_path / str(k), SPACE, terms, k, meeting) for k in range(3)]
    for _ in range(7):
        for agent in agents:
            play(agent, 1)
    for agent in agents:
        agent.close()
    alone = [fedbo.Agent(tmp_path / f"alone {k}", SPACE, terms, k) for k in range(3)]
    play(alone[0], 7)
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("0", "alone 0")]
    assert logs[0] != logs[1], "what others know changes what is asked"
    assert all(path.suffix == ".message" for path in (tmp_path / "shared").iterdir())
    for agent in alone:
        agent.close()
    other = fedbo.Terms("fts", agents=3, seed=3)
    with (
        fedbo.Agent(tmp_path / "stranger", SPACE, other, 0, meeting) as stranger,
        pytest.warns(RuntimeWarning, match="its terms differ from ours; set the same space and terms"),
    ):
        play(stranger, 5)


def test_no_pickle_lies_in_a_folder(tmp_path: Path) -> None:
    meeting = fedbo.Meeting(tmp_path / "shared")
    with fedbo.Agent(tmp_path / "own", SPACE, fedbo.Terms("fts", agents=2), 0, meeting) as agent:
        play(agent, 5)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert data[:1] != b"\x80" and not (data.endswith(b".") and data[:2] == b"(d")


def test_a_folder_serves_one_process_and_one_space(tmp_path: Path) -> None:
    with (
        fedbo.Agent(tmp_path, SPACE),
        pytest.raises(DirectoryError, match="is open in this process; wait .* call close"),
    ):
        fedbo.Agent(tmp_path, SPACE)
    with pytest.raises(ValueError, match="belongs to another space; use the same, or a new folder"):
        fedbo.Agent(tmp_path, {**SPACE, "n": (1, 31)})
    with pytest.raises(ValueError, match="does not support ask and tell; use ts, fts, gp_ei or gp_ucb"):
        fedbo.Agent(tmp_path / "new", SPACE, fedbo.Terms("admm_consensus"))


def test_a_failed_configuration_is_over_and_teaches_nothing(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("gp_ei")) as agent:
        for one in agent.ask(4):
            assert agent.tell(one.token, None if one.token.endswith("0") else float(np.nan))
        assert agent.pending() == [] and agent.best() is None
        play(agent, 2)


def test_points_that_were_evaluated_elsewhere_count_once_and_stand_in_for_random_ones(tmp_path: Path) -> None:
    terms = fedbo.Terms("gp_ei", seed=5)
    points = [{"rate": 0.01 * (n + 1), "n": 10 + n, "kind": "b"} for n in range(4)]
    with fedbo.Agent(tmp_path / "informed", SPACE, terms) as agent:
        assert all(agent.add(point, worth(point), f"old/{n}") for n, point in enumerate(points))
        assert not agent.add(points[0], 100.0, "old/0")
        assert agent.add(points[0], worth(points[0])) and agent.add(points[1], None)
        best = agent.best()
        assert best is not None and best[0] == max(points, key=worth)
        (first,) = agent.ask()
    with fedbo.Agent(tmp_path / "blank", SPACE, terms) as agent:
        (random_one,) = agent.ask()
    assert first.configuration != random_one.configuration
    (tmp_path / "informed" / "state.checkpoint").unlink()
    with fedbo.Agent(tmp_path / "informed", SPACE, terms) as agent:
        assert agent.ask() == [first]
        assert not agent.add(points[0], 100.0, "old/0")
        with pytest.raises(ValueError, match="configuration: n = 31: must be a whole number in"):
            agent.add({**points[0], "n": 31}, 1.0)
