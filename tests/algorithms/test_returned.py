"""What a method returns wrongly is an error with its class, function, agent and step: for every function of every protocol."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest

import fedbo
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.task import Task
from fedbo.algorithms import base
from fedbo.algorithms.base import AnswerColumns, Decision, Field, Mechanism, Problem, StatelessColumns
from fedbo.algorithms.returned import check_declarations, columns_of, initial, pair, updated
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Barrier, Exchange, Immediate
from fedbo.objectives.functions import Quadratic
from fedbo.settings.own_code import CodeError, ReturnError

NAN = float("nan")
PROTOCOLS = [kind for kind in vars(base).values() if isinstance(kind, type) and issubclass(kind, Protocol)]  # type: ignore[arg-type]
HOOKS = {name for kind in PROTOCOLS for name, each in vars(kind).items() if callable(each) and not name.startswith("_")}


class State(NamedTuple):
    """The state of an agent: the number of its observations."""

    seen: int = 0


class Sums:
    """Agents send the number of their observations, and are answered with the sum of all."""

    queries: Any = 1
    horizon_use: Any = ""

    def sends(self, step: int) -> Any:
        return True

    def upload(self, problem: Problem) -> Any:
        return {"seen": Field((2,))}

    download = upload

    def agent_init(self, problem: Problem, streams: Any) -> Any:
        return State()

    def ask(self, state: Any, inbox: Any, streams: Any) -> Any:
        return Decision(np.full((1, 2), 0.5), "own"), state

    def tell(self, state: Any, x: Any, y: Any) -> Any:
        return State(state.seen + len(y))

    def outbox(self, state: Any, streams: Any) -> Any:
        return {"seen": np.full(2, float(state.seen))}, state

    def server_init(self, problem: Problem) -> Any:
        return {}

    def receive(self, state: Any, message: Any, now: float) -> Any:
        return {**state, message.sender: message.payload["seen"]}

    def broadcast(self, state: Any, recipients: Any, staleness_weight: Any, streams: Any) -> Any:
        return {agent: {"seen": np.ones(2)} for agent in recipients}, state


class Columns(StatelessColumns):
    """The columns of agents that ask for the middle."""

    def state(self, slot: int) -> Any:
        return State()

    def ask(self, slots: Any, streams: Any, answers: Any) -> Any:
        return np.full((len(slots), 2), 0.5), np.ones(len(slots), np.int8)

    def outbox(self, slots: Any, streams: Any) -> Any:
        return {"seen": np.ones((len(slots), 2))}


class Together(Sums):
    """The same in columns, and with a coordinator half that reads messages together."""

    is_joint: Any = True
    made: Any = Columns

    def columns(self, problem: Problem, streams: Any) -> Any:
        return self.made()

    def answer_each(self, state: Any, senders: Any, payload: Any, staleness_weight: Any, occasions: Any, streams: Any) -> Any:
        count = len(occasions.recipients)
        return AnswerColumns(np.arange(count), {"seen": np.ones((count, 2))}), state


def run(method: Any, exchange: Exchange) -> None:
    """Run three agents for two steps, without files."""
    task = Task(Quadratic(agents=3), method, Problem(2, 3, range(3), 1, 2), Streams(1))
    environment = Environment(AgentModels(evaluation=Constant(1.0), latency=Constant(0.1)))
    run_virtual(assembled(task, exchange, environment), InlineHosts(task, range(3)), RunHooks(lambda lines: None), EventQueue())


def spoiled(kind: type, function: str, returned: Any) -> Any:
    """Return a class whose function returns this value in place of its own, or a change of its own."""
    own = getattr(kind, function)

    def wrong(self: Any, *given: Any) -> Any:
        return returned(own(self, *given)) if callable(returned) else returned

    return type("Spoiled", (kind,), {function: wrong})


JUNK = [None, (), (1, 2, 3), 7.0, NAN, "words", [1.0]]
PAIRS = ("ask", "outbox", "broadcast", "answer_each")
POINTS = [np.full((1, 2), NAN), np.full((1, 2), 7.0), np.full((2, 2), 0.5), np.full(2, 0.5), np.full((1, 3), 0.5), [[0.5, 0.5]]]
MESSAGES = [
    {"sein": np.ones(2)},
    {"seen": np.ones(3)},
    {"seen": np.ones(2, np.int64)},
    {"seen": np.full(2, NAN)},
    {"seen": [1.0, 1.0]},
    {},
]


def cases() -> Iterator[Any]:
    """Yield functions that run in a study of one's own, with what they return wrongly."""
    for function in ("ask", "tell", "outbox", "receive", "broadcast"):
        for junk in JUNK:
            yield pytest.param(Sums, function, junk, id=f"{function}-{junk}")
    for x in POINTS:
        yield pytest.param(Sums, "ask", lambda found, x=x: (found[0]._replace(x=x), found[1]), id=f"ask-x {x}")
    for change in ({"origin": "elsewhere"}, {"pulls": np.ones(1, np.int64)}):
        yield pytest.param(
            Sums, "ask", lambda found, change=change: (found[0]._replace(**change), found[1]), id=f"ask-{change}"
        )
    for payload in MESSAGES:
        yield pytest.param(Sums, "outbox", lambda found, payload=payload: (payload, found[1]), id=f"outbox-{payload}")
        yield pytest.param(
            Sums, "broadcast", lambda found, p=payload: ({0: p, 1: p, 2: p}, found[1]), id=f"broadcast-{payload}"
        )
    for function in PAIRS:
        kind = Together if function.endswith("each") else Sums
        for junk in (None, 7.0, "words", (1, 2)):
            yield pytest.param(kind, function, lambda found, junk=junk: (found[0], junk), id=f"{function}-state {junk}")
    for junk in JUNK[:6]:
        yield pytest.param(Together, "answer_each", junk, id=f"answer_each-{junk}")


@pytest.mark.parametrize(("kind", "function", "returned"), list(cases()))
def test_a_wrong_result_ends_the_run_with_class_function_agent_and_step(kind: type, function: str, returned: Any) -> None:
    method = spoiled(kind, function, returned)()
    where = "" if function.endswith("each") or function == "broadcast" else r" \(agent \d, step \d\)"
    with pytest.raises((CodeError, ReturnError), match=rf"test_returned.py:\d+: Spoiled.{function}{where}"):
        run(method, Immediate())


@pytest.mark.parametrize("exchange", [Barrier(), Immediate()])
@pytest.mark.parametrize("function", ["agent_init", "server_init"])
def test_a_first_state_that_is_missing_is_an_error_of_the_function_that_makes_it(function: str, exchange: Exchange) -> None:
    words = rf"test_returned.py:\d+: Spoiled.{function}.* returned None, on which \w+ fails \('NoneType' object"
    with pytest.raises((CodeError, ReturnError), match=words):
        run(spoiled(Sums, function, None)(), exchange)


@pytest.mark.parametrize(
    "returned", [*JUNK, *[(x, np.ones(3, np.int8)) for x in (None, np.full((3, 2), NAN), np.full((4, 2), 0.5))]]
)
def test_a_wrong_block_of_points_is_an_error_of_the_columns(returned: Any) -> None:
    method = Together()
    method.made = spoiled(Columns, "ask", returned)
    with pytest.raises(CodeError, match=r"test_returned.py:\d+: Spoiled.ask \(agent \d, step 1\) returned"):
        run(method, Immediate())


@pytest.mark.parametrize(
    "returned", [*JUNK[1:], *[{"seen": np.array(one)} for one in ([[1.0] * 3] * 3, [[NAN] * 2] * 3, [1, 2], 5)]]
)
def test_a_wrong_block_of_messages_is_an_error_of_the_columns(returned: Any) -> None:
    method = Together()
    method.made = spoiled(Columns, "outbox", returned)
    with pytest.raises(CodeError, match=r"test_returned.py:\d+: Spoiled.outbox \(agent \d, step 0\) returned"):
        run(method, Immediate())


def test_the_agent_of_a_block_that_is_at_fault_is_named() -> None:
    def one_wrong(found: Any) -> Any:
        found[0][1] = NAN
        return found

    method = Together()
    method.made = spoiled(Columns, "ask", one_wrong)
    with pytest.raises(CodeError, match=r"Spoiled.ask \(agent 1, step 1\) returned points whose x\[1, 0\] is nan"):
        run(method, Immediate())


class Says(Together):
    """A method that has all functions and properties by which it says something of itself."""

    hides: Any = False
    needs_costs: Any = False
    reveals: Any = "nothing"

    def handles(self, problem: Problem) -> Any:
        return ""

    def phases(self, problem: Problem) -> Any:
        return 1

    def mechanism(self, problem: Problem) -> Any:
        return Mechanism(1, 1.0, 0.0)

    def weights(self, problem: Problem, release: int) -> Any:
        return np.ones((1, problem.n_agents))

    def released(self, state: Any, vectors: Any, release: int) -> Any:
        return state

    def closed(self, state: Any) -> Any:
        return state


@pytest.mark.parametrize("name", ["sends", "handles", "phases", "mechanism", "upload", "download", "columns"])
@pytest.mark.parametrize("returned", [(), (1, 2, 3), NAN, {"seen": 3}, {"seen": Field([2])}])  # type: ignore[arg-type]
def test_what_a_method_says_wrongly_of_itself_is_an_error_before_the_run(name: str, returned: Any) -> None:
    problem = Problem(2, 3, range(3), 1, 2)
    check_declarations(Says(), problem)
    with pytest.raises(ReturnError, match=rf"test_returned.py:\d+: Spoiled.{name} returned"):
        method = spoiled(Says, name, returned)()
        columns_of(method, problem, Streams(1)) if name == "columns" else check_declarations(method, problem)


@pytest.mark.parametrize("name", ["queries", "hides", "needs_costs", "is_joint", "horizon_use", "reveals"])
def test_a_property_of_the_wrong_type_is_an_error_before_the_run(name: str) -> None:
    with pytest.raises(ReturnError, match=rf"Other.{name} is \(?a?.*; it must be "):
        check_declarations(type("Other", (Says,), {name: (1, 2)})(), Problem(2, 3, range(3), 1, 2))


@pytest.mark.parametrize("name", ["pending", "avoiding", "tell_outcomes", "costing", "left", "released", "closed"])
@pytest.mark.parametrize("returned", [None, (), 7.0, NAN, "words"])
def test_a_further_function_that_returns_no_state_is_an_error(name: str, returned: Any) -> None:
    method = type("Spoiled", (), {name: lambda self, *given: returned})()
    with pytest.raises(ReturnError, match=rf"Spoiled.{name} returned .*; it must return the next state, a State as before"):
        updated(method, name, State(), 1)


@pytest.mark.parametrize("returned", [*JUNK, np.full((1, 2), NAN), np.full(2, 0.5)])
def test_wrong_initial_points_are_an_error_with_the_agent(returned: Any) -> None:
    method = type("Spoiled", (), {"initial_points": lambda self, problem, uniform: returned})()
    with pytest.raises(ReturnError, match=r"Spoiled.initial_points \(agent 2, step 0\) returned points whose x"):
        initial(method, Problem(2, 3, range(3), 1, 2, agent=2), np.zeros((1, 2)))


def test_a_state_of_another_class_is_a_state_and_so_is_the_first_one() -> None:
    class Phase(NamedTuple):
        number: int

    def call(state: Any, found: Any) -> Any:
        return updated(type("Steps", (), {"tell": lambda self, *given: found})(), "tell", state)

    assert call(State(1), Phase(2)) == Phase(2) and call(None, 7.0) == 7.0 and call(1, np.float64(2.0)) == 2.0
    assert call((1,), (1, 2)) == (1, 2) and pair(Sums(), "ask", None, (), None)[1] is None


def test_no_function_of_a_method_is_called_without_the_checks() -> None:
    checked = HOOKS - {"sends", "upload", "download", "handles", "phases", "mechanism"}  # see check_declarations
    checked -= {
        "agent_init",
        "server_init",
        "weights",
        "disclosure",
    }  # any first state; the others are checked where they are called
    packages, root = ("actors", "coordinator", "tuning", "study", "execution"), Path(fedbo.__file__).parent
    found = []
    for path in (path for package in packages for path in (root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in checked:
                if re.search(r"(algorithm|method|made)$", ast.unparse(node.func.value)):
                    found.append(f"{path.relative_to(root)}:{node.lineno}: {ast.unparse(node.func)}")
    assert found == [] and {"ask", "tell", "outbox", "receive", "broadcast", "pending", "left"} <= checked
