"""One agent sends whatever it likes, as declared and not: no study ends, and no point of the others is lost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from small_runs import Ran, Setting, logged

from fedbo.actors.hosts import InlineHosts
from fedbo.actors.task import Task
from fedbo.algorithms.base import LARGEST, LONGEST, Declaration, Field, Payload, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.messages import checker, fault
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Barrier
from fedbo.testing.algorithm_contract import counts_pulls

AGENTS, HOSTILE = 3, 2
SENDING = [
    name for name in algorithms() if entry(name).make().upload(Problem(2, AGENTS, range(AGENTS), 2, 3, pulls=60)) is not None
]
PLAIN = [name for name in SENDING if not name.endswith(("_noise", "_uniform", "_shuffled"))]


class Liar(np.ndarray):
    """Answers every question of NumPy's functions as its sender likes."""

    def __array_function__(self, *_: Any) -> Any:
        return np.float64(0.0)


class NamedLiar(dict[str, Any]):
    """Says that it has the fields that are declared."""

    def keys(self) -> Any:
        return {"anything"}


def filled(value: float) -> Callable[[Declaration, Payload], Any]:
    """Return messages of one number, where the type of a field can hold it."""

    def fill(field: Field, array: Any) -> Any:
        with np.errstate(all="ignore"):
            if field.dtype == "float64":
                return np.full(array.shape, value)
            limits = np.iinfo(field.dtype) if field.dtype == "int64" else None
            return np.full(
                array.shape, limits.max if limits and value > 0 else limits.min if limits else bool(value), field.dtype
            )

    return lambda declared, payload: {name: fill(declared[name], array) for name, array in payload.items()}


def mixed(exponent: float) -> Callable[[Declaration, Payload], Any]:
    """Return random numbers of both signs and of sizes up to this power of ten."""

    def of(declared: Declaration, payload: Payload) -> Any:
        rng = np.random.default_rng(3)
        return {
            name: array
            if array.dtype != np.float64
            else rng.choice([-1.0, 1.0], array.shape) * 10.0 ** rng.uniform(-exponent, exponent, array.shape)
            for name, array in payload.items()
        }

    return of


def longer(rows: int) -> Callable[[Declaration, Payload], Any]:
    """Return messages with so many rows in every first axis."""
    return lambda _, payload: {name: np.ones((rows, *array.shape[1:]), array.dtype) for name, array in payload.items()}


def each(change: Callable[[Any], Any]) -> Callable[[Declaration, Payload], Any]:
    return lambda _, payload: {name: change(array) for name, array in payload.items()}


HOSTILE_MESSAGES: dict[str, Callable[[Declaration, Payload], Any]] = {
    "zeros": filled(0.0),
    "denormal": filled(5e-324),
    "huge": filled(1e308),
    "minus huge": filled(-1e308),
    "largest": filled(LARGEST),
    "minus largest": filled(-LARGEST),
    "NaN": filled(float("nan")),
    "infinite": filled(float("inf")),
    "one": filled(1.0),
    "mixed": mixed(59.0),
    "mildly mixed": mixed(8.0),
    "tiny": filled(1e-300),
    "long": longer(100_000),
    "empty": longer(0),
    "masked": each(lambda array: np.ma.masked_array(array, mask=True)),
    "matrix": each(lambda array: array.view(np.matrix)),
    "subclass": each(lambda array: (array * np.nan if array.dtype == np.float64 else array).view(Liar)),
    "list": each(lambda array: array.tolist()),
    "objects": each(lambda array: array.astype(object)),
    "single": each(lambda array: array.astype(np.float32)),
    "big-endian": each(lambda array: array.astype(array.dtype.newbyteorder(">"))),
    "none": each(lambda array: None),
    "escapes": lambda _, payload: {**payload, "\x1b[2J" * 1000: np.ones(1)},
    "other keys": lambda _, payload: {**payload, 7: np.ones(1)},
    "nothing": lambda _, payload: {},
    "not a dict": lambda _, payload: [*payload.values()],
    "dict that lies": lambda _, payload: NamedLiar(payload),
}
FEW = ("zeros", "denormal", "largest", "mixed")  # those that most methods declare to be sound


def hostile(algorithm: Any, change: Callable[[Declaration, Payload], Any], declared: Declaration) -> Any:
    """Return an algorithm of the same kind and settings, whose agent HOSTILE changes all that it sends."""

    def outbox(self: Any, state: Any, streams: Streams) -> Any:
        payload, state = type(algorithm).outbox(self, state, streams)
        return (payload if payload is None or streams.owner != HOSTILE else change(declared, payload)), state

    made = type(algorithm).__name__ + "Hostile"
    kind = type(made, (type(algorithm),), {"outbox": outbox, "__slots__": ()})
    copy = object.__new__(kind)
    for field in fields(algorithm):
        object.__setattr__(copy, field.name, getattr(algorithm, field.name))
    return copy


def run(name: str, message: str, preset: str | None = None) -> tuple[Ran, list[str]]:
    """Carry out a small study with one hostile agent; also why messages were refused."""
    honest = entry(name).make(preset)
    pulls = 60 if counts_pulls(honest) else 0
    base = Setting(honest, AGENTS, iterations=3, initial=0 if pulls else 2, exchange=Barrier(), availability=Always())
    problem = Problem(2, AGENTS, range(AGENTS), base.initial, pulls or base.iterations, pulls=pulls)
    algorithm = hostile(honest, HOSTILE_MESSAGES[message], honest.upload(problem) or {})
    task: Task = replace(base.task(), algorithm=algorithm, problem=problem)
    core = assembled(task, base.exchange, Environment(AgentModels(evaluation=Constant(1.0), latency=Constant(0.1))))
    records, hosts, agenda = list[Any](), InlineHosts(task, range(AGENTS)), EventQueue()
    with np.errstate(all="ignore"):
        run_virtual(core, hosts, RunHooks(records.extend), agenda, 1e6)
    lines = logged(records)
    return Ran(core, hosts, lines, agenda), [line.message or line.reason for line in lines if line.kind == "rejected"]


def check(name: str, message: str, preset: str | None = None) -> None:
    ran, why = run(name, message, preset)
    others = [row for row in ran.rows if row.agent != HOSTILE]
    assert {row.agent for row in others} == {0, 1}
    assert all(np.isfinite(row.u).all() and np.isfinite(row.outcome.value) for row in others), (name, message)
    assert all(words.isprintable() and len(words) < 250 for words in why)


@pytest.mark.parametrize("message", FEW)
@pytest.mark.parametrize(
    "name", ["share_best", *(pytest.param(name, marks=pytest.mark.long) for name in ("fts_de", "pooled", "fed_prior"))]
)
def test_a_message_that_is_as_declared_ends_no_study(name: str, message: str) -> None:
    check(name, message)


@pytest.mark.long
@pytest.mark.parametrize("name", SENDING)
def test_no_message_ends_a_study_of_any_method(name: str) -> None:
    for preset in (None, *algorithms()[name].presets):
        for message in HOSTILE_MESSAGES:
            check(name, message, preset)


DECLARED = {"x": Field((None, 2), longest=50), "y": Field((None,)), "n": Field((1,), "int64")}
SOUND: Mapping[str, Any] = {"x": np.ones((4, 2)), "y": np.ones(4), "n": np.ones(1, np.int64)}


@pytest.mark.parametrize("declared", [DECLARED, {"x": Field((4, 2)), "y": Field((4,)), "n": Field((1,), "int64")}])
@pytest.mark.parametrize("message", HOSTILE_MESSAGES)
def test_what_is_not_as_declared_is_refused_in_few_printable_words(message: str, declared: Declaration) -> None:
    assert fault(dict(SOUND), declared, LARGEST) is None
    for found in (fault, lambda payload, *_: checker(declared, LARGEST)(payload)):
        wrong = found(HOSTILE_MESSAGES[message](declared, SOUND), declared, LARGEST)
        sound = message in ("zeros", "denormal", "largest", "minus largest", "one", "mixed", "mildly mixed", "tiny")
        assert (wrong is None) == sound, wrong
        assert wrong is None or (wrong.isprintable() and len(wrong) < 150)


def test_a_length_is_bounded_by_its_declaration() -> None:
    rows = {"x": np.ones((51, 2)), "y": np.ones(51), "n": np.ones(1, np.int64)}
    assert fault(rows, DECLARED) == "field 'x' has length 51, but at most 50 is allowed"
    assert Field((None,)).longest == LONGEST


def test_a_message_is_checked_without_taking_memory() -> None:
    payload = {"x": np.ones((50, 2)), "y": np.ones(50), "n": np.ones(1, np.int64)}
    large = {"\x1b" * 10**6: np.ones(10**6)}
    tracemalloc.start()
    try:
        for each_ in (payload, large):
            fault(each_, DECLARED, LARGEST)
        assert tracemalloc.get_traced_memory()[1] < 2**17
    finally:
        tracemalloc.stop()
