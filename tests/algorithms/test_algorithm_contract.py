"""What every algorithm in the folder must do, found by name at run time."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.algorithms.base import ORIGINS, Algorithm, Decision, Inbound, Mechanism, Overlapping, Private, Problem, Starting
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.messages import LARGEST, fault
from fedbo.tuning.tune import tuning_study

SETTINGS = [(name, preset) for name, found in algorithms().items() for preset in (None, *found.presets)]
OVERLAPPING = [(name, preset) for name, preset in SETTINGS if isinstance(entry(name).make(preset), Overlapping)]
PRIVATE = [(name, preset) for name, preset in SETTINGS if isinstance(entry(name).make(preset), Private)]
each = pytest.mark.parametrize(("name", "preset"), SETTINGS, ids=lambda word: str(word))
N, DIM, INITIAL, STEPS = 3, 2, 3, 4
PULLS = 300  # of each agent
PLACES = 4  # points of one agent that are under way at once


def _value(x: np.ndarray, agent: int) -> np.ndarray:
    return np.asarray(1.0 - ((x - 0.2 - 0.2 * agent) ** 2).sum(axis=1))


class Loop:
    """A lock-step exchange among three agents: the least that runs both halves of an algorithm, and a mechanism between."""

    def __init__(self, algorithm: Algorithm, history: bool = True, seed: int = 5) -> None:
        self.algorithm, self.streams = algorithm, Streams(seed)
        self.problem = Problem(DIM, N, tuple(range(N)), INITIAL, STEPS, history=6 if history else 0)
        if bandit(algorithm):
            self.problem = dataclasses.replace(self.problem, initial=0, pulls=PULLS)
        self.left, self.ended = [PULLS] * N, set[int]()
        rng = np.random.default_rng(1)
        known = [rng.random((6, DIM)) for _ in range(N)]
        self.states: list[Any] = []
        for agent in range(N):
            x, y = (known[agent], _value(known[agent], agent)) if history else (None, None)
            problem = dataclasses.replace(self.problem, agent=agent, history_x=x, history_y=y)
            self.states.append(algorithm.agent_init(problem, self.streams.of(agent)))
        self.server = algorithm.server_init(self.problem)
        self.inbox: list[list[Inbound]] = [[] for _ in range(N)]
        self.asked: list[np.ndarray] = []
        self.started: list[np.ndarray] = []
        self.sent: list[tuple[Any, Any]] = []
        self.step = self.releases = 0

    def advance(self) -> None:
        self.ended = {agent for agent in range(N) if not self.left[agent]}
        for agent in set(range(N)) - self.ended:
            streams = self.streams.of(agent).at(self.step)
            decision = None
            if self.step == 0:
                x = streams.rng("initial points").random((INITIAL, DIM))
                if isinstance(self.algorithm, Starting):
                    x = self.algorithm.initial_points(dataclasses.replace(self.problem, agent=agent), x)
                    self.started.append(x)
            else:
                decision, self.states[agent] = self.algorithm.ask(self.states[agent], tuple(self.inbox[agent]), streams)
                self.inbox[agent], x = [], decision.x
                self.asked.append(x)
                assert decision.origin in ORIGINS
            self.states[agent] = self.algorithm.tell(self.states[agent], x, self.values(x, decision, streams))
        self.exchange()
        self.step += 1

    def values(self, x: np.ndarray, decision: Decision | None, streams: Streams) -> np.ndarray:
        """What is told of a decision: bandits see means of noisy values in [0, 1], and keep to their budget."""
        if not bandit(self.algorithm):
            return _value(x, streams.owner)
        pulls = np.ones(len(x), np.int64) if decision is None or decision.pulls is None else decision.pulls
        assert pulls.shape == (len(x),) and (pulls >= 1).all()
        self.left[streams.owner] -= pulls.sum()
        assert self.left[streams.owner] >= 0
        noise = streams.rng("noise").uniform(-0.4, 0.4, len(x)) / np.sqrt(pulls)
        return np.clip(0.3 * _value(x, streams.owner) + 0.5 + noise, 0.0, 1.0)

    def exchange(self, times: int = 1, backwards: bool = False) -> None:
        if not self.algorithm.sends(self.step):
            return
        declared = self.algorithm.upload(self.problem)
        arrivals = []
        for agent in set(range(N)) - self.ended:
            streams = self.streams.of(agent).at(self.step)
            payload, self.states[agent] = self.algorithm.outbox(self.states[agent], streams)
            if payload is not None:
                self.sent.append((payload, declared))
                arrivals += [Inbound(agent, self.step, 0.0, payload)] * times
        self.deliver(list(reversed(arrivals)) if backwards else arrivals)
        streams = self.streams.of(COORDINATOR).at(self.step)
        answers, self.server = self.algorithm.broadcast(self.server, range(N), np.ones(N), streams)
        for agent, answer in answers.items():
            self.sent.append((answer, self.algorithm.download(self.problem)))
            self.inbox[agent].append(Inbound(COORDINATOR, self.step, 1.0, answer))

    def deliver(self, arrivals: list[Inbound]) -> None:
        if not isinstance(self.algorithm, Private):
            for message in arrivals:
                self.server = self.algorithm.receive(self.server, message, 1.0)
            return
        if not arrivals:
            return
        held = {message.sender: np.concatenate([*message.payload.values()]) for message in arrivals}
        weights = self.algorithm.weights(self.problem, self.releases)
        rng = self.streams.of(COORDINATOR).at(self.step).rng("mechanism")
        vectors = release(self.algorithm.mechanism(self.problem), weights, held, rng)
        self.server = self.algorithm.released(self.server, vectors, self.releases)
        self.releases += 1

    def run(self, steps: int = STEPS) -> bytes:
        while self.step <= steps:
            self.advance()
        return np.concatenate(self.asked).tobytes()


class Overlapped(Loop):
    """The same exchange with up to PLACES points of each agent under way: they end in random order, a `failing` share in vain.

    What failed is not told, or, with `worst`, told as the worst value seen, as the policies "drop" and "worst" of a study say.
    """

    def __init__(self, algorithm: Algorithm, history: bool = True, failing: float = 0.3, worst: bool = False) -> None:
        super().__init__(algorithm, history)
        self.fate, self.failing, self.worst = np.random.default_rng(8), failing, worst
        self.flight: list[list[np.ndarray]] = [[] for _ in range(N)]
        self.seen: list[list[float]] = [[] for _ in range(N)]

    def advance(self) -> None:
        for agent in range(N):
            streams = self.streams.of(agent).at(self.step)
            if self.step == 0:
                self.flight[agent] += [*streams.rng("initial points").random((INITIAL, DIM))]
            else:
                self.flight[agent].append(self.decided(agent, streams))
            while len(self.flight[agent]) >= (PLACES if self.step else 1):
                self.end(agent)
        self.exchange()
        self.step += 1

    def decided(self, agent: int, streams: Streams) -> np.ndarray:
        assert isinstance(self.algorithm, Overlapping)
        waiting = np.array(self.flight[agent]).reshape(-1, DIM)
        state = unpack(pack(self.algorithm.pending(self.states[agent], waiting)))
        decision, self.states[agent] = self.algorithm.ask(state, tuple(self.inbox[agent]), streams)
        self.inbox[agent] = []
        assert decision.origin in ORIGINS and decision.x.shape == (1, DIM) and ((decision.x >= 0) & (decision.x <= 1)).all()
        assert not (waiting == decision.x).all(axis=1).any(), "a point under way was asked for again"
        self.asked.append(decision.x)
        return decision.x[0]

    def end(self, agent: int) -> None:
        x = self.flight[agent].pop(self.fate.integers(len(self.flight[agent])))[None, :]
        y = _value(x, agent)
        if self.fate.random() < self.failing:
            if not self.worst or not self.seen[agent]:
                return
            y = np.array([min(self.seen[agent])])
        self.seen[agent].append(float(y[0]))
        self.states[agent] = self.algorithm.tell(self.states[agent], x, y)


def release(mechanism: Mechanism, weights: np.ndarray, held: dict[int, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """One release `(P, M)` of the messages held, as `Mechanism` says; with a share below 1 the last agent is left out."""
    kept = [agent for agent in sorted(held) if mechanism.share == 1 or agent < N - 1]
    longest = mechanism.clip / np.sqrt(mechanism.blocks)
    total = np.zeros((mechanism.blocks, len(next(iter(held.values())))))
    for agent in kept:
        message = held[agent] / max(1.0, np.linalg.norm(held[agent]) / longest)
        total += weights[:, agent, None] * message / mechanism.share
    if not mechanism.noise:
        return total
    return np.asarray(
        total + mechanism.noise * weights.max() * mechanism.clip / mechanism.share * rng.standard_normal(total.shape)
    )


def bandit(algorithm: Algorithm) -> bool:
    """Whether an algorithm takes no initial points, which is for those whose budget counts evaluations."""
    problem = Problem(DIM, N, tuple(range(N)), INITIAL, STEPS, agent=0)
    return isinstance(algorithm, Starting) and not len(algorithm.initial_points(problem, np.full((INITIAL, DIM), 0.5)))


def _loops(name: str, preset: str | None) -> Iterator[Loop]:
    algorithm = entry(name).make(preset)
    yield Loop(algorithm, history=True)
    yield Loop(algorithm, history=False)


@each
def test_points_lie_in_the_unit_cube_and_have_the_declared_number(name: str, preset: str | None) -> None:
    for loop in _loops(name, preset):
        loop.run()
        points = np.concatenate(loop.asked + loop.started)
        assert points.shape[1] == DIM and ((points >= 0) & (points <= 1)).all()
        if loop.algorithm.queries is not None:
            assert {len(x) for x in loop.asked} == {loop.algorithm.queries}


@each
def test_the_same_seed_gives_the_same_points_and_another_seed_others(name: str, preset: str | None) -> None:
    algorithm = entry(name).make(preset)
    assert Loop(algorithm).run() == Loop(algorithm).run()
    one, other = Loop(algorithm), Loop(algorithm, seed=6)
    # What draws nothing of its own asks for other points only where noise has led it elsewhere.
    assert one.run() != other.run() or (bandit(algorithm) and pickle.dumps(one.states) != pickle.dumps(other.states))


@each
def test_a_run_that_is_stored_and_taken_up_again_goes_on_as_if_nothing_had_been(name: str, preset: str | None) -> None:
    undisturbed = Loop(entry(name).make(preset)).run()
    loop = Loop(entry(name).make(preset))
    while loop.step <= STEPS:
        loop.states, loop.server, loop.inbox = pickle.loads(pickle.dumps((loop.states, loop.server, loop.inbox)))
        loop.algorithm = pickle.loads(pickle.dumps(loop.algorithm))
        loop.advance()
    assert np.concatenate(loop.asked).tobytes() == undisturbed


@each
def test_messages_are_as_declared(name: str, preset: str | None) -> None:
    for loop in _loops(name, preset):
        loop.run()
        speaks = loop.algorithm.upload(loop.problem) is not None
        assert speaks == bool(loop.sent)
        for payload, declared in loop.sent:
            assert fault(payload, declared) is None


@each
def test_a_second_copy_of_a_message_and_another_order_of_arrival_change_nothing(name: str, preset: str | None) -> None:
    plain = Loop(entry(name).make(preset)).run()
    for trouble in ({"times": 2}, {"backwards": True}):
        loop = Loop(entry(name).make(preset))
        exchange = loop.exchange
        loop.exchange = lambda exchange=exchange, trouble=trouble: exchange(**trouble)  # type: ignore[method-assign]
        assert loop.run() == plain


@each
def test_settings_are_frozen_and_the_algorithm_is_one(name: str, preset: str | None) -> None:
    algorithm = entry(name).make(preset)
    assert isinstance(algorithm, Algorithm)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        setattr(algorithm, dataclasses.fields(algorithm)[0].name, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
@each
def test_a_damaged_message_is_refused_at_the_door_or_does_no_harm_to_who_decides(
    name: str, preset: str | None, seed: int
) -> None:
    """Of every message one number, drawn with seed, has its sign or a bit of its exponent flipped."""
    loop = Loop(entry(name).make(preset))
    declared = loop.algorithm.upload(loop.problem)
    if declared is None or isinstance(loop.algorithm, Private):  # what passes a mechanism is clipped there
        return
    rng, deliver = np.random.default_rng(seed), loop.deliver

    def damaging(arrivals: list[Inbound]) -> None:
        harmed = [message._replace(payload=damaged(message.payload, rng)) for message in arrivals]
        deliver([message for message in harmed if fault(message.payload, declared, LARGEST) is None])

    loop.deliver = damaging  # type: ignore[method-assign]
    with np.errstate(over="ignore", invalid="ignore"):
        loop.run()
    points = np.concatenate(loop.asked)
    assert ((points >= 0) & (points <= 1)).all()


def damaged(payload: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A copy of a message with one of the twelve leading bits of one number flipped."""
    copies = {name: array.copy() for name, array in payload.items()}
    floats = [array for array in copies.values() if array.dtype == np.float64 and array.size]
    chosen = floats[rng.integers(len(floats))]
    place = np.unravel_index(rng.integers(chosen.size), chosen.shape)
    bits = np.array([chosen[place]]).view(np.uint64) ^ np.uint64(1 << int(rng.integers(52, 64)))
    chosen[place] = bits.view(np.float64)[0]
    return copies


@pytest.mark.parametrize(("name", "preset"), OVERLAPPING)
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize(("failing", "worst"), [(0.3, False), (0.3, True), (1.0, False)])
def test_points_under_way_may_end_in_any_order_and_some_or_all_of_them_fail(
    failing: float, worst: bool, history: bool, name: str, preset: str | None
) -> None:
    loop = Overlapped(entry(name).make(preset), history, failing, worst)
    loop.run(PLACES + 4)
    assert {len(waiting) for waiting in loop.flight} == {PLACES - 1}, "decisions were made with so many points under way"
    assert Overlapped(entry(name).make(preset), history, failing, worst).run(PLACES + 4) == np.concatenate(loop.asked).tobytes()


@each
def test_only_what_declares_that_it_can_is_let_decide_with_points_under_way(name: str, preset: str | None) -> None:
    """`Overlapping` is the declaration: what has no `pending`, or asks for several points at once, is refused."""
    can = (name, preset) in OVERLAPPING and entry(name).make(preset).queries == 1
    algorithm: Any = {"name": name} | ({"preset": preset} if preset else {})
    options: Any = {"parallel": 2, "algorithm": algorithm, "study": {"exchange": {"mode": "barrier"}}}
    try:
        tuning_study(_value, {"x": (0.0, 1.0)}, 2, options)
    except ValueError as error:
        assert not can and "cannot decide while points are under way" in str(error)
    else:
        assert can


@pytest.mark.parametrize(("name", "preset"), PRIVATE)
def test_a_coordinator_half_with_a_mechanism_sees_releases_only(name: str, preset: str | None) -> None:
    algorithm = entry(name).make(preset)
    assert isinstance(algorithm, Private)
    loop = Loop(algorithm)
    assert algorithm.broadcast(loop.server, range(N), np.ones(N), loop.streams.of(COORDINATOR))[0] == {}
    loop.advance()
    assert loop.releases == 1
    payload = {word: np.ones(field.shape) for word, field in (loop.algorithm.upload(loop.problem) or {}).items()}
    assert len(payload) == 1 and all(array.ndim == 1 for array in payload.values())
    with pytest.raises(AssertionError, match="messages pass the mechanism"):
        loop.algorithm.receive(loop.server, Inbound(0, 1, 0.0, payload), 1.0)


@pytest.mark.parametrize(("name", "preset"), PRIVATE)
def test_weights_of_a_mechanism_are_a_mean_for_every_block_and_the_same_when_asked_again(name: str, preset: str | None) -> None:
    algorithm, problem = entry(name).make(preset), Problem(DIM, 7, tuple(range(7)), INITIAL, STEPS)
    assert isinstance(algorithm, Private)
    for number in (0, 5, 20, 100):
        weights = algorithm.weights(problem, number)
        assert weights.shape == (algorithm.mechanism(problem).blocks, 7) and (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
        np.testing.assert_array_equal(weights, algorithm.weights(problem, number))


def test_a_fresh_process_asks_for_the_same_points() -> None:
    """Nothing hangs on what the process did before: not on caches, not on the hash seed."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_algorithm_contract import *\n"
        "print([hashlib.sha256(Loop(entry(n).make(p)).run()).hexdigest() for n, p in SETTINGS])"
    )
    told = subprocess.run([sys.executable, "-c", f"import hashlib\n{code}"], capture_output=True, text=True, check=True).stdout
    import hashlib

    here = [hashlib.sha256(Loop(entry(name).make(preset)).run()).hexdigest() for name, preset in SETTINGS]
    assert told == f"{here}\n"
