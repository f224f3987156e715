"""The contract of algorithms, checked on short lock-step runs: `check_algorithm(algorithm)`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedbo.actors.evaluation.failed_points import other_than, takes_worst, with_failures
from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.algorithms.base import (
    LARGEST,
    ORIGINS,
    Algorithm,
    Array,
    Decision,
    Declaration,
    Inbound,
    Overlapping,
    Payload,
    Private,
    Problem,
    Starting,
)
from fedbo.algorithms.messages import fault
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.rooms import offered
from fedbo.testing.contract import ContractBroken, is_frozen, need
from fedbo.testing.lockstep import Lockstep, Transmit, pulls

AGENTS, DIM, INITIAL, HISTORY, ROUNDS = 3, 2, 3, 6, 4
FAILING_ROUNDS = 10
PULLS = 300  # of each agent, where the budget counts evaluations
PARALLEL = 4  # points of one agent under way at once, for those that can decide so


def check_algorithm(algorithm: Algorithm, seed: int = 5) -> None:
    """Raise ContractBroken, with the reason, if an algorithm breaks an assumption of the simulation.

    It takes some ten runs of four rounds with three agents in two dimensions, with and without histories. Then come the checks
    that rooms offer as `check_algorithm`, such as attacks on its messages where fedbo-leak is installed.
    """
    check_settings(algorithm)
    plain = started(algorithm, seed=seed).run(ROUNDS)
    for one in (plain, started(algorithm, history=False, seed=seed).run(ROUNDS)):
        check_points(one)
        check_messages(one)
    check_seeds(plain, seed)
    check_disturbances(plain, seed)
    check_damage(algorithm)
    if isinstance(algorithm, Overlapping):
        for history, failing, worst in ((True, 0.3, True), (False, 0.3, False), (False, 1.0, False)):
            check_parallel(algorithm, history, failing, worst)
    if isinstance(algorithm, Private):
        check_private(algorithm)
    check_failures(algorithm)
    for check in offered("check_algorithm"):
        check(algorithm)


def _problem(algorithm: Algorithm, history: bool = True) -> Problem:
    problem = Problem(DIM, AGENTS, tuple(range(AGENTS)), INITIAL, ROUNDS, history=HISTORY if history else 0)
    return dataclasses.replace(problem, initial=0, pulls=PULLS) if counts_pulls(algorithm) else problem


def counts_pulls(algorithm: Algorithm) -> bool:
    """Check whether an algorithm has no initial points, like those whose budget counts evaluations."""
    problem = Problem(DIM, AGENTS, tuple(range(AGENTS)), INITIAL, ROUNDS, agent=0)
    return isinstance(algorithm, Starting) and not len(algorithm.initial_points(problem, np.full((INITIAL, DIM), 0.5)))


def bowl(x: Array, agent: int) -> Array:
    """Return the values `(n,)` of an agent's objective at `x (n, d)`."""
    return np.asarray(1.0 - ((x - 0.2 - 0.2 * agent) ** 2).sum(axis=1))


def observed(decision: Decision, streams: Streams) -> Array:
    """Return means of noisy values in [0, 1], as bandit algorithms assume."""
    spread = 0.4 / np.sqrt(pulls(decision))
    values = 0.3 * bowl(decision.x, streams.owner) + 0.5 + streams.rng("noise").uniform(-spread, spread)
    return np.asarray(np.clip(values, 0.0, 1.0))


def started(
    algorithm: Algorithm,
    history: bool = True,
    seed: int = 5,
    transmit: Transmit = list,
    kind: Callable[..., Lockstep] = Lockstep,
) -> Lockstep:
    """Return an algorithm's agents in lock-step, after their initial points and the first exchange of messages."""
    rng, problem = np.random.default_rng(1), _problem(algorithm, history)
    known = [rng.random((HISTORY, DIM)) for _ in range(AGENTS)] if history else []
    evaluate = observed if problem.pulls else lambda decision, streams: bowl(decision.x, streams.owner)
    run = kind(algorithm, problem, evaluate, seed, [(x, bowl(x, agent)) for agent, x in enumerate(known)])
    declared = algorithm.upload(problem)
    run.transmit = lambda messages: transmit([_as_declared(message, declared) for message in messages])
    run.begin()
    run.exchange()
    return run


def asked(run: Lockstep) -> bytes:
    """Return all decided points as bytes, for comparison."""
    return b"".join(decision.x.tobytes() for decisions in run.decisions for decision in decisions.values())


def check_settings(algorithm: Algorithm) -> None:
    """Check that settings are a frozen dataclass, and that both halves exist."""
    need(isinstance(algorithm, Algorithm), "it lacks a function of the protocol Algorithm")
    need(is_frozen(algorithm), "settings must be a frozen dataclass")
    silent = algorithm.upload(_problem(algorithm)) is None
    need(silent or revealed_by(algorithm) is not Reveals.NOTHING, "reveals must not be 'nothing' where an upload is declared")


def check_points(run: Lockstep) -> None:
    """Check that points lie in the unit cube, in the declared number, and within the budget of evaluations."""
    decisions = [decision for decisions in run.decisions for decision in decisions.values()]
    for x in [*run.initial, *(decision.x for decision in decisions)]:
        need(x.ndim == 2 and x.shape[1] == DIM, f"points must have shape (q, {DIM}), not {x.shape}")
        need(bool(((x >= 0) & (x <= 1)).all()), "a point lies outside of the unit cube")
    for decision in decisions:
        need(decision.origin in ORIGINS, f"no origin {decision.origin!r}")
        number, declared = len(decision.x), run.algorithm.queries
        need(declared in (None, number), f"a decision has {number} points, but queries = {declared}")
        need(pulls(decision).shape == (number,) and bool((pulls(decision) >= 1).all()), "pulls must be (q,), each at least 1")
    need(not run.problem.pulls or bool((run.spent <= PULLS).all()), "more is evaluated than the budget of pulls")


def check_messages(run: Lockstep) -> None:
    """Check that answers are as declared too, and that messages are sent exactly if an upload is declared."""
    declared = run.algorithm.download(run.problem)
    for agent, payload in (item for answers in run.answers for item in answers.items()):
        _as_declared(Inbound(agent, run.step, 0.0, payload), declared)
    silent = not any(run.sent)
    need(silent == (run.algorithm.upload(run.problem) is None), "messages must be sent exactly if an upload is declared")
    declared_reveals = revealed_by(run.algorithm)
    if declared_reveals not in (Reveals.OBSERVATIONS, Reveals.COMPUTABLE):
        words = f"a message holds a number of an observation, but reveals is '{declared_reveals}'"
        need(not any(numbers_of_observations(run)), words)


def numbers_of_observations(run: Lockstep) -> Iterator[tuple[int, str]]:
    """Yield sender and field of each message that contains, to the bit, a value or a coordinate observed by its sender."""
    for sender, name, array in (
        (sender, name, array) for sent in run.sent for sender, payload in sent.items() for name, array in payload.items()
    ):
        observed = {number for x, y in run.observed[sender] for number in (*x.ravel().tolist(), *y.tolist())}
        # Short binary fractions, as 0 or the places of a grid, are no sign of an observation.
        if any(number in observed and number * 2**20 % 1 for number in np.ravel(array).tolist()):
            yield sender, name


def _as_declared(message: Inbound, declared: Declaration | None) -> Inbound:
    need(declared is not None, "there is a message, but None is declared")
    said = fault(message.payload, declared or {})
    need(said is None, f"a message is not as declared: {said}")
    return message


def check_seeds(plain: Lockstep, seed: int) -> None:
    """Check that another seed results in other points; an algorithm without draws of its own need only see other values."""
    other = started(plain.algorithm, seed=seed + 1).run(ROUNDS)
    differ = asked(other) != asked(plain) or (plain.problem.pulls and pack(other.states) != pack(plain.states))
    need(bool(differ), "another seed gives the same points")


def check_disturbances(plain: Lockstep, seed: int) -> None:
    """Check that a run repeats its points, even if stored every round, or with duplicated or reordered messages."""
    if asked(_again(plain.algorithm, seed, True, lambda messages: _twice(messages)[::-1])) == asked(plain):
        return
    # Each alone, to say which it was.
    ordered = "told messages in another order; go through the agents in order: for agent in sorted(state)"
    for words, stored, transmit in (
        ("run again with the same seed", False, list),
        ("stored after every round and loaded again", True, list),
        ("told every message twice", False, _twice),
        (ordered, False, lambda messages: messages[::-1]),
    ):
        need(asked(_again(plain.algorithm, seed, stored, transmit)) == asked(plain), f"it asks for other points when {words}")
    raise ContractBroken("it asks for other points when stored after every round and told messages twice and backwards")


def _twice(messages: list[Inbound]) -> list[Inbound]:
    return [message for message in messages for _ in range(2)]


def _again(algorithm: Algorithm, seed: int, stored: bool, transmit: Transmit) -> Lockstep:
    """Run once more, with messages transmitted by `transmit`."""
    run = started(algorithm, seed=seed, transmit=transmit)
    for number in range(1, ROUNDS + 1):
        if stored:
            run.states, run.server = [unpack(pack(state)) for state in run.states], unpack(pack(run.server))
            run.algorithm, run.inbox = unpack(pack(run.algorithm)), unpack(pack(run.inbox))
        run.run(number)
    return run


def check_damage(algorithm: Algorithm, seed: int = 0) -> None:
    """Check that a message with one damaged number is refused or harms no decision; `seed` draws the damage."""
    declared, rng = algorithm.upload(_problem(algorithm)), np.random.default_rng(seed)
    if declared is None or isinstance(algorithm, Private):  # what passes a mechanism is clipped there
        return

    def damaging(messages: list[Inbound]) -> list[Inbound]:
        harmed = [message._replace(payload=damaged(message.payload, rng)) for message in messages]
        return [message for message in harmed if fault(message.payload, declared, LARGEST) is None]

    with np.errstate(over="ignore", invalid="ignore"):
        check_points(started(algorithm, transmit=damaging).run(ROUNDS))


def damaged(payload: Payload, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Copy a message with one of the twelve leading bits of one number flipped: its sign or a bit of its exponent."""
    copies = {name: array.copy() for name, array in payload.items()}
    floats = [array for array in copies.values() if array.dtype == np.float64 and array.size]
    if not floats:
        return copies
    chosen = floats[rng.integers(len(floats))]
    place = np.unravel_index(rng.integers(chosen.size), chosen.shape)
    bits = np.array([chosen[place]]).view(np.uint64) ^ np.uint64(1 << int(rng.integers(52, 64)))
    chosen[place] = bits.view(np.float64)[0]
    return copies


class Overlapped(Lockstep):
    """The same with up to PARALLEL pending points of each agent: they end in random order, and a `failing` share of them fails.

    Failures are not reported, or, with `worst`, reported as the worst value seen, as a study does unless algorithms are
    `Avoiding`.
    """

    def __init__(self, *given: Any, failing: float, worst: bool) -> None:
        super().__init__(*given)
        self.failing, self.worst, self.fate = failing, worst, np.random.default_rng(8)
        self.flight: list[list[Array]] = []
        self.seen: list[list[float]] = [[] for _ in self.states]

    def begin(self) -> None:
        """Evaluate the initial points."""
        for agent in range(len(self.states)):
            x = self.streams.of(agent).rng("initial points").random((self.problem.initial, self.problem.dim))
            self.flight.append([*x])
            while self.flight[agent]:
                self.end(agent)

    def act(self) -> None:
        """Make every agent decide once more, after ending evaluations until fewer than PARALLEL are pending."""
        self.step += 1
        self.decisions.append({})
        for agent in range(len(self.states)):
            while len(self.flight[agent]) >= PARALLEL:
                self.end(agent)
            waiting = np.array(self.flight[agent]).reshape(-1, DIM)
            assert isinstance(self.algorithm, Overlapping)
            self.states[agent] = unpack(pack(self.algorithm.pending(self.states[agent], waiting)))
            self.decisions[-1][agent] = decision = self.ask(agent)
            again = bool((waiting == decision.x).all(axis=1).any())
            need(decision.x.shape == (1, DIM) and not again, "with points under way, a decision must be one other point")
            self.flight[agent].append(decision.x[0])

    def end(self, agent: int) -> None:
        """End one of an agent's evaluations, and report its value to the agent unless it failed."""
        x = self.flight[agent].pop(self.fate.integers(len(self.flight[agent])))[None, :]
        y = bowl(x, agent)
        if self.fate.random() < self.failing:
            if not self.worst or not self.seen[agent]:
                return
            y = np.array([min(self.seen[agent])])
        self.seen[agent].append(float(y[0]))
        self.states[agent] = self.algorithm.tell(self.states[agent], x, y)


def check_parallel(algorithm: Algorithm, history: bool, failing: float, worst: bool) -> None:
    """Check that pending points may end in any order, and that some or all of them may fail."""
    if algorithm.queries != 1:
        return
    kind = partial(Overlapped, failing=failing, worst=worst)
    check_points(started(algorithm, history, kind=kind).run(PARALLEL + 2))


class HalfFailing(Lockstep):
    """The same on a slope that fails in its better half, with failures handled by the default policy of a study."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.failed: list[Array | None] = [None] * len(self.states)
        self.worst = [math.inf] * len(self.states)
        self.made = self.lost = self.again = 0

    def ask(self, agent: int) -> Decision:
        """Replace a point that failed before, as an agent does."""
        decision, failed = super().ask(agent), self.failed[agent]
        return decision if failed is None else other_than(failed, decision, self.problem, self.streams.of(agent).at(self.step))

    def tell(self, agent: int, decision: Decision) -> None:
        """Evaluate a decision; report the values and the failures to the agent."""
        x, failed = decision.x, self.failed[agent]
        fails, y = x.mean(axis=1) > 0.5, x.mean(axis=1)
        if self.step and decision.origin != "agreed":
            self.made, self.lost = self.made + len(x), self.lost + int(fails.sum())
            self.again += 0 if failed is None else int((x[:, None] == failed[None]).all(axis=2).any(axis=1).sum())
        self.worst[agent] = min([self.worst[agent], *y[~fails].tolist()])
        if takes_worst(self.algorithm) and self.worst[agent] < math.inf:
            y = np.where(fails, self.worst[agent], y)
        told = ~fails | (takes_worst(self.algorithm) and self.worst[agent] < math.inf)
        if told.any():
            self.states[agent] = self.algorithm.tell(self.states[agent], x[told], y[told])
        if fails.any():
            own, self.failed[agent] = with_failures(self.algorithm, self.states[agent], failed, x[fails])
            self.states[agent] = own


def check_failures(algorithm: Algorithm) -> None:
    """Check that a method learns from failures: if the better half of the cube fails, most decisions are in the other half.

    Uniform points would break this once in 1000 runs. Bandits are left out, since they repeat points by design.
    """
    if counts_pulls(algorithm):
        return
    problem = Problem(DIM, 2, (0, 1), INITIAL, FAILING_ROUNDS)
    run = HalfFailing(algorithm, problem, lambda decision, streams: np.zeros(len(decision.x)), 5)
    run.begin()
    run.exchange()
    run.run(FAILING_ROUNDS)
    need(not run.again, "a point is evaluated again although it failed")
    limit = 0.5 * run.made + 1.55 * math.sqrt(run.made)  # 3.1 standard deviations of uniform points
    need(run.lost <= limit, f"{run.lost} of {run.made} decisions are where evaluations fail, which half of the cube does")


def check_private(algorithm: Algorithm) -> None:
    """Check that the coordinator half of a private algorithm sees only releases; weights are a mean for every block."""
    assert isinstance(algorithm, Private)
    run = started(algorithm)
    problem = dataclasses.replace(run.problem, n_agents=7, targets=tuple(range(7)))
    need(run.releases == 1, "the messages of the first round must pass the mechanism")
    fresh = algorithm.server_init(run.problem)
    answers = algorithm.broadcast(fresh, range(AGENTS), np.ones(AGENTS), run.streams.of(COORDINATOR))[0]
    need(not answers, "there is an answer before the first release")
    fields = [*(algorithm.upload(run.problem) or {}).values()]
    need(len(fields) == 1 and len(fields[0].shape) == 1, "a private message must be one array (M,)")
    for number in (0, 5, 20, 100):
        weights = algorithm.weights(problem, number)
        need(weights.shape == (algorithm.mechanism(problem).blocks, 7), "weights must have shape (P, N)")
        need(bool((weights >= 0).all()) and np.allclose(weights.sum(axis=1), 1.0), "weights must be a mean for every block")
        need(np.array_equal(weights, algorithm.weights(problem, number)), "weights differ when asked for again")
    payload = {"": np.ones([length or 1 for length in fields[0].shape])}
    try:
        algorithm.receive(run.server, Inbound(0, 1, 0.0, payload), 1.0)
    except AssertionError:
        return
    raise ContractBroken("receive must refuse messages: they pass the mechanism")
