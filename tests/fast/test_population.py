"""Steps of several agents at once: to the bit what each does alone, whoever its neighbours are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from fedbo.actors.agent_state import AgentState
from fedbo.actors.columns import StepReports
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.host import Host
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.actors.task import EarlyEnd, StepReport, StepRequest, Task
from fedbo.algorithms.base import Columnar, Decision, Declaration, Field, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.fts import FTS
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.algorithms.ts import TS
from fedbo.objectives.functions import Bowl, Quadratic
from fedbo.objectives.python_function import PythonFunction
from fedbo.settings.own_code import CodeError, ExitError
from fedbo.settings.records import changed
from fedbo.settings.trust import admit

admit(["test_population:above_a_half"])

AGENTS, ROUNDS = 7, 5
FEATURES: dict[str, Any] = {"own": TS(surrogate="features", features=12), "features": 12, "p": 0.4, "every": 1}
SETTINGS = {
    "one model": ("fts", {**FEATURES, "relay": "one", "query": "draw", "kernel": "se", "length_scale": 0.2}),
    "two models": ("fts", {**FEATURES, "query": "mean"}),
    "published": ("fts", {**FEATURES, "every": 0, "query": "draw", "centre": False, "apart": 0.0}),
    "noise": ("fts_noise", FEATURES),
    "uniform": ("fts_uniform", FEATURES),
    "fitted": ("fts", {"features": 12, "every": 1}),
    "regions": ("fts_de", {**FEATURES, "regions": 2}),
    "random": ("random", {"queries": 2}),
    "alone": ("ts", {"surrogate": "features", "features": 12}),
    "random direction": ("dp_fts_de_noise", {**FEATURES, "regions": 2, "noise_multiplier": 0.0, "message": "draw"}),
}


@pytest.fixture(autouse=True)
def of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few agents be in columns and windows too."""
    monkeypatch.setattr("fedbo.fast.accelerate._FEWEST", 1)


def task_of(name: str, settings: dict[str, Any], dim: int = 2, initial: int = 2) -> Task:
    algorithm = entry(name).make(**settings)
    assert isinstance(algorithm, Columnar)
    problem = Problem(dim, AGENTS, range(AGENTS), initial, 40)
    return Task(Quadratic(agents=AGENTS, dimensions=dim), algorithm, problem, Streams(3))


def carried_out(task: Task, blocks: list[list[int]], rounds: int = ROUNDS) -> tuple[list[dict[int, StepReport]], Any]:
    """Give the reports of each round, and the agents' states in the end; the agents of a block are asked together."""
    host = Host()
    host.load(task, range(AGENTS))
    answers: dict[int, Any] = {}
    found = []
    for step in range(rounds):
        reports = {}
        for block in blocks:
            inboxes = {n: ((Inbound(COORDINATOR, step, 0.0, answers[n]),) if n in answers else ()) for n in block}
            given = host.work((), [StepRequest(n, step, inbox=inboxes[n]) for n in block])
            reports |= {report.agent: report for report in given}
        found.append(reports)
        if task.algorithm.download(task.problem) is not None:
            answers = {n: _answer(task, reports, n) for n in range(AGENTS) if reports[n].payload is not None or step}
    return found, [plain(host.agents[n].state) for n in range(AGENTS)]


def _answer(task: Task, reports: dict[int, StepReport], agent: int) -> dict[str, Any]:
    """Answer with what the last round's messages are, in the form that the method declares."""
    sent = {n: report.payload["omega"] for n, report in reports.items() if report.payload is not None}
    declared = task.algorithm.download(task.problem)
    assert declared is not None
    rows = [sent.get((agent + n) % AGENTS, np.zeros(12)) for n in range(1, AGENTS + 1)]
    if "sender" in declared:
        return {"omega": rows[0], "sender": np.array([(agent + 1) % AGENTS])}
    count = declared["omega"].shape[0]
    answer = {"omega": np.array(rows[:count])}
    return answer | ({"weight": np.full(AGENTS, 1.0 / AGENTS)} if "weight" in declared else {})


AS_OBJECTS = 2  # steps between two checkpoints: agents that may be taken back are no columns


def same(some: list[dict[int, StepReport]], others: list[dict[int, StepReport]]) -> bool:
    return all(pack(one[n]) == pack(other[n]) for one, other in zip(some, others, strict=True) for n in range(AGENTS))


@pytest.mark.parametrize("case", SETTINGS)
def test_agents_do_the_same_in_columns_of_any_size_and_order_as_alone(case: str) -> None:
    task = task_of(*SETTINGS[case])
    alone, states = carried_out(replace(task, checkpoint=AS_OBJECTS), [[n] for n in range(AGENTS)])
    for blocks in ([list(range(AGENTS))], [[5, 2], [6, 0, 3], [1, 4]], [[n] for n in range(AGENTS)]):
        found, after = carried_out(task, blocks)
        assert same(found, alone)
        assert after == states


@pytest.mark.parametrize("dim", [1, 3, 4])
def test_so_they_do_in_any_number_of_inputs_and_with_more_observations_than_features(dim: int) -> None:
    settings = {**FEATURES, "own": TS(surrogate="features", features=5), "relay": "one", "query": "draw"}
    task = task_of("fts", {**settings, "features": 12}, dim, initial=3)
    alone, states = carried_out(replace(task, checkpoint=AS_OBJECTS), [[n] for n in range(AGENTS)], 12 if dim == 1 else 4)
    found, after = carried_out(task, [[3, 1, 0, 2], [6, 5, 4]], 12 if dim == 1 else 4)
    assert same(found, alone) and after == states


def test_after_an_error_no_factor_is_taken_for_known() -> None:
    """A root takes up observations in place, and would take them up again."""
    task = task_of("ts", {"surrogate": "features", "features": 10})
    algorithm, streams = task.algorithm, task.streams.of(0)
    assert isinstance(algorithm, Columnar)
    found = []
    for fails in (True, False):
        columns: Any = algorithm.columns(task.problem, task.streams)
        slots, rng = np.arange(2), np.random.default_rng(0)
        columns.grow(2)
        columns.start(slots)
        columns.tell(slots, np.array([18, 18]), rng.random((36, 2)), rng.random(36))
        columns.ask(slots, streams.each(slots, np.array([1, 1])), None)
        columns.tell(slots, np.array([1, 1]), rng.random((2, 2)), np.array([0.5, np.nan if fails else 0.5]))
        if fails:
            with pytest.raises(ValueError, match="must be finite"):
                columns.ask(slots, streams.each(slots, np.array([2, 2])), None)
        found.append(columns.ask(slots[:1], streams.each(slots[:1], np.array([3])), None)[0])
    np.testing.assert_array_equal(*found)


def test_points_under_way_leave_nothing_behind_when_they_come_in_another_order() -> None:
    """What was drawn with them is known of other rows than those that are told then."""
    task = task_of(*SETTINGS["one model"])
    algorithm: Any = task.algorithm
    states = [algorithm.agent_init(task.problem, task.streams.of(0).at(0))] * 2
    x = np.random.default_rng(0).random((6, 2))
    states = [algorithm.tell(state, x[:3], x[:3, 0]) for state in states]
    algorithm_asked, asked = algorithm.ask(algorithm.pending(states[0], x[3:]), (), task.streams.of(0).at(1))
    states[0] = algorithm.tell(algorithm.pending(asked, x[:0]), x[[5, 3]], x[[5, 3], 0])
    states[1] = algorithm.tell(changed(states[1], t=1), x[[5, 3]], x[[5, 3], 0])
    found = [algorithm.ask(state, (), task.streams.of(0).at(2))[0] for state in states]
    np.testing.assert_array_equal(found[0].x, found[1].x)
    assert not np.array_equal(algorithm_asked.x, found[0].x)


def test_one_that_fails_is_reported_and_its_neighbours_go_on() -> None:
    broken = PythonFunction(function="test_population:above_a_half", agents=AGENTS, low=(0.0, 0.0), high=(1.0, 1.0))
    for policy in (Policy(failure="stop"), Policy(failure="drop")):
        task = replace(task_of(*SETTINGS["one model"]), federation=broken, policy=policy)
        hosts = Host(), Host()
        for host in hosts:
            host.load(task, range(AGENTS))
        together = hosts[0].work((), [StepRequest(n, 0) for n in range(AGENTS)])
        alone = [hosts[1].work((), [StepRequest(n, 0)])[0] for n in range(AGENTS)]
        assert pack(sorted(together, key=lambda report: report.agent)) == pack(alone)
        assert {report.failure is None for report in together} == ({True, False} if policy.failure == "stop" else {True})


def above_a_half(x: Any, agent: int) -> float:
    if x[0] > 0.9:
        raise ValueError("too far to the right")
    return float(x[0])


def test_a_step_that_was_done_or_decided_before_is_not_done_again() -> None:
    task = task_of(*SETTINGS["one model"])
    host = Host()
    host.load(task, range(AGENTS))
    first = host.work((), [StepRequest(n, 0) for n in range(AGENTS)])
    again = host.work((), [StepRequest(n, 0, lease=9) for n in range(AGENTS)])
    assert pack([changed(report, lease=0) for report in again]) == pack(first)
    for n in (1, 4):
        host.agents[n].commit(())
        assert host.agents[n].decide(StepRequest(n, 1)).queries == 1
    decided = {n: host.agents[n].state.decision for n in (1, 4)}
    reports = host.work((), [StepRequest(n, 1) for n in range(AGENTS)])
    assert [report.t_n for report in reports] == [3] * AGENTS
    for n, decision in decided.items():
        assert decision is not None
        done = host.agents[n].uncommitted
        assert done is not None and done.result.queries[0].u == decision.x[0].tolist()


class Silent(FTS):
    """A method whose rule for one agent is its own."""

    def outbox(self, state: Any, streams: Streams) -> tuple[None, Any]:
        return None, state


def test_a_method_with_its_own_rule_for_one_agent_is_not_asked_for_many() -> None:
    task = task_of(*SETTINGS["two models"])
    settings = {field.name: getattr(task.algorithm, field.name) for field in fields(task.algorithm)}
    reports, _ = carried_out(replace(task, algorithm=Silent(**settings)), [list(range(AGENTS))], rounds=1)
    assert all(report.payload is None for report in reports[0].values())


def test_in_one_process_steps_that_take_little_are_computed_together_unless_the_run_may_end_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedbo.actors.hosts._ENOUGH", float("inf"))  # on a busy machine even little takes long
    for target, together in ((None, True), (0.5, False)):
        hosts = InlineHosts(replace(task_of(*SETTINGS["one model"]), early_end=target and EarlyEnd(target)), range(AGENTS))
        sizes = _sizes(hosts.host)
        for agent in range(AGENTS):
            hosts.submit(StepRequest(agent, 0))
        for agent in range(AGENTS):
            assert hosts.result(agent).agent == agent
        assert sizes == ([1, 2, 4] if together else [1] * AGENTS)
        hosts.submit(StepRequest(2, 0, lease=1, restore="before"))
        assert hosts.result(2).lease == 1


def _sizes(host: Host) -> list[int]:
    """Return a list that will have the number of steps of each call of a host."""
    sizes, carry_out = list[int](), host.carry_out

    def counted(requests: Any) -> Any:
        reports = carry_out(requests)
        sizes.append(len(reports.agent) if isinstance(reports, StepReports) else len(reports))
        return reports

    host.carry_out = counted  # type: ignore[method-assign]
    return sizes


def test_a_step_that_fails_ends_the_run_when_its_own_result_is_asked_for() -> None:
    function = PythonFunction(function="test_population:above_a_half", agents=AGENTS, low=(0.0, 0.0), high=(1.0, 1.0))
    task = replace(task_of(*SETTINGS["one model"], initial=1), federation=function, policy=Policy(failure="stop"))
    hosts = InlineHosts(task, range(AGENTS))
    for agent in range(AGENTS):
        hosts.submit(StepRequest(agent, 0))
    for agent in range(AGENTS):
        if agent == 3:
            with pytest.raises(EvaluationError, match="too far"):
                hosts.result(agent)
        else:
            hosts.result(agent)


class Place(NamedTuple):
    """The state of an agent: its number, and the decisions that it has made."""

    agent: int
    decisions: int


@dataclass(frozen=True)
class Failing:
    """A method without columns, of which a `function` raises an error in step 2 of agent 3."""

    function: str
    queries = 1
    reveals = "nothing"

    def sends(self, step: int) -> bool:
        return True

    def upload(self, problem: Problem) -> Declaration:
        return {"decisions": Field((1,))}

    download = upload

    def _after(self, function: str, state: Place) -> Place:
        if function == self.function and state == (3, 2):
            raise SystemExit if function == "exit" else ValueError("not yet")
        return state

    def agent_init(self, problem: Problem, streams: Streams) -> Place:
        return Place(problem.agent, 0)

    def ask(self, state: Place, inbox: Any, streams: Streams) -> Any:
        return Decision(streams.rng("x").random((1, 2)), "own"), self._after(
            "ask", state._replace(decisions=state.decisions + 1)
        )

    def tell(self, state: Place, x: Any, y: Any) -> Place:
        return self._after("exit", self._after("tell", state))

    def outbox(self, state: Place, streams: Streams) -> Any:
        return {"decisions": np.array([float(state.decisions)])}, self._after("outbox", state)


@pytest.mark.parametrize("function", ["ask", "tell", "outbox"])
def test_an_error_of_a_method_is_raised_when_its_step_is_due_and_leaves_all_states_as_before(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.actors.hosts._ENOUGH", float("inf"))
    own: Any = Failing(function)
    hosts = InlineHosts(replace(task_of(*SETTINGS["one model"]), algorithm=own), range(AGENTS))
    sizes = _sizes(hosts.host)
    for step in range(3):
        for agent in range(AGENTS):
            hosts.submit(StepRequest(agent, step))
        for agent in range(AGENTS):
            if (agent, step) != (3, 2):
                assert hosts.result(agent).payload == {"decisions": np.array([float(step)])}
    with pytest.raises(CodeError, match=r"test_population.py:\d+ in _after \(agent 3, step 2\): ValueError: not yet"):
        hosts.result(3)
    assert sizes[-1] == AGENTS
    assert [hosts.host.agents[agent].committed.algorithm for agent in range(AGENTS)] == [(agent, 1) for agent in range(AGENTS)]


def test_an_exit_of_a_method_leaves_all_states_as_before() -> None:
    host, own = Host(), cast("Any", Failing("exit"))
    host.load(replace(task_of(*SETTINGS["one model"]), algorithm=own), range(AGENTS))
    for step in range(2):
        host.work((), [StepRequest(agent, step) for agent in range(AGENTS)])
    with pytest.raises(ExitError, match="test_population.py, line .*, in _after"):
        host.work((), [StepRequest(agent, 2) for agent in range(AGENTS)])
    assert [host.agents[agent].committed.algorithm for agent in range(AGENTS)] == [(agent, 1) for agent in range(AGENTS)]


class Begun(Failing):
    """The same without errors; it notes the agents that begin, and sends an array of its state."""

    def __init__(self) -> None:
        super().__init__("none")
        object.__setattr__(self, "begun", list[int]())

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        self.begun.append(problem.agent)  # type: ignore[attr-defined]
        return Place(problem.agent, cast("Any", np.zeros(1)))

    def outbox(self, state: Place, streams: Streams) -> Any:
        return {"decisions": state.decisions}, state


def test_an_agent_that_leaves_the_columns_and_returns_begins_once_and_its_message_is_its_own() -> None:
    own: Any = Begun()
    task = replace(task_of(*SETTINGS["one model"]), algorithm=own)
    host, other = Host(), Host()
    for each in (host, other):
        each.load(task, range(AGENTS))
    reports = host.work((), [StepRequest(agent, 0) for agent in range(AGENTS)])
    for agent in range(AGENTS):
        host.agents[agent].commit(())
        state = host.agents[agent].state.algorithm
        assert not np.shares_memory(state.decisions, reports[agent].payload["decisions"])  # type: ignore[index]
    host.work((), [StepRequest(agent, 1) for agent in range(AGENTS)])
    assert len(host.agents.saved_columns(AGENTS)) == 1 and not host.agents.objects
    other.agents.load(*host.agents.saved_columns(AGENTS), numbers=range(AGENTS))
    assert own.begun == list(range(AGENTS))


@dataclass(frozen=True)
class Slippery(Quadratic):
    """Bowls whose joint evaluation is not finite in a corner, where that of one agent raises an error."""

    def objective(self, agent: int, shared_rng: Any, agent_rng: Any) -> Any:
        bowl = Quadratic.objective(self, agent, shared_rng, agent_rng)
        return SlipperyBowl(*(getattr(bowl, field.name) for field in fields(bowl)))


class SlipperyBowl(Bowl):
    def score(self, x: Any) -> float:
        if x[0] > 0.8:
            raise ValueError("too far to the right")
        return super().score(x)

    def evaluate(self, x: Any, rng: Any) -> Any:
        return self.score(x)

    @classmethod
    def scores_each(cls, objectives: Any, x: Any) -> Any:
        return np.where(x[:, 0] > 0.8, np.nan, super().scores_each(objectives, x))


@pytest.mark.parametrize("failure", ["drop", "avoid", "stop"])
def test_agents_whose_evaluations_fail_go_on_as_objects_and_come_back(failure: Any) -> None:
    task = replace(task_of(*SETTINGS["one model"]), policy=Policy(failure=failure), federation=Slippery(agents=AGENTS))
    found, states = carried_out(task, [list(range(AGENTS))])
    expected, alone = carried_out(replace(task, checkpoint=AS_OBJECTS), [[n] for n in range(AGENTS)])
    assert same(found, expected) and states == alone
    assert any(report.failed or report.failure for reports in found for report in reports.values())
    assert not all(report.failed or report.failure for reports in found for report in reports.values())


def test_what_is_taken_out_in_the_middle_of_a_step_is_what_an_object_would_be() -> None:
    task = task_of(*SETTINGS["regions"])
    hosts = []
    for each in (task, replace(task, checkpoint=AS_OBJECTS)):
        host = Host()
        host.load(each, range(AGENTS))
        for step in range(4):
            host.work([(n, (1.0 * step, step + 0.5, step + 0.7)[: 3 if step == 1 else 2]) for n in range(AGENTS) if step], [])
            host.work((), [StepRequest(n, step, lease=n) for n in range(AGENTS)])
        assert pack(host.agents[2].uncommitted.report) and host.agents[2].state.step == 3  # type: ignore[union-attr]
        host.work((), [StepRequest(3, 3, restore="before")])
        hosts.append(host)
    columns, objects = hosts
    for n in range(AGENTS):
        one, other = columns.agents[n], objects.agents[n]
        assert one.uncommitted is not None and other.uncommitted is not None
        for mine, theirs in ((one.state, other.state), (one.uncommitted.before, other.uncommitted.before)):
            assert plain(mine) == plain(theirs)
        assert pack(one.uncommitted.report) == pack(other.uncommitted.report)
        assert pack(one.uncommitted.result) == pack(other.uncommitted.result)
    rows = [sorted(host.agents.all_rows(), key=lambda row: (row.agent, row.step, row.query)) for host in hosts]
    assert pack(rows[0]) == pack(rows[1]) and len(rows[0]) == AGENTS * 4


def plain(state: AgentState) -> bytes:
    """Return the bits of a state, without what is made again at need, or is written elsewhere."""
    own = state.algorithm
    if hasattr(own, "local"):
        own = changed(own, local=own.local.grown(None))
    own = changed(own, factor=None) if hasattr(own, "factor") else own
    return pack(changed(state, algorithm=own, rows=()))


@pytest.mark.parametrize("case", ["one model", "regions", "random", "alone"])
def test_a_checkpoint_in_the_middle_of_a_round_is_of_what_is_committed(case: str) -> None:
    task = task_of(*SETTINGS[case])
    hosts = [Host(), Host()]
    for host in hosts:
        host.load(task, range(AGENTS))
    one, other = (host.agents for host in hosts)
    for step in range(4):
        hosts[0].work([(n, ()) for n in range(AGENTS)], [StepRequest(n, step) for n in range(AGENTS)])
    one.unsettle()
    saved = unpack(pack(*one.saved_columns(AGENTS)))
    other.load(saved, range(1, AGENTS))
    assert set(other) == set(range(1, AGENTS))
    for host in hosts:
        host.work((), [StepRequest(n, 3, restore="before") for n in range(1, AGENTS)])
    for n in range(1, AGENTS):
        assert plain(one[n].state) == plain(other[n].state)


def test_a_step_that_is_committed_after_a_snapshot_is_in_the_next_one() -> None:
    host = Host()
    host.load(task_of(*SETTINGS["one model"]), range(AGENTS))
    host.work((), [StepRequest(n, 0) for n in range(AGENTS)])
    (saved,) = host.agents.saved_columns(AGENTS)
    assert saved.step.tolist() == [-1] * AGENTS
    host.agents.settle()
    host.commit([(1, (0.0, 1.0, 2.0)), (3, ())])
    (saved,) = host.agents.saved_columns(AGENTS)
    assert saved.number.tolist() == [1, 3] and saved.step.tolist() == [0, 0]
