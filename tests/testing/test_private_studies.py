"""Random private studies: no agent can be seen to have more influence than it was charged, and no value shows in the times.

The accounts here are independent of the ledger: influence is measured on the messages, epsilon by the closed form of the
Gaussian mechanism, and by dp-accounting where rounds are sampled.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from private_worlds import Lived, live

from fedbo.privacy import check_study
from fedbo.privacy.check_study import times_follow_points
from fedbo.study.study import Study, StudyError, load_study
from tests.random_studies.laws.ledger import gaussian
from tests.random_studies.studies import draw_study

METHODS = ("dp_fts_de", "dp_fts", "dp_fed_prior", "dp_fts_de_noise")
ROUNDING = 1e-4  # relative: releases are rounded to 2^-20 of their noise


def drawn(seed: int) -> Study:
    """Draw a small private study whose agents have something to say, and are asked more often than by default."""
    document, study = draw_study(seed, algorithm=METHODS[seed % len(METHODS)])
    first, *others = document["algorithm"]
    share = {} if seed % 3 == 0 and study.exchange.make().is_synchronous else {"share": 1.0}
    try:
        return load_study(
            {
                **document,
                "agents": {**document.get("agents", {}), "initial": 4},
                "algorithm": [{**first, "share": 0.7, **share}, *others],
            }
        )
    except StudyError:
        return study


def too_much(lived: Lived) -> list[str]:
    """List the agents whose data can be seen to have moved a release by more than they were charged, or to have cost more."""
    broken, n_agents = list[str](), lived.run.task.problem.n_agents
    for one in lived.released:
        charged = dict(zip(one.entry.charged, one.entry.norms, strict=True))
        for agent, moved in one.influence.items():
            if moved > charged.get(agent, 0.0) * (1 + ROUNDING) + ROUNDING:
                broken.append(f"release {one.entry.release}: agent {agent} moved it by {moved}, charged {charged.get(agent)}")
    spent = lived.charged(n_agents)
    for agent in range(n_agents):
        for delta, epsilon in zip(lived.run.budget.deltas, spent.get(agent, [0.0] * 9), strict=False):
            own = own_epsilon(lived, agent, delta)
            if own > epsilon * 1.01 + 1e-3:
                broken.append(f"agent {agent} has spent at least {own} at {delta}, the ledger has {epsilon}")
            most = lived.run.budget.epsilon_max
            if most is not None and own > most * 1.01:
                broken.append(f"agent {agent} has spent {own} at {delta}, above epsilon_max = {most}")
    return broken


def own_epsilon(lived: Lived, agent: int, delta: float) -> float:
    """Compute an epsilon that the influence measured on an agent's messages shows to be spent."""
    moved = [(one.influence.get(agent, 0.0), one.entry) for one in lived.released]
    mu = math.sqrt(sum(part * part for part, entry in moved if entry.share == 1.0))
    whole = gaussian(mu, delta)
    sampled = Counter(math.floor(20 * part) / 20 for part, entry in moved if entry.share < 1.0 and entry.sampling == "poisson")
    sampled.pop(0.0, None)
    if not sampled:
        return whole
    (share,) = {entry.share for _, entry in moved if entry.share < 1.0}
    total: Any = None
    for part, times in sampled.items():
        one = from_gaussian_mechanism(
            1 / part,
            value_discretization_interval=1e-3,
            sampling_prob=share,
            pessimistic_estimate=False,
            use_connect_dots=False,
        )
        total = one.self_compose(times) if total is None else total.compose(one.self_compose(times))
    return max(whole, float(total.get_epsilon_for_delta(delta)))


def shown_by_times(study: Study, folder: Path, agents: list[int]) -> list[str]:
    """List the runs in which the time or the kind of some event follows these agents' values, where nothing failed."""
    pairs = zip(live(study, folder / "one"), live(study, folder / "other", agents), strict=True)
    return [f"{one.run.key}" for one, other in pairs if not (one.failed or other.failed) and one.seen != other.seen]


def tried(seeds: range, folder: Path) -> Counter[str]:
    """Try studies, and count what was among them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        study = drawn(seed)
        for lived in live(study, folder / f"{seed}"):
            assert not too_much(lived), (seed, too_much(lived))
            counts["releases"] += len(lived.released)
            counts["sampled"] += any(one.entry.share < 1 for one in lived.released)
            counts["moved"] += any(part > 0 for one in lived.released for part in one.influence.values())
        if not times_follow_points(study):
            agents = [0] if seed % 2 else list(range(study.federation().n_agents))
            assert not shown_by_times(study, folder / f"times {seed}", agents), seed
            counts["timed"] += 1
    return counts


@pytest.mark.long
def test_no_agent_has_more_influence_than_it_is_charged_and_no_value_shows_in_the_times(tmp_path: Path) -> None:
    counts = tried(range(9), tmp_path)
    assert counts["releases"] > 20 and counts["moved"] >= 6 and counts["sampled"] >= 1 and counts["timed"] >= 3, counts


COPIED: dict[str, Any] = {
    "study": {"name": "copied", "seed": 1},
    "objective": {"name": "quadratic", "agents": 5},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "dp_fed_prior", "every": 1}],
    "exchange": {"mode": "barrier"},
    "fault": [{"kind": "lie", "how": "copy", "agents": [1, 2, 3, 4]}],
}
STOPPED: dict[str, Any] = {
    **COPIED,
    "objective": {"name": "learning_curves", "agents": 3, "epochs": 9},
    "budget": {"iterations": 4},
    "exchange": {"mode": "immediate"},
    "fault": [],
    "stopping": {"kind": "asha"},
}


def test_a_copied_message_would_have_more_influence_than_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This shows that the account above would notice; the study is refused."""
    with pytest.raises(StudyError, match="sends another agent's message"):
        load_study(COPIED)
    monkeypatch.setattr(check_study, "_copies", lambda study, name: iter(()))
    (lived,) = live(load_study(COPIED), tmp_path)
    assert too_much(lived) and "moved it by" in too_much(lived)[0]


def test_early_stopping_would_show_private_values_in_the_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StudyError, match="depends on private values"):
        load_study(STOPPED)
    monkeypatch.setattr(check_study, "_seen_by_others", lambda study, name: iter(()))
    study = load_study(STOPPED)

    def other_optimum(objective: Any) -> Any:
        return replace(objective, centre=1.0 - objective.centre)

    (one,), (other,) = live(study, tmp_path / "one"), live(study, tmp_path / "other", [0], other_optimum)
    assert one.seen != other.seen, "agent 0 sends at other times"
    times = [[event[0] for event in lived.seen if event[1:3] == ("sent", 0)] for lived in (one, other)]
    assert times[0] != times[1]


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_many_private_studies_keep_what_they_promise(block: int, tmp_path: Path) -> None:
    tried(range(1000 + 30 * block, 1030 + 30 * block), tmp_path)
