"""The fast path of runs in which nothing can come between: who has one, and that it does what the core would do."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_runs import Setting, fts

from fedbo.actors.hosts import InlineHosts
from fedbo.actors.task import StepReport
from fedbo.algorithms.catalog import entry
from fedbo.coordinator.environment.availability import Always, Bernoulli, Markov
from fedbo.coordinator.environment.durations import StepDurations
from fedbo.coordinator.environment.faults import Loss
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, Exponential, Lognormal, SpeedClasses
from fedbo.coordinator.exchange import Barrier, Buffered, Immediate, Staleness
from fedbo.coordinator.runtime import fast_path
from fedbo.coordinator.runtime.engine import RunHooks, run_virtual
from fedbo.coordinator.runtime.event_queue import EventQueue
from fedbo.coordinator.selection import Selection
from fedbo.settings.records import changed

PLAIN = Setting(fts(), availability=Always())


class Spoilt(InlineHosts):
    """Agents some of whose messages are refused, and some of whom say nothing."""

    def result(self, agent: int) -> StepReport:
        report = super().result(agent)
        if report.payload is None or (agent + report.step) % 3:
            return report
        spoilt = {name: np.full_like(array, np.nan) for name, array in report.payload.items()}
        return changed(report, payload=spoilt if (agent + report.step) % 2 else None)


def carried_out(setting: Setting, hosts: type[InlineHosts], every: int = 0) -> tuple[Any, ...]:
    """Give all that a run leaves; its queue is made ready to be stored after each so many events."""
    core, lines, queue = setting.core(), list[Any](), EventQueue()
    agents = hosts(setting.task(), range(setting.agents))

    def keep(events: int) -> None:
        if every and events % every == 0:
            queue.gather()

    run_virtual(core, agents, RunHooks(lines.extend, keep=keep), queue, setting.until)
    queue.gather()
    rows = agents.host.agents.all_rows()
    left = sorted(queue.heap, key=lambda happens: happens[:2])
    return lines, repr(rows), repr(core.state), repr(left), queue.scheduled, queue.events, queue.time, queue.waiting


def drawn(seed: int) -> Setting:
    """Draw a run that has a fast path."""
    draw = random.Random(seed)
    agents = draw.randint(1, 6)
    return replace(
        PLAIN,
        algorithm=fts(every=draw.choice([1, 2]), relay=draw.choice(["all", "one"])),
        agents=agents,
        targets=draw.choice([None, (0,), tuple(range(0, agents, 2))]),
        iterations=draw.randint(1, 8),
        initial=draw.randint(1, 3),
        seed=seed,
        evaluation=draw.choice([Lognormal(1.0, 1.0), Exponential(0.5), Constant(1.0)]),
        latency=Constant(draw.choice([0.0, 0.1, 0.5, 3.0])),
        checkpoint=draw.choice([1, 2]),
        until=draw.choice([float("inf"), 2.0]),
    )


class Slow(Immediate):
    """An exchange of the same rules, of which the fast path does not know."""


@pytest.mark.parametrize("hosts", [InlineHosts, Spoilt])
@pytest.mark.parametrize("seed", range(12))
def test_a_run_leaves_the_same_on_the_fast_path_and_without_it(
    seed: int, hosts: type[InlineHosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, taken = drawn(seed), list[bool]()
    take = fast_path.FastPath.take

    def noted(self: Any, *event: Any) -> bool:
        taken.append(take(self, *event))
        return taken[-1]

    monkeypatch.setattr(fast_path.FastPath, "take", noted)
    fast, gathered = carried_out(setting, hosts), carried_out(setting, hosts, every=3)
    if fast_path.__file__.endswith(".py"):  # where it is compiled its own calls are not seen
        assert any(taken) or setting.iterations < 3 or setting.until < 3, "the fast path was never taken"
    slow = replace(setting, exchange=Slow())
    assert fast_path.has_fast_path(setting.core()) and not fast_path.has_fast_path(slow.core())
    assert fast == gathered == carried_out(slow, hosts)


def test_a_plain_run_has_a_fast_path() -> None:
    assert fast_path.has_fast_path(PLAIN.core())


@pytest.mark.parametrize(
    "changed",
    [
        {"exchange": Barrier()},
        {"exchange": Buffered(2)},
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
        {"algorithm": entry("dp_fts_de").make(features=20, length_scale=0.3, own=None)},
        {"algorithm": entry("random").make()},
    ],
    ids=repr,
)
def test_a_run_in_which_anything_comes_between_has_none(changed: dict[str, Any]) -> None:
    assert not fast_path.has_fast_path(replace(PLAIN, **changed).core())


def test_durations_say_that_they_are_plain_only_where_a_step_takes_one_evaluation_and_nothing_else() -> None:
    plain, slower = PLAIN.core(), replace(PLAIN, models={"speed": SpeedClasses((2.0,))}).core()
    for core, expected in ((plain, True), (slower, False)):
        assert isinstance(core.scheduler.durations, StepDurations)
        assert core.scheduler.durations.plain is expected
