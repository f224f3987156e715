"""Draws made anew: what a branch keeps, what it changes, and the law of what follows a moment."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import scipy.stats
from planted import MILD

import fedbo
from fedbo.algorithms.streams import Streams
from fedbo.analysis.manifest import read_manifest
from fedbo.coordinator.environment.availability import Markov
from fedbo.coordinator.environment.fault_times import FaultTimes
from fedbo.coordinator.environment.faults import Crash
from fedbo.lab.why.branches import Branch, Branches, event_times
from fedbo.lab.why.redraw import EVERY, Moment, Redraw, Used, redrawn, source_of
from fedbo.study.study import load_study

ROUGH = [
    {"kind": "crash", "rate": 0.05, "restart": 2.0, "state": "lost"},
    {"kind": "reordering", "probability": 0.2, "by": 1.0},
    {"kind": "lie", "probability": 0.2},
]
WORLDS: dict[str, dict[str, Any]] = {
    "barrier": {"exchange": {"mode": "barrier"}, "fault": ROUGH},
    "immediate": {"availability": {"model": "markov", "present": 5.0, "absent": 1.0}, "fault": ROUGH},
    "selected": {"exchange": {"mode": "barrier", "selection": {"who": "fraction", "share": 0.5, "others": "idle"}}},
    "cluster": {"cluster": {"workers": 2}, "fault": [{"kind": "preemption", "rate": 0.1, "duration": 1.0}]},
    "private": {"algorithm": [{"name": "dp_fts_de"}], "exchange": {"mode": "barrier"}},
    "parallel": {"evaluation": {"parallel": 2}},
}


def branches_of(study: dict[str, Any], folder: Path) -> Branches:
    run = folder / "run"
    fedbo.run({**MILD, **study, "study": {"name": "branches", "seed": 4}}, out=run)
    loaded = load_study(run / "study.toml", trust=True, derived=True)
    return Branches(run, folder / "why", loaded, read_manifest(run), 0, loaded.labels[0])


@pytest.mark.parametrize(
    "world", [pytest.param(one, marks=[pytest.mark.long] * (one not in ("cluster", "barrier"))) for one in WORLDS]
)
def test_a_branch_without_new_draws_is_its_run_and_one_with_new_draws_has_its_history(world: str, tmp_path: Path) -> None:
    branches = branches_of(WORLDS[world], tmp_path)
    original, run = branches.original(0).tables, fedbo.Result.open(tmp_path / "run")
    assert original.observations.equals(run.observations)
    assert original.events.equals(run.events)
    times = event_times(original)
    changed = 0
    for time in (0.0, times[len(times) // 3], times[2 * len(times) // 3]):
        same = branches.tables(Branch(0, time, ()))
        assert same.observations.equals(original.observations)
        assert same.events.equals(original.events)
        other = branches.tables(Branch(0, time, ((*EVERY, "1"),)))
        before = [tables.events.filter(pc.less(tables.events["time"], time)) for tables in (original, other)]
        assert before[0].equals(before[1])
        again = branches.tables(Branch(0, time, ((*EVERY, "1"),)))
        assert again.observations.equals(other.observations)
        changed += not other.events.equals(original.events)
    assert changed == 3


def test_a_source_that_is_drawn_anew_leaves_all_others_as_they_were(tmp_path: Path) -> None:
    branches = branches_of({"fault": []}, tmp_path)
    original = branches.original(0).tables.observations

    def redraw(*sources: tuple[str, int | None]) -> Any:
        return branches.tables(Branch(0, 0.0, tuple((*source, "1") for source in sources))).observations

    def lengths(table: Any) -> list[float]:
        gaps = np.array(table["finished"].to_pylist()) - np.array(table["started"].to_pylist())
        return [round(float(gap), 9) for gap in gaps]

    initial = redraw(("initial points", None))
    assert lengths(initial) == lengths(original)
    assert initial["x"][0].as_py() != original["x"][0].as_py()
    longer = redraw(("durations", None))
    assert lengths(longer) != lengths(original)
    assert longer["x"][0].as_py() == original["x"][0].as_py()
    alone = redraw(("initial points", 1))
    of_agent = [table.filter(pc.and_(pc.equal(table["agent"], 0), pc.equal(table["step"], 0))) for table in (alone, original)]
    assert of_agent[0].equals(of_agent[1])
    assert lengths(redraw(("durations", 2))) != lengths(original)


def moment(time: float, evaluation: int = 0) -> Moment:
    return Moment(time, 0, 0, 10, {0: Used(evaluation=evaluation)})


def test_numbers_of_a_block_that_were_used_stay() -> None:
    old = Streams(3, 1, owner=0)
    new = redrawn(old, Redraw({("durations", None): "why 1 "}, moment(0.0, evaluation=70)))

    def draw(rng: np.random.Generator) -> Any:
        return rng.random(64)

    first, second = (streams.at(1).block("evaluation time", 64, draw) for streams in (old, new))
    assert first[:6].tolist() == second[:6].tolist()
    assert not np.any(first[6:] == second[6:])
    assert new.at(0).block("evaluation time", 0, draw).tolist() == old.at(0).block("evaluation time", 0, draw).tolist()
    assert not np.any(new.at(2).block("evaluation time", 128, draw) == old.at(2).block("evaluation time", 128, draw))


@pytest.mark.parametrize("time", [3.0, 20.0])
def test_absences_after_a_moment_follow_the_law_given_who_is_present(time: float) -> None:
    # Exponential lengths have no memory: what is left of a presence or absence has its law. Kolmogorov-Smirnov with 400 draws;
    # a false alarm has the probability 1e-4, and the seed is fixed.
    model, old = Markov(present=4.0, absent=2.0), Streams(5, 0, owner=0)
    before = [change for change in islice(model.changes(0, old.rng("availability")), 200) if change < time]
    left = []
    for number in range(400):
        streams = redrawn(old, Redraw({("absences", None): f"why {number} "}, moment(time)))
        changes = list(islice(streams.times("availability", lambda rng: model.changes(0, rng)), len(before) + 1))
        assert changes[:-1] == before
        left.append(changes[-1] - time)
    mean = 2.0 if len(before) % 2 else 4.0
    assert scipy.stats.kstest(left, scipy.stats.expon(scale=mean).cdf).pvalue > 1e-4


@pytest.mark.parametrize("time", [3.0, 20.0])
def test_strikes_after_a_moment_come_an_exponential_time_after_what_still_lasts(time: float) -> None:
    # The up time to the next strike has no memory. Kolmogorov-Smirnov with 400 draws: a false alarm has the probability 1e-4.
    fault, old = Crash((0,), rate=0.5, restart=2.0), Streams(5, 0, owner=0)

    def times(streams: Streams) -> FaultTimes:
        return FaultTimes({0: fault}, "fault", lambda owner: streams, streams)

    before = [strike for strike in (times(old).at(0, 0, number) for number in range(20)) if strike < time]
    left = []
    for number in range(400):
        again = times(redrawn(old, Redraw({("fault 0", None): f"why {number} "}, moment(time))))
        assert [again.at(0, 0, place) for place in range(len(before))] == before
        left.append(again.at(0, 0, len(before)) - max(time, before[-1] + 2.0 if before else 0.0))
    assert scipy.stats.kstest(left, scipy.stats.expon(scale=2.0).cdf).pvalue > 1e-4


def test_times_of_a_model_with_memory_stay() -> None:
    streams = redrawn(Streams(5, 0, owner=0), Redraw({EVERY: "why 1 "}, moment(1.0)))
    assert list(streams.times("availability", lambda rng: iter([2.0, 3.0]), memoryless=False)) == [2.0, 3.0]


@pytest.mark.parametrize(
    ("purpose", "source"),
    [
        ("initial points", "initial points"),
        ("added noise", "observation noise"),
        ("evaluation", "observation noise"),
        ("evaluation time again", "durations"),
        ("speed class", "durations"),
        ("latency up", "latency"),
        ("availability", "absences"),
        ("fault 3 befalls up 0", "fault 3"),
        ("preemption 2", "fault 2"),
        ("own draw", "decisions"),
    ],
)
def test_every_purpose_belongs_to_a_source(purpose: str, source: str) -> None:
    assert source_of(purpose, False) == source


def test_the_world_is_never_drawn_anew() -> None:
    old = Streams(2, 0)
    new = redrawn(old, Redraw({EVERY: "why 1 "}))
    assert new.shared("objective").random() == old.shared("objective").random()
    assert new.within("history ").rng("own draw").random() == old.within("history ").rng("own draw").random()
    assert new.rng("own draw").random() != old.rng("own draw").random()
