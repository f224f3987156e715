"""Runs that would never end are given up, in one line, wherever they stand; those that are slow go on."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_runs import Setting, fts

import fedbo
from fedbo.actors.hosts import InlineHosts
from fedbo.coordinator import endless
from fedbo.coordinator.environment.availability import Always, Daily
from fedbo.coordinator.environment.faults import Crash, Hang, Loss, NetworkPartition, Restart
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.errors import EndlessError
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Barrier
from fedbo.execution.failures import RunError
from fedbo.study.study import load_study

ALL = tuple(range(2))
CALM = Setting(fts(), agents=2, evaluation=Constant(6.0), latency=Constant(0.0), availability=Always(), initial=1)
LOST = replace(CALM, availability=Daily(present=4.0), models={"leaving": "lost"})


def plan(*faults: Any) -> Setting:
    return replace(CALM, world={"plan": faults})


def unreachable(fault: Any) -> Setting:
    """A world in which no message gets through, and agents never give up."""
    return replace(CALM, exchange=Barrier(), world={"plan": (fault,), "attempts": 10**9})


ENDLESS = {
    "a day that is too short": (LOST, "availability 'daily' with leaving = \"lost\""),
    "crashes": (plan(Crash(ALL, rate=5.0, restart=0.1, state="lost")), "fault 'crash'"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_step_that_is_begun_again_without_end_ends_the_run_in_one_line(name: str) -> None:
    setting, cause = ENDLESS[name]
    with pytest.raises(EndlessError, match=r"^the run would never end: agent \d has restarted step 0 \d+ times") as caught:
        setting.run()
    assert cause in str(caught.value)
    assert "[budget] time" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", [{"cluster": {"workers": 2}}, {"evaluation": {"parallel": 2}}])
def test_evaluations_that_end_and_are_lost_with_their_step_again_and_again_end_the_run(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the first evaluations fit into a day, all of them together do not."""
    monkeypatch.setattr(endless, "STARTS", 1000)
    document = {
        "study": {"name": "lost"},
        "objective": {"name": "quadratic", "agents": 2},
        "agents": {"initial": 40},
        "budget": {"iterations": 1},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "exponential", "mean": 2.0}},
        "availability": {"model": "daily", "day": 8.0, "present": 5.0, "start": 0.0, "leaving": "lost"},
    }
    ended_with({**document, **table}, "would never end: agent . has restarted step 0 .* availability 'daily'", tmp_path / "run")


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(plan(Hang(ALL, rate=1e7, duration=1000.0)), id="hangs"),
        pytest.param(unreachable(Loss(ALL, 1.0)), id="loss"),
        pytest.param(unreachable(NetworkPartition(ALL, rate=1.0, duration=1e9)), id="partitions"),
        pytest.param(unreachable(Restart(rate=1.0, duration=1e9)), id="coordinator"),
    ],
)
@pytest.mark.parametrize("events", [5_000, pytest.param(endless.EVENTS, marks=pytest.mark.long)])
def test_a_run_in_which_nothing_comes_further_ends(setting: Setting, events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "EVENTS", events)
    with pytest.raises(EndlessError, match=rf"no progress since time .*, in {events} events"):
        setting.run()


@pytest.mark.long
def test_it_is_given_up_at_the_same_event_after_a_stop() -> None:
    def moment(stops: int) -> tuple[int, float]:
        core, agenda, left = LOST.core(), EventQueue(), [stops]
        hosts = InlineHosts(LOST.task(), range(LOST.agents))

        def stop() -> bool:
            left[0] -= 1
            return left[0] == 0

        with pytest.raises(EndlessError, match="never end"):
            while True:
                agenda.stopped = False
                run_virtual(core, hosts, RunHooks(lambda lines: None, stop), agenda)
        return agenda.events, agenda.time

    assert moment(0) == moment(4)


@pytest.mark.long
def test_a_run_that_ends_in_time_is_not_given_up() -> None:
    ran = replace(LOST, until=2e5).run()
    assert ran.outcome.time <= 2e5
    assert len(ran.of("started")) > 15_000


@pytest.mark.long
def test_memory_does_not_grow_with_what_has_happened() -> None:
    def most(until: float) -> tuple[int, int]:
        setting = replace(LOST, until=until)
        core, agenda = setting.core(), EventQueue()
        hosts = InlineHosts(setting.task(), range(setting.agents))
        tracemalloc.start()
        run_virtual(core, hosts, RunHooks(lambda lines: None, tick=lambda: None), agenda, until)
        core.rules.log.clear()
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return agenda.events, left

    few, before = most(2e3)
    many, after = most(8e3)
    assert many > 3.9 * few
    assert after < before + 20_000


def ended_with(document: dict[str, Any], words: str, out: Path) -> None:
    with pytest.raises(RunError, match=words):
        fedbo.run(load_study(document), out=out)


UNHEARD = [{"kind": "loss", "direction": "up"}, {"kind": "corruption", "how": "shape"}]


def unheard(fault: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Fed-PNE without rounds waits for the means of all; agent 1 has no budget to send again what does not come through."""
    return {
        "study": {"name": "unheard"},
        "objective": {"name": "admm_toy"},
        "budget": {"pulls": 5},
        "algorithm": [{"name": "fed_pne", **settings}],
        "network": {"attempts": 1},
        "fault": [{"agents": [1], "probability": 1.0, **fault}],
    }


@pytest.mark.parametrize("fault", UNHEARD)
def test_who_waits_for_the_last_message_of_an_agent_that_has_ended_ends_the_run_in_one_line(
    fault: dict[str, Any], tmp_path: Path
) -> None:
    words = "agents 0 wait .* because the last message of agents 1 was rejected or never delivered; increase"
    ended_with(unheard(fault, missing="wait"), words, tmp_path / "run")


@pytest.mark.parametrize("fault", UNHEARD)
def test_a_phase_goes_on_without_agents_that_have_ended_unless_all_are_to_be_waited_for(
    fault: dict[str, Any], tmp_path: Path
) -> None:
    refused = pytest.warns(RuntimeWarning, match="9 of 10 messages of 'fed_pne' were refused")
    with refused if fault["kind"] == "corruption" else nullcontext():
        result = fedbo.run(load_study(unheard(fault)), out=tmp_path / "run")
    rows = result.observations.to_pylist()
    assert sum(row["pulls"] for row in rows if row["agent"] == 0) == 5
    assert "waiting" not in {row["origin"] for row in rows if row["agent"] == 0}


def test_a_share_of_the_clients_is_one_of_those_that_still_take_part(tmp_path: Path) -> None:
    """Agents run out of their budgets at unlike times, and the last one has nobody to wait for."""
    document = {
        "study": {"name": "quorum"},
        "objective": {"name": "plants", "agents": 4},
        "budget": {"pulls": 58},
        "algorithm": [{"name": "fed_pne", "preset": "theory", "nu": 0.61, "c": 0.26, "point": "uniform", "quorum": 0.3}],
        "exchange": {"mode": "buffered", "k": 3},
    }
    rows = fedbo.run(load_study(document), out=tmp_path / "run").observations.to_pylist()
    assert [sum(row["pulls"] for row in rows if row["agent"] == agent) for agent in range(4)] == [58] * 4


def test_who_waits_for_an_answer_to_a_message_that_was_too_old_ends_the_run_in_one_line(tmp_path: Path) -> None:
    """ADMM answers nobody while all that it holds is older than the bound, which no later message is younger than."""
    document = {
        "study": {"name": "stale"},
        "objective": {"name": "quadratic", "agents": 1},
        "budget": {"iterations": 4},
        "algorithm": [{"name": "admm_consensus", "evaluations": 2}],
        "exchange": {"mode": "immediate", "staleness": {"weight": "polynomial", "bound": 0}},
    }
    ended_with(
        document, "agents 0 wait .* last message of agents 0 was rejected .* bound of .exchange. staleness", tmp_path / "run"
    )


def test_the_agent_that_is_named_is_at_work_or_kept_from_it_else_the_first_that_takes_part() -> None:
    def core(**at_work: Any) -> Any:
        agents = {number: SimpleNamespace(number=number, interruptions=[], current=None) for number in range(4)}
        vars(agents[at_work.get("of", 2)]).update({key: value for key, value in at_work.items() if key != "of"})
        return SimpleNamespace(state=SimpleNamespace(agents=agents, rounds=SimpleNamespace(active={1, 2, 3})))

    assert endless._who(core(current=7)) == 2
    assert endless._who(core(interruptions=["away"], of=3)) == 3
    assert endless._who(core()) == 1
