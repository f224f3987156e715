"""Evaluations as Ray tasks. Each reserves the CPUs, GPUs, memory and other resources that it needs, on any machine."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.late_ray import MACHINE_LOSSES, ray
from fedbo.actors.nodes import LASTING, grows, nodes_with, spread_over, this_node_leaves
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.printed import keep_printed
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Objective
from fedbo.objectives.typed_spaces.reports import EvaluationMoved
from fedbo.settings.interrupts import mark_interrupts
from fedbo.settings.trust import WithCode

_MOVED = "moved"  # in place of a record, from an evaluation that continues elsewhere, since its node leaves
_POLL = 0.1  # seconds after which a wait asks whether to stop
MIB = 2**20


class Limits(NamedTuple):
    """The limits of an evaluation in seconds and MiB, the folder of its run, and its early stopping, if any."""

    run: str
    seconds: float | None
    memory: int | None
    stopping: Any = None


_evaluators: dict[Limits, Evaluator] = {}  # of the run for which this process works, which may be another one tomorrow


def _evaluator(limits: Limits) -> Evaluator:
    if limits not in _evaluators:
        for other in _evaluators.values():
            other.close()
        _evaluators.clear()
        _evaluators[limits] = Evaluator(Policy(time_limit=limits.seconds, memory_limit=limits.memory), real=True)
        _evaluators[limits].stopping, _evaluators[limits].leaves = limits.stopping, this_node_leaves
        _evaluators[limits].printed = partial(keep_printed, Path(limits.run))
    return _evaluators[limits]


def evaluate(objective: Objective, query: Query, streams: Streams, limits: Limits) -> EvaluationRecord | str:
    """Run one evaluation here, or in a separate process if it has limits, by `time.time`; it may be moved instead."""
    mark_interrupts()
    begun, since = time.time(), time.monotonic()
    try:
        record = _evaluator(limits).evaluate(objective, query, streams)
    except EvaluationMoved:
        return _MOVED
    record.started, record.finished = begun, begun + time.monotonic() - since
    return record


@lru_cache(maxsize=2)
def _task(on_gpu: bool) -> Any:
    # A process keeps what it has allocated on a GPU, and can use the GPU no more after an error there. Ray therefore ends it
    # after a task that declares GPUs, but not after one that requests them as `submitted` does.
    return ray.remote(max_calls=1)(evaluate) if on_gpu else ray.remote(evaluate)


def submitted(objective: Any, query: Query, streams: Streams, limits: Limits, options: Mapping[str, Any]) -> Any:
    """Submit one evaluation as a Ray task and return the reference of its result."""
    task = _task(options.get("num_gpus", 0.0) > 0)
    return task.options(max_retries=0, **options).remote(objective, query, streams, limits)


class Dispatcher:
    """Submits the evaluations of all agents of a run, whose processes wait for the results.

    Ray lends a worker to the process that submits a task, and is slow to lend it to another process. With eight agents that
    submit their own evaluations, a worker idles a tenth of a second between two of them; with one dispatcher it does not. At
    most `parallel` evaluations of one agent run. Further ones start when one ends, even while the agent's process is busy.
    """

    def __init__(self, parallel: int) -> None:
        self._places = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(parallel))

    async def evaluate(self, objective: list[Any], *what: Any) -> EvaluationRecord | str | None:
        """Wait for what `evaluate` returns; None when its machine was lost.

        `objective` is a list with the reference of the objective, which keeps Ray from resolving it here.
        """
        query: Query = what[0]
        async with self._places[query.agent]:
            call = submitted(objective[0], *what)
            try:
                record: EvaluationRecord | str = await call
                return record
            except asyncio.CancelledError:
                ray.cancel(call, force=True)
                raise
            except ray.exceptions.RayError as error:
                return _failure(error, query)


def start_dispatcher(parallel: int) -> Any:
    """Start a dispatcher. It ends, with its tasks, when no process holds a reference to it any more."""
    declared: Any = ray.remote(Dispatcher)
    return declared.options(num_cpus=0, max_restarts=-1, max_concurrency=10_000, **LASTING).remote(parallel)


class RayPool:
    """The evaluations of one agent of a run on a Ray cluster; `halted` returns whether to stop waiting.

    Where agents have their own processes, a `dispatcher` submits the evaluations. They run on nodes with the `labels`.
    """

    def __init__(
        self,
        objective: Objective,
        policy: Policy,
        agent: int,
        limits: Limits,
        halted: Callable[[], bool],
        dispatcher: Any = None,
        labels: Mapping[str, str] = {},
    ) -> None:
        self._objective, self._halted, self._dispatcher = ray.put(WithCode(objective)), halted, dispatcher
        self._limits, wanted = limits, policy.wanted(agent)
        self._options = _options(wanted)
        _check(agent, wanted, self._options, labels)
        self._options |= spread_over(labels)
        self._calls: dict[Any, tuple[Query, Streams, int]] = {}

    def start(self, query: Query, streams: Streams) -> None:
        """Start an evaluation, unless it is running; cancel another evaluation that has the same number."""
        for call, (other, _, _) in list(self._calls.items()):
            if other.number == query.number:
                if other.x.tolist() == query.x.tolist():
                    return
                self._give_up(call)
                del self._calls[call]
        self._begin(query, streams, MACHINE_LOSSES)

    def wait(self) -> EvaluationRecord | None:
        """Wait for the next evaluation to end and return its record; None once the pool is halted."""
        while not self._halted():
            done, _ = ray.wait(list(self._calls), num_returns=1, timeout=_POLL)
            for call in done:
                query, streams, left = self._calls.pop(call)
                record = _result(call, query)
                if isinstance(record, EvaluationRecord):
                    return record
                left -= record is None
                if left < 0:
                    return query.failed(f"its machine was lost {MACHINE_LOSSES} times")
                self._begin(query, streams, left)
        return None

    def close(self) -> None:
        """Cancel the running evaluations."""
        for call in self._calls:
            self._give_up(call)
        self._calls = {}

    def _begin(self, query: Query, streams: Streams, left: int) -> None:
        """Submit an evaluation, whose machine may be lost `left` more times."""
        what = (query, streams, self._limits, self._options)
        if self._dispatcher is None:
            call = submitted(self._objective, *what)
        else:
            call = self._dispatcher.evaluate.remote([self._objective], *what)
        self._calls[call] = query, streams, left

    def _give_up(self, call: Any) -> None:
        ray.cancel(call, force=self._dispatcher is None)  # a dispatcher does it by force


def _result(call: Any, query: Query) -> EvaluationRecord | str | None:
    """Return what a call returned; None when its machine was lost and the evaluation must be repeated."""
    try:
        record: EvaluationRecord | str | None = ray.get(call)
        return record
    except ray.exceptions.RayError as error:
        return _failure(error, query)


def _failure(error: ray.exceptions.RayError, query: Query) -> EvaluationRecord | None:
    """Return the record of a failed evaluation; None when its machine was lost."""
    if isinstance(error, ray.exceptions.WorkerCrashedError | ray.exceptions.OutOfMemoryError):
        return query.failed(f"its process died: {str(error).splitlines()[0]}")
    if isinstance(error, ray.exceptions.RayTaskError):
        return query.failed(str(error))
    return None


def _options(wanted: Mapping[str, float]) -> dict[str, Any]:
    named = {"CPU": "num_cpus", "GPU": "num_gpus"}
    options: dict[str, Any] = {"num_cpus": 1.0}
    options |= {named[name]: amount for name, amount in wanted.items() if name in named}
    if "memory" in wanted:
        options["memory"] = int(wanted["memory"] * MIB)
    own = {name: amount for name, amount in wanted.items() if name not in (*named, "memory")}
    return {**options, "resources": own} if own else options


def _check(agent: int, wanted: Mapping[str, float], options: Mapping[str, Any], labels: Mapping[str, str] = {}) -> None:
    """Raise ValueError if no machine of the cluster has the resources, since Ray would wait for them forever."""
    needed = {"CPU": options["num_cpus"], "GPU": options.get("num_gpus", 0.0), "memory": options.get("memory", 0.0)}
    needed |= options.get("resources", {})
    if not nodes_with(needed, labels) and not grows():
        asked = ", ".join(f"{name} = {amount:g}" for name, amount in (dict(wanted) or needed).items())
        asked += f" and [hosting] labels {dict(labels)}" if labels else ""
        raise ValueError(f"agent {agent}: [evaluation] resources {asked}: no host of the Ray cluster has these; request less")
