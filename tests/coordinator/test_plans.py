"""Every exchange mode with every kind of fault: runs end, and what must hold holds at every event."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from invariants import check, events_of
from plans import OF_AGENTS, chances, faults, settings, some
from small_runs import ALL_MODES, Setting

from fedbo.coordinator.environment.faults import Corruption

QUICK = profile(suppress_health_check=list(HealthCheck), derandomize=True, database=None)


WORDS = {
    "started": ("", "again"),
    "sent": ("", "again"),
    "lost": ("up", "down"),
    "arrived": ("", "stale"),
    "crashed": ("kept", "lost", "for good"),
    "rejected": ("duplicate", "duplicate answer", "stale", "malformed not finite", "given_up", "malformed payload is"),
}
PLAIN = "finished failed falsified late delivered round absent returned restarted hung woke slowed recovered cut joined".split()
PLAIN += ["down", "up", "done", "missed"]
EVENTS = {(kind, word) for kind, words in WORDS.items() for word in words} | {(kind, "") for kind in PLAIN}


@pytest.mark.slow
@pytest.mark.parametrize(("worlds", "unseen"), [(30, 12), pytest.param(500, 0, marks=pytest.mark.long)])
def test_what_must_hold_holds_whatever_goes_wrong_and_everything_does(worlds: int, unseen: int) -> None:
    found: Counter[tuple[str, str]] = Counter()

    @profile(QUICK, max_examples=worlds)
    @given(settings())
    def holds(setting: Setting) -> None:
        found.update(events_of(check(setting)))

    # What is drawn changes with every constant in the sources, and some troubles are rare: more of them, and one may miss.
    cut = st.builds(Corruption, agents=some, probability=chances, how=st.just("shape"))

    rare = st.one_of(faults("corruption"), faults("crash"), faults("duplication"), cut)

    @profile(QUICK, max_examples=worlds)
    @given(settings(st.lists(rare, min_size=1, max_size=2).map(tuple)))
    def holds_with_rare_trouble(setting: Setting) -> None:
        found.update(events_of(check(setting)))

    holds()
    holds_with_rare_trouble()
    assert set(found) <= EVENTS and len(EVENTS - set(found)) <= unseen, EVENTS - set(found)


# Each mode with every other kind of fault, each kind with every other mode; all pairs are left to the long tests.
FEW = [
    pytest.param(
        exchange, kind, 2, id=f"{exchange.mode}{'-carry' * (exchange.accepts_late and exchange.is_synchronous)}-{kind}"
    )
    for number, exchange in enumerate(ALL_MODES)
    for place, kind in enumerate(OF_AGENTS)
    if (number + place) % 2 == 0
]
ALL = [pytest.param(exchange, kind, 20, marks=pytest.mark.long) for exchange in ALL_MODES for kind in OF_AGENTS]


@pytest.mark.slow
@pytest.mark.parametrize(("exchange", "kind", "worlds"), [*FEW, *ALL])
def test_every_mode_survives_every_kind_of_fault(exchange, kind: str, worlds: int) -> None:
    @profile(QUICK, max_examples=worlds)
    @given(settings(st.lists(faults(kind), min_size=1, max_size=2).map(tuple)))
    def survives(setting: Setting) -> None:
        check(replace(setting, exchange=exchange))

    survives()
