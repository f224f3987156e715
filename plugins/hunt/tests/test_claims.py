"""Claims: which are understood, and by how much runs go beyond them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedbo
from fedbo.analysis.grouping import by_run
from fedbo.lab.why.ends import EndedRun
from fedbo.settings.errors import ArgumentError
from fedbo_hunt.claims import parse_claim

STUDY = {
    "study": {"name": "claims", "seed": 2},
    "objective": {"name": "quadratic", "agents": 2},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "random"}, {"name": "ts", "label": "my method"}],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EndedRun]:
    found = fedbo.run(STUDY, out=tmp_path_factory.mktemp("claims") / "run")
    events, best = dict(by_run(found.events)), found.manifest["best_values"]
    return {
        key.algorithm: EndedRun(key, table, events[key], found.privacy, found.metric(0), best)
        for key, table in by_run(found.observations)
    }


def means(run: EndedRun) -> list[float]:
    """Return the mean best distances over agents after each iteration, from the table alone, where larger is better."""
    rows = [row for row in run.observations.to_pylist() if row["phase"] != "history"]
    agents, last = sorted({row["agent"] for row in rows}), max(row["step"] for row in rows)
    best = [
        [-max(r["value"] for r in rows if r["agent"] == a and r["step"] <= step) for a in agents] for step in range(last + 1)
    ]
    return [float(np.mean(values)) for values in best]


def test_the_excess_is_what_the_tables_say(runs: dict[str, EndedRun]) -> None:
    assert runs["random"].metric.sign < 0  # a distance
    mine, other = means(runs["my method"]), means(runs["random"])
    ends = {label: max(run.observations["finished"].to_pylist()) for label, run in runs.items()}
    for words, value in {
        "my method is not worse than random by 0.1": mine[-1] - other[-1] - 0.1,
        "my method is better than random by 0.1 at t = 2": mine[2] - other[2] + 0.1,
        "random is not worse than my method at half": other[2] - mine[2],
        "best of my method is at most 0.2 at t = 1": mine[1] - 0.2,
        "best of random is at least 0.2 at mean": 0.2 - np.mean(other[1:]),
        "end of my method is not above that of random by 2": ends["my method"] - ends["random"] - 2,
        "end of my method is not below that of random": ends["random"] - ends["my method"],
        "evaluations of random is at most 3": len(runs["random"].observations) - 3,
        "time to -5 of random is at most 3": 2 * ends["random"] - 3,
        "staleness of random is at most 2": -2.0,
        "random ends": -0.5,
        "random has the same results as my method": 0.5,
    }.items():
        assert parse_claim(words).excess(runs, 4) == pytest.approx(value), words


def test_a_run_that_cannot_end_breaks_one_claim_and_says_nothing_of_others(runs: dict[str, EndedRun]) -> None:
    stuck = {**runs, "random": replace(runs["random"], was_stuck=True)}
    assert parse_claim("random ends").excess(stuck, 4) == 0.5
    assert parse_claim("my method ends").excess(stuck, 4) == -0.5
    assert parse_claim("my method is not worse than random").excess(stuck, 4) is None


@pytest.mark.parametrize("words", ["", "fts", "fts is worse than ts", "speed of fts is at most 3", "fts is much worse than ts"])
def test_other_words_are_refused_with_examples(words: str) -> None:
    with pytest.raises(ArgumentError, match="claim = .*must be a claim such as"):
        parse_claim(words)


def test_how_far_a_run_can_stay_below_a_claim_is_known_of_quantities_that_are_not_negative() -> None:
    assert parse_claim("bytes of fts is at most 30").bound == 30.0
    assert parse_claim("fts ends").bound == parse_claim("fts has the same results as ts").bound == 0.5
    for words in ("best of fts is at most 3", "end of fts is at least 3", "fts is not worse than ts by 3"):
        assert parse_claim(words).bound is None


def test_a_claim_must_fit_its_study() -> None:
    def refused(words: str, message: str) -> None:
        with pytest.raises(ArgumentError, match=message):
            parse_claim(words).check(("fts", "ts"), 8)

    refused("fts is not worse than gp_ei", "names 'gp_ei'; choose labels of the study: 'fts', 'ts'")
    refused("fts is not worse than fts", "compares a method with itself")
    refused("fts is not worse than ts at t = 9", "is about t = 9, but runs end at t = 8")
    with pytest.raises(ArgumentError, match="must count iterations from 1"):
        parse_claim("fts is not worse than ts at t = 0")
    with pytest.raises(ArgumentError, match="has 'at' only for best and regret"):
        parse_claim("bytes of fts is at most 3 at half")
