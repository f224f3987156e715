"""Every algorithm of the folder, found by name at run time, is held to the contract; and the contract finds what breaks it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedbo.algorithms.base import Decision, Field, Inbound, Overlapping, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.streams import Streams
from fedbo.testing.algorithm_contract import ROUNDS, asked, bowl, check_algorithm, check_damage, started
from fedbo.testing.contract import ContractBroken
from fedbo.tuning.tune import tuning_study

SETTINGS = [(name, preset) for name, found in algorithms().items() for preset in (None, *found.presets)]
each = pytest.mark.parametrize(("name", "preset"), SETTINGS, ids=lambda word: str(word))
# Those that take long, and whose parts others have: the prior and the noise, and the consensus.
COSTLY = {"dp_fed_prior", "admm_consensus"}
FIRST = {type(entry(name).make()): name for name in reversed(list(algorithms()))}  # one name of each class


def thrifty(name: str, preset: str | None) -> Any:
    """Leave the presets to the long tests, the controls of each method, which are settings of its class, and COSTLY ones."""
    plain = not name.endswith(("_noise", "_shuffled", "_uniform", "_alone", "_centre"))
    known = preset is None and (plain or FIRST[type(entry(name).make())] == name)
    return pytest.param(name, preset, marks=[] if known and name not in COSTLY else pytest.mark.long)


@pytest.mark.parametrize(("name", "preset"), [thrifty(*one) for one in SETTINGS], ids=lambda word: str(word))
def test_an_algorithm_keeps_to_the_contract(name: str, preset: str | None) -> None:
    check_algorithm(entry(name).make(preset))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
@each
def test_a_damaged_message_is_refused_or_harms_no_decision(name: str, preset: str | None, seed: int) -> None:
    check_damage(entry(name).make(preset), seed)


@each
def test_only_what_declares_that_it_can_is_let_decide_with_points_under_way(name: str, preset: str | None) -> None:
    """`Overlapping` is the declaration: what has no `pending`, or asks for several points at once, is refused."""
    made = entry(name).make(preset)
    can = isinstance(made, Overlapping) and made.queries == 1
    algorithm: Any = {"name": name} | ({"preset": preset} if preset else {})
    options: Any = {"parallel": 2, "algorithm": algorithm, "study": {"exchange": {"mode": "barrier"}}}
    try:
        tuning_study(bowl, {"x": (0.0, 1.0)}, 2, options)
    except ValueError as error:
        assert not can and "cannot choose a point while others are pending" in str(error)
    else:
        assert can


@pytest.mark.parametrize("stride", [37, pytest.param(1, marks=pytest.mark.long)])
def test_a_fresh_process_asks_for_the_same_points(stride: int) -> None:
    """Nothing hangs on what the process did before: not on caches, not on the hash seed."""
    names = [*algorithms()][::stride]
    code = "import hashlib, sys; from fedbo.algorithms.catalog import entry; from fedbo.testing.algorithm_contract import *\n"
    code += f"print([hashlib.sha256(asked(started(entry(n).make()).run({ROUNDS}))).hexdigest() for n in sys.argv[1:]])"
    told = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True).stdout
    here = [hashlib.sha256(asked(started(entry(name).make()).run(ROUNDS))).hexdigest() for name in names]
    assert told == f"{here}\n"


class Sums(NamedTuple):
    """The sum of all that was sent, and whose message came last."""

    total: float
    last: int


@dataclass(frozen=True)
class Small:
    """An algorithm that keeps to the contract: points about what the agents have sent, the newest message of each."""

    length: float = 0.1
    queries = 1

    def sends(self, step: int) -> bool:
        return True

    def upload(self, problem: Problem) -> Any:
        return {"value": Field((1,))}

    download = upload

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        return 0.5

    def ask(self, state: Any, inbox: Any, streams: Streams) -> tuple[Decision, Any]:
        heard = float(inbox[-1].payload["value"][0]) if inbox else 0.0
        x = streams.rng("point").random((1, 2)) / 2 + 0.25 * np.tanh(abs(heard))
        return Decision(x, "federated"), state

    def tell(self, state: Any, x: Any, y: Any) -> Any:
        return max(state, float(np.max(y)))

    def outbox(self, state: Any, streams: Streams) -> tuple[Any, Any]:
        return {"value": np.array([state])}, state

    def server_init(self, problem: Problem) -> Any:
        return {}

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        return {**state, message.sender: float(message.payload["value"][0])}

    def broadcast(self, state: Any, recipients: Any, worth: Any, streams: Streams) -> tuple[Any, Any]:
        mean = sum((state[sender] / len(state) for sender in sorted(state)), 0.0)
        return dict.fromkeys(recipients, {"value": np.array([mean])}), state


class Adding(Small):
    """Adds up what it receives."""

    def server_init(self, problem: Problem) -> Any:
        return Sums(0.0, 0)

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        return Sums(state.total + float(message.payload["value"][0]), message.sender)

    def broadcast(self, state: Any, recipients: Any, worth: Any, streams: Streams) -> tuple[Any, Any]:
        return dict.fromkeys(recipients, {"value": np.array([state.total])}), state


class LastOnly(Adding):
    """Keeps the message that came last, whoever sent it."""

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        return Sums(float(message.payload["value"][0]), message.sender)


class Outside(Small):
    def ask(self, state: Any, inbox: Any, streams: Streams) -> tuple[Decision, Any]:
        return Decision(1.0 + streams.rng("point").random((1, 2)), "own"), state


class TwoPoints(Small):
    def ask(self, state: Any, inbox: Any, streams: Streams) -> tuple[Decision, Any]:
        return Decision(streams.rng("point").random((2, 2)), "own"), state


class Undeclared(Small):
    def outbox(self, state: Any, streams: Streams) -> tuple[Any, Any]:
        return {"sum": np.array([state])}, state


class Silent(Small):
    def outbox(self, state: Any, streams: Streams) -> tuple[Any, Any]:
        return None, state


class Unseeded(Small):
    def ask(self, state: Any, inbox: Any, streams: Streams) -> tuple[Decision, Any]:
        return Decision(np.full((1, 2), 0.3), "own"), state


class Remembering(Small):
    """Counts outside of its states."""

    count = [0]

    def ask(self, state: Any, inbox: Any, streams: Streams) -> tuple[Decision, Any]:
        self.count[0] += 1
        return Decision(np.random.default_rng(self.count[0]).random((1, 2)), "own"), state


@dataclass(frozen=True)
class Stubborn(Small):
    """Looks near one corner, whatever it is told of it."""

    def ask(self, state: Any, inbox: Any, streams: Streams) -> tuple[Decision, Any]:
        return Decision(1.0 - 0.1 * streams.rng("corner").random((1, 2)), "own"), state


class Empty:
    """Has none of the functions."""


def test_the_contract_accepts_a_small_algorithm() -> None:
    check_algorithm(Small())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Adding, "told every message twice"),
        (LastOnly, "told messages in another order"),
        (Outside, "outside of the unit cube"),
        (TwoPoints, "2 points, but queries = 1"),
        (Undeclared, "not as declared"),
        (Silent, "exactly if an upload is declared"),
        (Unseeded, "another seed gives the same points"),
        (Remembering, "run again with the same seed"),
        (Stubborn, "decisions are where evaluations fail"),
        (Empty, "lacks a function"),
    ],
)
def test_the_contract_names_what_is_broken(broken: Any, said: str) -> None:
    with pytest.raises(ContractBroken, match=said):
        check_algorithm(broken())
