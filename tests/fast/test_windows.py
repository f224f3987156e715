"""Windows of events: which runs have them, and that they leave the same as the core alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from small_runs import Setting, fts
from talking import Talk

from fedbo.actors.columns import Ints, StepReports, joint_reports
from fedbo.actors.hosts import Hosts, InlineHosts
from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.actors.task import StepReport
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.fts import FTS
from fedbo.algorithms.ts import TS
from fedbo.coordinator.environment.availability import Always, Bernoulli, Markov
from fedbo.coordinator.environment.durations import StepDurations
from fedbo.coordinator.environment.faults import Loss
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, Exponential, Lognormal, SpeedClasses
from fedbo.coordinator.errors import ProtocolError
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Deadline, FirstK, Immediate
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.fast import plain_agents, windows
from fedbo.fast import window_kernel as kernel
from fedbo.fast.accelerate import has_windows
from fedbo.privacy.budget import PrivacyBudget
from fedbo.privacy.secure_aggregation import SecureAggregation
from fedbo.settings.own_code import ReturnError
from fedbo.settings.records import changed

PLAIN = Setting(fts(), availability=Always())
DP = entry("dp_fts_de").make(features=20, length_scale=0.3, own=None)


@pytest.fixture(autouse=True)
def of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few agents be in columns and windows too."""
    monkeypatch.setattr("fedbo.fast.accelerate._FEWEST", 1)


class Spoilt(InlineHosts):
    """Agents that report one by one; some of their messages are refused, and some of them say nothing, or send unasked."""

    results = Hosts.results
    chatty = False

    def report(self, agent: int) -> StepReport:
        report = super().report(agent)
        if report.payload is None and self.chatty and (agent + report.step) % 4 == 1:
            return changed(report, payload={"omega": np.linspace(0.0, 1.0, 20)})
        if report.payload is None or (agent + report.step) % 3:
            return report
        spoilt = {name: np.full_like(array, np.nan) for name, array in report.payload.items()}
        return changed(report, payload=spoilt if (agent + report.step) % 2 else None)


class SpoiltTogether(Spoilt):
    """The same agents, which report in columns."""

    def results(self, agents: Ints) -> StepReports | list[StepReport]:
        return joint_reports([self.report(agent) for agent in agents.tolist()])


def carried_out(setting: Setting, hosts: type[InlineHosts], every: int = 0) -> tuple[Any, ...]:
    """Return all that a run leaves; its queue is made ready to be stored after each so many events."""
    core, lines, queue = setting.core(), list[Any](), EventQueue()
    agents = hosts(setting.task(), range(setting.agents))
    if isinstance(agents, Spoilt):
        agents.chatty = core.rules.receipt.aggregator is not None

    def keep(events: int) -> None:
        if every and events % every == 0:
            pack(replace(core.state, agents=dict(core.state.agents)))  # which must change nothing of what follows
            assert pack(unpack(pack(queue.stored())).heap) == pack(queue.heap)

    run_virtual(core, agents, RunHooks(lines.extend, keep=keep, every=every), queue, setting.until)
    rows = agents.host.agents.all_rows()
    left = sorted(queue.heap, key=lambda happens: happens[:2])
    core.state.agents.unsettle()
    rounds = {name: sorted(value) if isinstance(value, set) else value for name, value in vars_of(core.state.rounds).items()}
    state: Any = replace(core.state, agents=dict(sorted(core.state.agents.items())), rounds=rounds)  # type: ignore[arg-type]
    ledger = [] if (found := core.rules.receipt.aggregator) is None else found.entries
    return lines, pack(rows), pack(state), pack(left), ledger, queue.scheduled, queue.events, queue.time, queue.waiting


def drawn(seed: int) -> Setting:
    """Draw a run that has windows."""
    draw = random.Random(seed)
    agents = draw.choice([1, 2, 3, 6, 20])
    k = draw.randint(1, 3)
    late: Any = draw.choice(["drop", "carry"])
    exchange = draw.choice([Immediate(), Buffered(k), Barrier(), Deadline(draw.choice([0.5, 2.0]), late), FirstK(k, late)])
    setting = replace(
        PLAIN,
        algorithm=fts(every=draw.choice([1, 2]), relay=draw.choice(["all", "one"])),
        exchange=exchange,
        agents=agents,
        targets=draw.choice([None, (0,), tuple(range(0, agents, 2))]),
        iterations=draw.choice([1, 2, 5, 8, 70 // agents]) or 1,
        initial=draw.randint(1, 3),
        seed=seed,
        evaluation=draw.choice([Lognormal(1.0, 1.0), Exponential(0.5), Constant(1.0)]),
        latency=Constant(draw.choice([0.0, 0.1, 0.5, 3.0])),
        checkpoint=draw.choice([1, 2]),
        until=draw.choice([float("inf"), 2.0]),
    )
    return setting if seed % 2 else _private(setting, late, draw)


def _private(setting: Setting, late: Any, draw: random.Random) -> Setting:
    """Make the messages of a run private, and its exchange one that has windows then."""
    share, sampling = draw.choice([(1.0, "poisson"), (0.4, "poisson"), (0.6, "fixed")])
    kinds: list[Any] = [Barrier(), Barrier()]
    if sampling == "poisson":
        kinds.append(Deadline(draw.choice([0.5, 2.0]), "drop" if share < 1 else late))
    if share == 1.0:
        kinds.append(FirstK(draw.randint(1, 3), late))
    settings = {
        "share": share,
        "sampling": sampling,
        "regions": draw.randint(1, 3),
        "noise_multiplier": draw.choice([0.5, 5.0]),
    }
    settings |= {"features": 20, "length_scale": 0.3, "own": TS(refit=1000, features=20), "p": 0.5}
    return replace(
        setting,
        algorithm=entry("dp_fts_de").make(**settings, quantile=draw.choice([None, 0.5]), count_noise=3.0),
        exchange=draw.choice(kinds),
        budget=PrivacyBudget(epsilon_max=draw.choice([None, 3.0, 10.0])),
    )


def without_windows(exchange: Any) -> Any:
    """Return an exchange of the same rules, of which windows do not know."""
    kind = type(exchange)
    values = {field.name: getattr(exchange, field.name) for field in fields(exchange)}
    return type("Unknown", (kind,), {"__slots__": ()})(**values)


# Seeds 5 and 6 have twenty agents, so that most of their time is left to the long tests.
CASES = [
    pytest.param(
        seed, hosts, marks=[pytest.mark.long] * (seed > 4 and (seed, hosts) not in ((5, SpoiltTogether), (6, InlineHosts)))
    )
    for seed in range(60)
    for hosts in (InlineHosts, Spoilt, SpoiltTogether)
]


@pytest.mark.parametrize(("seed", "hosts"), CASES)
def test_a_run_leaves_the_same_with_windows_and_without_them(
    seed: int, hosts: type[InlineHosts], taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = drawn(seed)
    slow = replace(setting, exchange=without_windows(setting.exchange))
    assert has_windows(setting.core()) and not has_windows(slow.core())
    plain = carried_out(slow, hosts)
    assert not taken
    for every in (0, 1, 3):
        assert carried_out(setting, hosts, every) == plain
    for module, name, value in ((windows, "_MOST", 2), (plain_agents, "_ARRIVED", 1), (plain_agents, "_BLOCKS", 1)):
        monkeypatch.setattr(module, name, value)
    assert carried_out(setting, hosts) == plain
    assert sum(taken) or setting.iterations < 3 or setting.until < 3, "no event was in a window"


@pytest.mark.parametrize(
    ("method", "exchange"),
    [
        pytest.param("dp_fed_prior", Barrier(), marks=pytest.mark.long),
        ("dp_fed_prior", Deadline(2.0)),
        ("trust_best", FirstK(1)),
        ("share_best", Deadline(0.5)),
    ],
)
def test_messages_and_answers_of_any_length_leave_the_same_with_windows(method: str, exchange: Any) -> None:
    for seed in (1, 2):
        setting = replace(PLAIN, algorithm=entry(method).make(), exchange=exchange, agents=3, iterations=3, seed=seed)
        slow = replace(setting, exchange=without_windows(exchange))
        assert has_windows(setting.core())
        assert carried_out(setting, InlineHosts, seed) == carried_out(slow, InlineHosts)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of events of all windows."""
    found, take = list[int](), windows.Windows.take

    def noted(self: Any, *limits: Any) -> int:
        found.append(take(self, *limits))
        return found[-1]

    monkeypatch.setattr(windows.Windows, "take", noted)
    return found


def test_a_plain_run_has_windows() -> None:
    assert has_windows(PLAIN.core())


@pytest.mark.parametrize(
    "changed",
    [
        {"exchange": FirstK(2, oldest=1)},
        {"exchange": Immediate(staleness=Staleness(bound=3))},
        {"exchange": Immediate(staleness=Staleness("polynomial"))},
        {"exchange": Immediate(selection=Selection("poisson", 0.5))},
        {"availability": Bernoulli(0.2, 1.0)},
        {"availability": Markov(5.0, 1.0)},
        {"latency": Exponential(0.1)},
        {"world": {"plan": (Loss(agents=(0,), probability=0.1),)}},
        {"world": {"link": 1000.0}},
        {"models": {"bandwidth": 1000.0}},
        {"models": {"speed": SpeedClasses((1.0, 2.0))}},
        {"models": {"decision": DecisionTimeModel(0.1, 1.0)}},
        {"algorithm": DP},
        {"algorithm": DP, "exchange": FirstK(2)},
        {"algorithm": DP, "exchange": Deadline(2.0, "carry")},
        {"algorithm": DP, "exchange": Barrier(), "budget": PrivacyBudget(secure_aggregation=SecureAggregation())},
        {"algorithm": entry("random").make()},
    ],
    ids=repr,
)
def test_a_run_in_which_anything_comes_between_has_none(changed: dict[str, Any]) -> None:
    assert not has_windows(replace(PLAIN, **changed).core())


def test_durations_say_that_they_are_plain_only_where_a_step_takes_one_evaluation_and_nothing_else() -> None:
    plain, slower = PLAIN.core(), replace(PLAIN, models={"speed": SpeedClasses((2.0,))}).core()
    for core, expected in ((plain, True), (slower, False)):
        assert isinstance(core.scheduler.durations, StepDurations)
        assert core.scheduler.durations.plain is expected


def test_the_used_share_of_the_budget_is_that_of_the_agents_in_columns_and_of_all_others() -> None:
    core, queue, shares = PLAIN.core(), EventQueue(), list[float]()

    def keep(events: int) -> None:
        shares.append(core.share_done())
        core.state.agents.every()  # for which all leave the columns
        assert core.share_done() == shares[-1]

    run_virtual(core, InlineHosts(PLAIN.task(), range(PLAIN.agents)), RunHooks(len, keep=keep, every=7), queue)
    assert len(set(shares)) > 3 and shares[-1] == 1.0


@pytest.mark.parametrize("exchange", [Barrier(), Buffered(3), Buffered(7), Immediate()], ids=lambda one: f"{one.mode}-{one.k}")
@pytest.mark.parametrize("algorithm", [fts(), Talk()], ids=lambda one: type(one).__name__)
def test_a_plain_run_is_in_windows_nearly_whole_and_all_its_slots_are_free_in_the_end(
    algorithm: Any, exchange: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a method hears many messages at once or one by one."""
    take, taken = windows.Windows.take, list[int]()

    def counted(self: windows.Windows, until: float, most: int) -> int:
        taken.append(take(self, until, most))
        return taken[-1]

    monkeypatch.setattr(windows.Windows, "take", counted)
    queue = replace(PLAIN, algorithm=algorithm, exchange=exchange, agents=20).run().outcome
    assert sum(taken) >= queue.events - 3, "but for the start of the study and its very end"
    columns: Any = queue.columns
    free = columns.counters[[kernel.UP, kernel.DOWN]].tolist()
    assert free == [len(columns.up.slots), len(columns.down.slots)]


@pytest.mark.parametrize("wrong", ["raises", "nothing", "malformed", "others", "last"])
@pytest.mark.parametrize("agents", [3, pytest.param(20, marks=pytest.mark.long)])
def test_an_answer_that_is_unusual_has_the_same_effect_in_a_window(wrong: str, agents: int) -> None:
    setting = replace(PLAIN, algorithm=Odd(**vars_of(fts(relay="one")), wrong=wrong), agents=agents, iterations=8)
    for exchange in (Immediate(), Barrier(), FirstK(2)):
        assert outcome(replace(setting, exchange=exchange)) == outcome(replace(setting, exchange=without_windows(exchange)))


@dataclass(frozen=True)
class Odd(FTS):
    """FTS some of whose answers are unusual."""

    wrong: str = ""

    def broadcast(self, state: Any, recipients: Any, staleness_weight: Any, streams: Any) -> Any:
        payloads, state = super().broadcast(state, recipients, staleness_weight, streams)
        if streams.step % 7 != 5:
            return payloads, state
        if self.wrong == "raises":
            raise ArithmeticError("no answer")
        if self.wrong == "others":
            payload = next(iter(payloads.values()))
            return {**payloads, (recipients[0] + 1) % len(staleness_weight): payload}, state
        if self.wrong == "last":  # malformed, beside one that nobody asked for
            away = next(agent for agent in (*range(len(staleness_weight)), 0) if agent not in recipients or not agent)
            return {away: next(iter(payloads.values())), **payloads, recipients[-1]: {"omega": np.zeros(3)}}, state
        return {agent: {"omega": np.zeros(3)} for agent in recipients} if self.wrong == "malformed" else {}, state


def vars_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record, as the settings of an algorithm."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def outcome(setting: Setting) -> tuple[Any, ...]:
    """Return what a run leaves, or its log and error."""
    lines, queue, core = list[Any](), EventQueue(), setting.core()
    words = ""
    try:
        run_virtual(core, InlineHosts(setting.task(), range(setting.agents)), RunHooks(lines.extend), queue)
    except (ArithmeticError, ProtocolError, ReturnError) as error:
        words = repr(error)
    core.flush_events(lines.extend)
    state = core.state
    state.agents.unsettle()
    agents = sorted(state.agents.items())
    return words, lines, repr(agents), repr(state.rounds), queue.events, queue.scheduled, repr(sorted(queue.heap, key=str))
