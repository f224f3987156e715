"""Private messages under random fault plans: whatever goes wrong, the ledger says what really happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from plans import settings
from small_runs import Ran, Setting

from fedbo.algorithms.base import Algorithm
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.ts import TS
from fedbo.coordinator.environment.availability import Bernoulli
from fedbo.coordinator.kernel.exchange import Barrier, Deadline
from fedbo.coordinator.modes import MODES
from fedbo.coordinator.selection import Selection

OWN = TS(surrogate="features", features=10)
QUICK = profile(suppress_health_check=list(HealthCheck), derandomize=True, database=None)


def private(share: float, sampling: str) -> Algorithm:
    return entry("dp_fts_de").make(features=10, regions=2, own=OWN, share=share, sampling=sampling)


def follow(ran: Ran, setting: Setting) -> None:
    """Rebuild from the log alone whose messages are in each release, and compare it with the ledger."""
    waits, releases = setting.exchange.is_synchronous, ran.core.rules.receipt.aggregator.entries
    assert [entry.release for entry in releases] == list(range(len(releases)))
    held: set[int] = set()
    left, seen = iter(releases), set[tuple[int, int]]()
    arrived = Counter[int]()
    for record in ran.records:
        if record.kind == "arrived":
            assert (record.agent, record.step) not in seen, "a message took effect twice"
            seen.add((record.agent, record.step))
            held.add(record.agent)
            arrived[record.agent] += 1
        elif record.kind == "round":
            release = next(left)
            assert set(release.arrived) == held and release.time == record.time
            held = set()
    if waits:
        assert next(left, None) is None
    charged = Counter(agent for release in releases for agent in release.arrived)
    assert all(charged[agent] <= arrived[agent] for agent in range(setting.agents))
    for release in releases:
        assert set(release.arrived) <= set(release.sampled) <= set(release.eligible)
        assert max(release.norms, default=0.0) <= 1 / release.noise_multiplier + 1e-12
        assert release.charged == release.arrived if release.whole else set(release.arrived) <= set(release.charged)
    spent = np.zeros(setting.agents)
    for release in releases:
        if release.whole:
            spent[release.charged] += np.square(release.norms)
    assert np.allclose(spent, ran.core.state.privacy.spent)


@pytest.mark.slow
@pytest.mark.parametrize(("worlds", "unseen"), [(60, 1), pytest.param(600, 0, marks=pytest.mark.long)])
def test_the_ledger_is_that_of_what_happened_whatever_goes_wrong(worlds: int, unseen: int) -> None:
    modes: Counter[tuple[str, bool]] = Counter()

    @profile(QUICK, max_examples=worlds)
    @given(settings(), st.sampled_from([0.4, 0.8, 1.0]), st.sampled_from(["poisson", "fixed"]), st.booleans())
    def holds(setting: Setting, share: float, sampling: str, tidy: bool) -> None:
        share = share if setting.exchange.is_synchronous else 1.0
        exchange = replace(setting.exchange, selection=Selection())
        if tidy:
            world = {**setting.world, "plan": (), "link": None}
            setting = replace(setting, world=world, availability=Bernoulli(0.3, 1.0))
            exchange = Barrier() if setting.seed % 2 else Deadline(1.5)
        setting = replace(setting, algorithm=private(share, sampling), exchange=exchange)
        ran = setting.run()
        follow(ran, setting)
        modes[exchange.mode, ran.core.rules.receipt.aggregator.no_amplification == ""] += 1

    holds()
    assert len(set(MODES) - {mode for mode, _ in modes}) <= unseen, modes  # what is drawn changes with every constant
    assert modes["barrier", True] > worlds / 100 and modes["deadline", True] > worlds / 100
