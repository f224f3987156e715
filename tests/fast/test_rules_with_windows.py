"""A rule that is added to a part of the core holds where windows run too: such a run has none then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from small_runs import Setting
from talking import Talk

from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.exchange import Barrier, Immediate, InRounds, Rounds
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.uplink import Uplink
from fedbo.coordinator.logged.messages import TransmissionRejected
from fedbo.coordinator.modes import MODES
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.fast.accelerate import has_windows

PLAIN = Setting(Talk(), agents=3, iterations=3, availability=Always())
SETTINGS = [replace(PLAIN, exchange=exchange) for exchange in (Immediate(), Barrier())]
KINDS = [Core, Rules, Rounds, *map(type, PLAIN.core().parts), *MODES.values()]
# Functions of classes above them are rules as well, such as those of the modes with rounds.
FUNCTIONS = sorted(
    {
        (base.__module__, base.__name__, name): (base, name)
        for kind in KINDS
        for base in kind.__mro__[:-1]
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("__")
    }.values(),
    key=lambda pair: (pair[0].__name__, pair[1]),
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what sets the number of agents from which on a run may have windows."""
    return lambda number: monkeypatch.setattr("fedbo.fast.accelerate._FEWEST", number)


@pytest.mark.parametrize(("kind", "name"), FUNCTIONS, ids=lambda one: getattr(one, "__name__", one))
def test_a_rule_in_any_function_of_the_core_is_asked_as_often_where_windows_run(
    kind: type, name: str, few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, there = Counter[str](), vars(kind)[name]
    function: Any = there.__func__ if isinstance(there, staticmethod) else there

    def rule(*given: Any, **named: Any) -> Any:
        asked[name] += 1
        return function(*given, **named)

    monkeypatch.setattr(kind, name, staticmethod(rule) if isinstance(there, staticmethod) else rule)
    for setting in SETTINGS:
        counts = []
        for least in (100, 1):
            few(least)
            asked.clear()
            setting.run()
            counts.append(asked[name])
        assert counts[0] == counts[1]


@pytest.mark.parametrize("place", range(len(PLAIN.core().parts)))
def test_a_part_of_another_class_or_with_a_function_of_its_own_has_no_windows(place: int, few: Callable[[int], None]) -> None:
    few(1)
    assert has_windows(PLAIN.core())
    core = PLAIN.core()
    part: Any = core.parts[place]
    name = next(name for name, value in vars(type(part)).items() if callable(value) and not name.startswith("__"))
    setattr(part, name, getattr(part, name))
    assert not has_windows(core), "it may be another function"
    delattr(part, name)
    assert has_windows(core)
    part.__class__ = type("Other", (type(part),), {})
    assert not has_windows(core)


@dataclass(frozen=True, slots=True)
class Majority(InRounds):
    """A round closes with the messages of half of those that it asks."""

    mode: ClassVar[str] = "majority"
    staleness: Staleness = Staleness()
    selection: Selection = Selection()

    def should_close(self, rounds: Rounds) -> bool:
        """Close with half of the messages."""
        return bool(rounds.reported) and rounds.messages >= len(rounds.missing)


def test_a_mode_in_the_list_that_closes_rounds_by_a_rule_of_its_own_has_no_windows(
    few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few(1)
    monkeypatch.setitem(MODES, "majority", Majority)
    monkeypatch.setattr("fedbo.fast.accelerate._is_known", lambda part: True)
    assert has_windows(PLAIN.core())
    assert not has_windows(replace(PLAIN, exchange=Majority()).core())


def test_a_message_that_a_new_rule_refuses_is_refused_with_few_agents_and_with_many(
    few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Uplink._refusal

    def stricter(self: Uplink, state: Any, message: Any, now: float) -> TransmissionRejected | None:
        if message.step == 2:
            return TransmissionRejected(now, message.sender, "undeclared", message.step)
        return refusal(self, state, message, now)

    monkeypatch.setattr(Uplink, "_refusal", stricter)
    for least in (100, 1):
        few(least)
        records = PLAIN.run().records
        assert [one.step for one in records if one.kind == "rejected"] == [2] * PLAIN.agents
