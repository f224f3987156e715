"""Several tunings in one process, at once or one within another: each evaluates its own function."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.tuning.ask_tell import Suggestion

SPACE = {"x": (0.0, 1.0)}
HERE: dict[str, Any] = {"timing": {"clock": "virtual"}, "evaluation": {"resources": []}, "hosting": {"kind": "inline"}}

PROGRAM = """
import sys, fedbo
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

def tuned(number):
    out = Path(sys.argv[1]) / str(number)
    result = fedbo.tune(lambda c: number, {"x": (0.0, 1.0)}, algorithm="random", initial=1, iterations=1, out=out)
    return set(result.trials().to_pandas()["value"])

with ThreadPoolExecutor(2) as threads:
    print(list(threads.map(tuned, (1.0, 2.0))))
"""


def values(function: Callable[..., Any], out: Path) -> set[float]:
    """Return the values that a tuning of a function has observed."""
    result = fedbo.tune(function, SPACE, algorithm="random", initial=2, iterations=1, out=out, study=HERE)
    return set(result.trials().to_pandas()["value"])


def constant(number: float) -> Callable[[Any], float]:
    """Return a function of the same name and source as all others."""

    def objective(configuration: Any) -> float:
        return number

    return objective


@pytest.mark.usefixtures("undrawn")
def test_tunings_at_once_evaluate_their_own_functions(tmp_path: Path) -> None:
    functions = {1.0: lambda c: 1.0, 2.0: lambda c: 2.0, 3.0: constant(3.0), 4.0: constant(4.0)}
    with ThreadPoolExecutor(len(functions)) as threads:
        found = threads.map(lambda number: values(functions[number], tmp_path / f"{number}"), functions)
        assert list(found) == [{number} for number in functions]


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_tunings_at_once_start_one_ray_which_ends_with_the_last(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=600)
    assert ended.stdout == "[{1.0}, {2.0}]\n", ended.stderr


@pytest.mark.usefixtures("undrawn")
def test_a_tuning_within_an_evaluation_leaves_the_outer_function_alone(tmp_path: Path) -> None:
    def outer(configuration: Any) -> float:
        (best,) = values(constant(5.0), tmp_path / f"{configuration['x']}")
        return best + 1.0

    def objective(configuration: Any) -> float:  # of the same name as the inner one
        return outer(configuration)

    assert values(objective, tmp_path / "outer") == {6.0}


@pytest.mark.usefixtures("undrawn")
def test_a_finished_tuning_does_not_go_on_with_another_function_of_the_same_name(tmp_path: Path) -> None:
    values(constant(1.0), tmp_path / "one")
    values(constant(2.0), tmp_path / "two")
    with pytest.raises(
        fedbo.errors.DirectoryError, match="passed in Python; call fedbo.tune again with more iterations and resume"
    ):
        fedbo.resume(tmp_path / "one", overrides=["budget.iterations=2"])


def test_an_agent_serves_threads_and_gives_each_client_its_own_token(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, fedbo.Terms("ts", initial=20)) as agent:

        def work(number: int) -> list[str]:
            (one,) = agent.ask(1, client=f"w{number}")
            anybody = agent.ask(1)[0] if number % 2 else one
            assert agent.pending(f"w{number}") == [one] and agent.given(one.token) == one
            assert agent.tell(one.token, one.configuration["x"])
            assert agent.best() is not None and "values" in repr(agent) and not agent.exhausted
            agent.add({"x": 0.5, "y": 0.5}, 0.0, name=f"w{number}")
            return list({one.token, anybody.token})

        with ThreadPoolExecutor(6) as threads:
            tokens = [token for found in threads.map(work, range(24)) for token in found]
    assert len(tokens) == len(set(tokens)) == 24 + 12
    with fedbo.Agent(tmp_path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, fedbo.Terms("ts", initial=20)) as again:
        assert len(again.pending()) == 12


UNCLOSED = """
import sys, fedbo
agent = fedbo.Agent(sys.argv[1], {"x": (0.0, 1.0)}, fedbo.Terms("random"))
agent.ask()
"""


def test_python_ends_without_a_word_where_an_agent_is_not_closed(tmp_path: Path) -> None:
    program = [sys.executable, "-c", UNCLOSED, str(tmp_path / "agent")]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not (tmp_path / "agent" / ".lock").exists()


SQUARE: dict[str, Any] = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


@pytest.mark.parametrize(
    ("seeds", "calls"),
    [pytest.param(range(1), 40), pytest.param(range(1, 51), 200, marks=[pytest.mark.long, pytest.mark.slow])],
)
def test_ten_threads_that_ask_and_tell_at_random_get_every_token_once(seeds: range, calls: int) -> None:
    for seed in seeds:
        agent, told = fedbo.Agent(None, SQUARE, fedbo.Terms("random", seed=seed)), list[str]()

        def work(number: int, agent: fedbo.Agent = agent, seed: int = seed) -> list[str]:
            rng, held, mine = random.Random(f"{seed} {number}"), list[Suggestion](), list[str]()
            for _ in range(calls):
                if held and rng.random() < 0.5:
                    one = held.pop(rng.randrange(len(held)))
                    assert agent.tell(one.token, one.configuration["x"])
                    mine.append(one.token)
                else:
                    held += agent.ask(rng.randint(1, 2))
            for one in held:
                assert agent.tell(one.token, one.configuration["x"])
            return [*mine, *(one.token for one in held)]

        with ThreadPoolExecutor(10) as threads:
            for found in threads.map(work, range(10)):
                told += found
        assert sorted(told) == [f"00000-{place:06d}" for place in range(len(told))] and not agent.pending()
        assert [*agent._log.told.values()].count(None) == 0


def test_a_coroutine_asks_and_tells_in_threads() -> None:
    async def searched() -> int:
        agent = fedbo.Agent(None, SQUARE, fedbo.Terms("ts"))

        async def one_by_one() -> None:
            ((token, configuration),) = await asyncio.to_thread(agent.ask)
            await asyncio.to_thread(agent.tell, token, configuration["x"])

        await asyncio.gather(*(one_by_one() for _ in range(8)))
        return len(agent._log.told)

    assert asyncio.run(searched()) == 8


def test_a_pickled_agent_goes_on_alike_in_memory_and_in_its_folder(tmp_path: Path) -> None:
    agents = {"memory": fedbo.Agent(None, SQUARE, fedbo.Terms("gp_ei", seed=1))}
    agents["folder"] = fedbo.Agent(tmp_path, SQUARE, fedbo.Terms("gp_ei", seed=1))
    found = {}
    for name, agent in agents.items():
        for token, configuration in agent.ask(4):
            agent.tell(token, configuration["x"])
        (open_one,) = agent.ask()
        pickled = pickle.dumps(agent)
        agent.close()
        again = pickle.loads(pickled)
        assert again.pending() == [open_one] and again.best() == agent.best() and again.tell(open_one.token, 0.5)
        found[name] = again.ask()
    assert found["memory"] == found["folder"]
    with pytest.raises(
        fedbo.errors.ArgumentError, match="folder = None: an agent with a meeting requires a folder; pass a path"
    ):
        fedbo.Agent(None, SQUARE, meeting=fedbo.Meeting(tmp_path / "meeting"))
    assert repr(agents["memory"]).startswith("<Agent 0 of 1 in memory: 4 values, 1 open, best ")


FORKED = """
import os, sys, fedbo
agent = fedbo.Agent(sys.argv[1], {"x": (0.0, 1.0)}, fedbo.Terms("random"))
(first,) = agent.ask()
if os.fork() == 0:
    for call in (agent.ask, lambda: agent.tell(first.token, 1.0)):
        try:
            print(call(), flush=True)
        except fedbo.errors.DirectoryError as error:
            print(str(error).replace(str(os.getppid()), "N"), flush=True)
    os._exit(0)
os.wait()
print(agent.tell(first.token, 2.0), agent.ask()[0].token, agent.best()[1])
"""


def test_a_fork_of_a_process_with_an_open_agent_is_told_to_leave_it_alone(tmp_path: Path) -> None:
    program = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "agent")]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    refused = f"'{tmp_path / 'agent'}': is open in process N, of which this one is a fork; ask and tell there"
    assert ended.stdout.splitlines() == [refused, refused, "True 00000-000001 2.0"], ended.stderr


THREADS = """
import random, sys, fedbo
from concurrent.futures import ThreadPoolExecutor

agent = fedbo.Agent(sys.argv[1], {"x": (0.0, 1.0), "y": (0.0, 1.0)}, fedbo.Terms("random"))

def work(number):
    rng = random.Random(f"{sys.argv[2]} {number}")
    while True:
        for one in agent.ask(rng.randint(1, 2)):
            if rng.random() < 0.9:
                assert agent.tell(one.token, one.configuration["x"])
                print(one.token, flush=True)

with ThreadPoolExecutor(10) as threads:
    list(threads.map(work, range(10)))
"""


@pytest.mark.long
@pytest.mark.slow
def test_what_threads_were_told_before_a_kill_is_kept_and_counts_once(tmp_path: Path) -> None:
    told, rng = list[str](), random.Random(3)
    for part in range(8):
        program = [sys.executable, "-c", THREADS, str(tmp_path / "agent"), str(part)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rng.randint(20, 120)):
                told.append(process.stdout.readline().strip())
            process.kill()
            told += [line.strip() for line in process.stdout if line.endswith("\n")]
    assert len(told) == len(set(told)) > 200
    with fedbo.Agent(tmp_path / "agent", SQUARE, fedbo.Terms("random")) as agent:
        known, numbers = agent._log.told, [int(token.partition("-")[2]) for token in agent._log.points]
        assert {*told} <= {*known} and sorted(numbers) == list(range(len(numbers)))
        assert {one.token for one in agent.pending()} == agent._log.points.keys() - known.keys()
        for token, value in known.items():
            assert value == agent.given(token).configuration["x"]
