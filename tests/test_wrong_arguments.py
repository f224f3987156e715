"""Three hundred wrong arguments and objectives through the Python interface: each is one line, before anything starts.

The line names the Python argument, and holds no words of the command line, of study files or of another library. No folder is
made, and Ray is not started.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import pytest

import fedbo
import fedbo.execution.runner
import fedbo.tuning.tune
from fedbo.optuna import Sampler
from fedbo.tuning.evaluated import evaluated
from fedbo.tuning.ray_scheduler import RayScheduler
from fedbo.tuning.ray_searcher import RaySearcher

SPACE: dict[str, Any] = {"x": (0.0, 1.0), "n": (1, 9)}
STUDY: dict[str, Any] = {
    "study": {"name": "right"}, "objective": {"name": "branin", "agents": 2}, "budget": {"iterations": 2},
    "algorithm": [{"name": "random"}],
}  # fmt: skip


def right(config: dict[str, Any], agent: int) -> float:
    return float(config["x"]) - agent


class Wrong(NamedTuple):
    """A call that must fail, and the argument that its error must name."""

    argument: str
    title: str
    call: Callable[[Path], object]


NO_NUMBERS: list[Any] = [
    "3",
    None,
    True,
    1 + 2j,
    math.nan,
    math.inf,
    [3],
    {},
    print,
    datetime.now(UTC),
    np.bool_(True),
    b"3",
    -(10**400),
]
NOT_WHOLE: list[Any] = [*NO_NUMBERS, 2.5, -1, np.float64(3.5), 10**400]
NO_TEXT: list[Any] = [5, "", ["a"], b"name", True]
NO_PATHS: list[Any] = [5, "", True, b"a\0", ["a"], "a\0b", object()]


def tuned(**options: Any) -> Callable[[Path], object]:
    return lambda folder: fedbo.tune(
        options.pop("objective", right), options.pop("space", SPACE), options.pop("agents", 2),
        **({"out": folder / "run"} | options),
    )  # fmt: skip


def of_tune() -> Iterator[tuple[str, Any, Callable[[Path], object]]]:
    given: dict[str, list[Any]] = {
        "agents": [*NOT_WHOLE, 0, 10**9],
        "objective": [5, None, "module:function", [right], int, lambda: 0.0, lambda *, config: 0.0, lambda config, foo: 0.0,
                      lambda config, agent, size: 0.0, lambda config, *, width: 0.0, threading.Lock(), holding_a_lock(),
                      coroutine, generator, {}, math.nan],
        "space": [None, 5, [], {}, "space", {"x": 1}, {"x": (1.0, 0.0)}, {"x": ("0", "1")}, {"x": (0, math.inf)}, {1: (0, 1)},
                  {"x": []}, {"x": {}}, {"x": (0.0, 1.0, "log")}, {"x": ["a", "\udc80"]},
                  {"x": (0, 10**30)}, print, np.zeros(3)],
        "algorithm": ["ftz", 5, ["fts"], "", {}, {"nam": "fts"}, {"name": 3}, {"name": "fts", "evry": 2},
                      {"name": "ts", "surrogate": "rough"}, {"name": "fts", "every": -1}, "no.module:Thing"],
        "iterations": [*[one for one in NOT_WHOLE if one is not None], 0, 10**10],
        "initial": [*[one for one in NOT_WHOLE if one is not None], 10**7],
        "metric": [*NO_TEXT, "half of a letter \udc80"],
        "mode": ["least", 5, True, "MAX", ["max"]],
        "parallel": [*[one for one in NOT_WHOLE if one is not None], 0, 10**6],
        "prefetch": [one for one in NOT_WHOLE if one is not None],
        "resources": ["2", 5, [5], {"CPU": "2"}, {"CPU": -1}, {"CPU": math.nan}, {"CPU": True}, [{"CPU": 1}] * 3, {3: 1}],
        "target": [one for one in NO_NUMBERS if one is not None],
        "evaluations": [*[one for one in NOT_WHOLE if one is not None], 0],
        "seconds": [*[one for one in NO_NUMBERS if one is not None], 0, -1],
        "time_limit": [*[one for one in NO_NUMBERS if one is not None], 0, -1.0],
        "memory_limit": [*[one for one in NOT_WHOLE if one is not None], 0],
        "retries": [one for one in NOT_WHOLE if one is not None],
        "failure": ["worst", 5, "", True],
        "seed": [*[one for one in NOT_WHOLE if one is not None], 2**63],
        "name": [*NO_TEXT, "a/b", "a\nb"],
        "address": [5, "", True, "nowhere", "localhost"],
        "out": NO_PATHS,
        "resume": [1, "yes", [True]],
        "repeats": [1, "yes"],
        "enqueue": [5, {}, [], "x", [5], [{"x": 2.0, "n": 1}], [{"x": 0.5}], {"x": 0.5, "n": 1}],
        "start": [5, "gone.csv", [3], [({"x": 0.5}, 1.0)], [({"x": 2.0, "n": 1}, 1.0)], [({"x": 0.5, "n": 1}, "a")], {9: []}],
        "steps": [*[one for one in NOT_WHOLE if one is not None], 1],
        "callbacks": [print, 5, "mlflow", [5], ["nothing"], [None], {"a": print}],
        "study": [5, "x", [1], {"exchange": {"mode": "bufered"}}, {"budget": {"iterations": 0}}, {"nothing": {"x": 1}},
                  {"study": {"name": object()}}, {"evaluation": 5}],
        "progress": ["yes", 1, None],
    }  # fmt: skip
    for argument, values in given.items():
        for value in values:
            yield argument, value, tuned(**{argument: value})
    yield "stopping", "alone", tuned(objective=reporting, stopping="asha")
    for value in ("ash", 5, {}, {"kind": "asha", "reduction": 1}, {"kind": "asha", "variant": "promote"}):
        yield "stopping", value, tuned(objective=reporting, stopping=value, steps=9)
    yield "objective", "no report", tuned(stopping="asha", steps=9)
    yield "tune", "an unknown name", tuned(iteration=5)
    yield "resume", "without out", lambda folder: fedbo.tune(right, SPACE, 2, resume=True)
    yield "algorithm", "pending", tuned(algorithm="gp_ts", parallel=2)


def reporting(config: dict[str, Any], report: Any) -> float:
    return float(report(config["x"], 1) == "go")


async def coroutine(config: dict[str, Any]) -> float:
    return 0.0


def generator(config: dict[str, Any]) -> Iterator[float]:
    yield 0.0


def holding_a_lock() -> Callable[[dict[str, Any]], float]:
    lock = threading.Lock()
    return lambda config: float(lock.locked())


def of_agents() -> Iterator[tuple[str, Any, Callable[[Path], object]]]:
    for value in NO_PATHS:
        yield "folder", value, lambda folder, value=value: fedbo.Agent(value, SPACE)
        yield "folder", value, lambda folder, value=value: fedbo.Meeting(value)
        yield "folder", value, lambda folder, value=value: RaySearcher(value, SPACE)
        yield "folder", value, lambda folder, value=value: RayScheduler(value, "asha", 9)
    for value in (5, None, {}, {"x": (1, 1)}, {"x": ["a", "a"]}):
        yield "space", value, lambda folder, value=value: fedbo.Agent(folder / "a", value)
        yield "space", value, lambda folder, value=value: RaySearcher(folder / "a", value or 5)
    for value in ("fts", None, {"algorithm": "fts"}, fedbo.Terms):
        yield "terms", value, lambda folder, value=value: fedbo.Agent(folder / "a", SPACE, value)
        yield "terms", value, lambda folder, value=value: RaySearcher(folder / "a", SPACE, value)
    for value in NOT_WHOLE:
        yield "number", value, lambda folder, value=value: fedbo.Agent(folder / "a", SPACE, fedbo.Terms("ts"), value)
    yield "number", 1, lambda folder: RaySearcher(folder / "a", SPACE, fedbo.Terms("ts"), 1)
    for value in ("/shared/meeting", 5, [], fedbo.Meeting):
        yield "meeting", value, lambda folder, value=value: fedbo.Agent(folder / "a", SPACE, meeting=value)
        yield "meeting", value, lambda folder, value=value: RaySearcher(folder / "a", SPACE, meeting=value)
    yield (
        "algorithm",
        "reveals",
        lambda folder: fedbo.Agent(folder / "a", SPACE, fedbo.Terms("fed_prior"), meeting=fedbo.Meeting(folder / "m")),
    )
    for value in ("everything", 5):
        yield "reveals", value, lambda folder, value=value: fedbo.Meeting(folder / "m", reveals=value)
    for value in ("tpe", 5, "", {}, {"name": "ts", "beta": "x"}, "dp_fts_de", "admm_consensus", {"name": "fts", "p": 3.0}):
        yield "algorithm", value, lambda folder, value=value: fedbo.Terms(value)
    for name in ("agents", "initial", "seed"):
        for value in NOT_WHOLE[:10]:
            yield name, value, lambda folder, name=name, value=value: fedbo.Terms(**{name: value})
    for value in (0, -1.0, "3", math.nan, True):
        yield "lease", value, lambda folder, value=value: fedbo.Terms(lease=value)
    yield "mode", "least", lambda folder: fedbo.Terms(mode="least")
    yield "mode", "least", lambda folder: RaySearcher(folder / "a", SPACE, mode="least")
    yield "metric", 5, lambda folder: RaySearcher(folder / "a", SPACE, metric=5)  # type: ignore[arg-type]
    yield "independent_sampler", 5, lambda folder: Sampler(independent_sampler=5)  # type: ignore[arg-type]
    yield "agent", 5, lambda folder: Sampler(agent=5)  # type: ignore[arg-type]
    for value in (-1, 0.5, True):
        yield "seed", value, lambda folder, value=value: Sampler(seed=value)
        yield "n_startup_trials", value, lambda folder, value=value: Sampler(n_startup_trials=value)
    for value in ("ash", 5, {"kind": "asha", "reduction": 1}):
        yield "stopping", value, lambda folder, value=value: RayScheduler(folder / "a", value, 9)
    for value in ("9", 1, 2.5, True):
        yield "steps", value, lambda folder, value=value: RayScheduler(folder / "a", "asha", value)
    yield "log", (0.0, 1.0), lambda folder: fedbo.log(0.0, 1.0)
    yield "log", ("a", 1.0), lambda folder: fedbo.log("a", 1.0)  # type: ignore[arg-type]


def of_runs() -> Iterator[tuple[str, Any, Callable[[Path], object]]]:
    for value in (5, None, "", "gone.toml", {}, {"study": 5}, [STUDY], STUDY | {"budget": {"iterations": 0}}):
        yield "study|gone.toml", value, lambda folder, value=value: fedbo.run(value, out=folder / "run")
        yield "study|gone.toml", value, lambda folder, value=value: fedbo.load_study(value)
    for value in (
        "budget.iterations=3",
        5,
        [5],
        ["iterations"],
        {"budget.iterations": 0},
        {"budget.iters": 3},
        {5: 3},
        {"": 1},
    ):
        yield "overrides", value, lambda folder, value=value: fedbo.run(STUDY, overrides=value, out=folder / "run")
    for value in NO_PATHS:
        yield "out", value, lambda folder, value=value: fedbo.run(STUDY, out=value)
        yield "directory", value, lambda folder, value=value: fedbo.resume(value)
        yield "directory", value, lambda folder, value=value: fedbo.fork(value, at=1)
        yield "directory", value, lambda folder, value=value: fedbo.Result.open(value)
    for value in (print, 5, "mlflow", [5], ["nothing"]):
        yield "callbacks", value, lambda folder, value=value: fedbo.run(STUDY, callbacks=value, out=folder / "run")
    for value in ("yes", 1, None):
        yield "progress", value, lambda folder, value=value: fedbo.run(STUDY, progress=value, out=folder / "run")
    for value in (5, "gone.csv", [3], [({"x": 2.0, "n": 1}, 1.0)], [({"x": 0.5, "y": 1}, 1.0)]):
        yield "start", value, lambda folder, value=value: evaluated(value, SPACE)


def every() -> list[Any]:
    cases = [*of_tune(), *of_agents(), *of_runs()]
    return [
        pytest.param(Wrong(argument, f"{value!r:.40}", call), id=f"{argument}-{n}")
        for n, (argument, value, call) in enumerate(cases)
    ]


CASES = every()
FOREIGN = (
    " at 0x",
    "as JSON",
    "--",
    "numpy",
    "pydantic",
    "Traceback",
    "positional argument",
    "object has no attribute",
    "ray.",
    "ufunc",
)


def test_there_are_hundreds() -> None:
    assert len(CASES) >= 300


@pytest.mark.parametrize("wrong", CASES)
def test_a_wrong_argument_is_one_line_with_its_name_before_anything_starts(
    wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (fedbo.tuning.tune, fedbo.execution.runner):  # what is taken for right must not be carried out here
        monkeypatch.setattr(module, "run_study", None)
    began = sys.modules.get("ray") is not None and sys.modules["ray"].is_initialized()
    with pytest.raises(fedbo.errors.FedboError) as raised:
        wrong.call(tmp_path)
    for line in str(raised.value).splitlines():
        assert line.startswith(tuple(wrong.argument.split("|"))), line
        assert ": " in line and not any(words in line for words in FOREIGN), line
        assert len(line) < 700, line
    assert [path.name for path in tmp_path.rglob("*")] == [], "a folder or a file was made"
    assert (sys.modules.get("ray") is not None and sys.modules["ray"].is_initialized()) == began, "Ray was started"


def test_what_an_open_agent_is_told_is_checked(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path / "a", SPACE, fedbo.Terms("random")) as agent:
        (one,) = agent.ask()
        for value in ("0.3", True, [1.0], {}, print, b"1", np.bool_(True)):
            expected = "is a dictionary, but the terms have no metrics" if value == {} else "must be a number, or None"
            with pytest.raises(fedbo.errors.ArgumentError, match=f"^value = .*: {expected}"):
                agent.tell(one.token, value)  # type: ignore[arg-type]
            with pytest.raises(fedbo.errors.ArgumentError, match="^value = "):
                agent.add({"x": 0.5, "n": 1}, value)  # type: ignore[arg-type]
        for count in NOT_WHOLE:
            with pytest.raises(fedbo.errors.ArgumentError, match="^n = .*: must be "):
                agent.ask(count)
        for token in (None, 5, "00000-000009", one):
            with pytest.raises(fedbo.errors.ArgumentError, match="^token = .*: is not a token of this agent"):
                agent.tell(token, 1.0)  # type: ignore[arg-type]
        for configuration in (
            5,
            None,
            {},
            {"x": "0.5", "n": 1},
            {"x": 0.5, "n": None},
            {"x": 0.5, "n": 1, "z": 2},
            {"x": math.nan, "n": 1},
        ):
            with pytest.raises(fedbo.errors.ArgumentError, match="^configuration( = .*)?: "):
                agent.add(configuration, 1.0)
        assert agent.tell(one.token, math.nan), "no finite number is a failed evaluation"
    for call in (agent.ask, lambda: agent.add({"x": 0.5, "n": 1}, 1.0)):
        with pytest.raises(fedbo.errors.DirectoryError, match="is the folder of a closed agent; open the agent again"):
            call()


def test_a_sampler_is_refused_for_several_objectives(tmp_path: Path) -> None:
    sampler = Sampler(agent=fedbo.Agent(tmp_path / "a", SPACE, fedbo.Terms("random")))
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    with pytest.raises(fedbo.errors.ArgumentError, match="has 2 objectives; use a study with one objective"):
        study.ask({"x": optuna.distributions.FloatDistribution(0.0, 1.0)})
