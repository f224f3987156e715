"""Evaluations as Ray tasks: each takes the CPUs, GPUs, memory and other resources that it needs, wherever they are free."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ray

from fedbo.actors.evaluation import NAN, Evaluator, Known
from fedbo.actors.overlap import Ran
from fedbo.actors.policy import Policy
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Objective

_LOOK = 0.1  # seconds between two looks at whether to stop waiting
_LOST = 20  # how often a machine may be lost at one evaluation
MIB = 2**20


class Limits(NamedTuple):
    """How long and how large an evaluation may grow, and of which run it is."""

    run: str
    seconds: float | None
    memory: int | None


_evaluators: dict[Limits, Evaluator] = {}  # of the run for which this process works, which may be another one tomorrow


def _evaluator(limits: Limits) -> Evaluator:
    if limits not in _evaluators:
        for other in _evaluators.values():
            other.close()
        _evaluators.clear()
        _evaluators[limits] = Evaluator(Policy(time_limit=limits.seconds, memory_limit=limits.memory), real=True)
    return _evaluators[limits]


def evaluate(objective: Objective, known: Known, streams: Streams, limits: Limits) -> Ran:
    """Make one evaluation in this process, or where it has limits in one of its own."""
    begun = time.monotonic()
    value, score, error = _evaluator(limits).call(objective, known, streams)
    return Ran(known.number, float(value), score, error, time.monotonic() - begun, getattr(value, "metrics", None))


class RayBench:
    """The evaluations of one agent of a run on a Ray cluster; `halted` says whether to wait no longer."""

    def __init__(self, objective: Objective, policy: Policy, agent: int, run: str, halted: Callable[[], bool]) -> None:
        self._objective, self._halted = ray.put(objective), halted
        self._limits = Limits(run, policy.time_limit, policy.memory_limit)
        wanted = policy.wanted(agent)
        options = _options(wanted)
        _check(agent, wanted, options)
        remote: Any = ray.remote(evaluate)
        self._remote = remote.options(max_retries=0, scheduling_strategy="SPREAD", **options).remote
        self._calls: dict[Any, tuple[Known, Streams, int]] = {}

    def start(self, known: Known, streams: Streams) -> None:
        """Begin an evaluation, unless it is under way; another one that had its number is no longer wanted."""
        for call, (other, _, _) in list(self._calls.items()):
            if other.number == known.number:
                if other.x.tolist() == known.x.tolist():
                    return
                ray.cancel(call, force=True)
                del self._calls[call]
        self._begin(known, streams, _LOST)

    def wait(self) -> Ran | None:
        """Wait for the next evaluation that ends; None when it was told to wait no longer."""
        while not self._halted():
            done, _ = ray.wait(list(self._calls), num_returns=1, timeout=_LOOK)
            for call in done:
                known, streams, lives = self._calls.pop(call)
                ran = _ran(call, known.number)
                if ran is not None:
                    return ran
                if not lives:
                    return Ran(known.number, NAN, NAN, f"its machine was lost {_LOST} times", 0.0)
                self._begin(known, streams, lives - 1)
        return None

    def close(self) -> None:
        """Give up what is under way."""
        for call in self._calls:
            ray.cancel(call, force=True)
        self._calls = {}

    def _begin(self, known: Known, streams: Streams, lives: int) -> None:
        self._calls[self._remote(self._objective, known, streams, self._limits)] = known, streams, lives


def _ran(call: Any, number: int) -> Ran | None:
    """Give what came of a call; None when the machine is to blame, and it is to be made again."""
    try:
        ran: Ran = ray.get(call)
        return ran
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        return Ran(number, NAN, NAN, f"its process died: {str(error).splitlines()[0]}", 0.0)
    except ray.exceptions.RayTaskError as error:
        return Ran(number, NAN, NAN, str(error), 0.0)
    except ray.exceptions.RayError:
        return None


def _options(wanted: Mapping[str, float]) -> dict[str, Any]:
    named = {"CPU": "num_cpus", "GPU": "num_gpus"}
    options: dict[str, Any] = {"num_cpus": 1.0}
    options |= {named[name]: amount for name, amount in wanted.items() if name in named}
    if "memory" in wanted:
        options["memory"] = int(wanted["memory"] * MIB)
    own = {name: amount for name, amount in wanted.items() if name not in (*named, "memory")}
    return {**options, "resources": own} if own else options


def _check(agent: int, wanted: Mapping[str, float], options: Mapping[str, Any]) -> None:
    """Refuse what no machine of the cluster has: it would be waited for without end."""
    needed = {"CPU": options["num_cpus"], "GPU": options.get("num_gpus", 0.0), "memory": options.get("memory", 0.0)}
    needed |= options.get("resources", {})
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    if not any(all(node.get(name, 0.0) >= amount for name, amount in needed.items()) for node in nodes):
        asked = ", ".join(f"{name} = {amount:g}" for name, amount in (dict(wanted) or needed).items())
        raise ValueError(f"agent {agent}: [evaluation] resources {asked}: no machine of the Ray cluster has as much")
