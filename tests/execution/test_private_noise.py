"""Private noise belongs to one run: no two runs of a study draw the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.agent import HostedAgent
from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import Private
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.runtime.actor import Run
from fedbo.execution.jobs import runs
from fedbo.privacy.aggregator import PrivateAggregator
from fedbo.study.study import load_study

OWN = {"surrogate": "features", "features": 20}
PRIVATE = {"name": "dp_fts_de", "features": 20, "regions": 1, "own": OWN}
CENTRAL: dict[str, Any] = {
    "study": {"name": "noise", "seed": 3, "replicates": 2},
    "objective": {"name": "quadratic", "agents": 4},
    "budget": {"iterations": 3},
    "exchange": {"mode": "barrier"},
    "algorithm": [{**PRIVATE, "share": 0.5}, {**PRIVATE, "share": 0.5, "label": "the same"}],
    "sweep": {"agents.initial": [1, 2]},
}
LOCAL: dict[str, Any] = {
    **CENTRAL,
    "objective": {"name": "quadratic", "agents": 4, "noise": 0.0},
    "budget": {"pulls": 400},
    "algorithm": [{"name": "dp_fed_pne"}, {"name": "dp_fed_pne", "label": "the same"}],
    "sweep": {"timing.latency.mean": [0.0, 0.5]},
}


def released_noise(run: Run) -> list[np.ndarray[Any, Any]]:
    """Return the noise and the coins of a run's first two releases."""
    aggregator = assembled(run.task, run.exchange, run.environment, run.budget).rules.receipt.aggregator
    assert isinstance(run.task.algorithm, Private) and isinstance(aggregator, PrivateAggregator)
    source = aggregator._source
    draws = [source.normal("privacy noise", number, np.zeros(6)) for number in (0, 1)]
    return [*draws, *(source.uniform("privacy sampling", number, (6,)) for number in (0, 1))]


def sent_means(run: Run, agent: int) -> np.ndarray[Any, Any]:
    """Return the means that a client sends after its first phase, with their noise."""
    report = HostedAgent(run.task, agent).work(StepRequest(agent, 1))
    assert report is not None and report.payload is not None
    return np.asarray(report.payload["means"])


def test_no_two_runs_of_a_study_have_the_same_noise_or_coins(tmp_path: Path) -> None:
    """Whoever subtracts two releases with the same noise has their difference without any."""
    work = runs(load_study(CENTRAL), tmp_path)
    drawn = [tuple(array) for run in work for array in released_noise(run)]
    assert len(work) == 8 and len(set(drawn)) == len(drawn) == 32
    again = runs(load_study(CENTRAL), tmp_path)
    assert [tuple(array) for run in again for array in released_noise(run)] == drawn, "a study repeats its own noise"


def test_no_two_messages_that_clients_hide_have_the_same_noise(tmp_path: Path) -> None:
    work = [run for run in runs(load_study(LOCAL), tmp_path) if run.key.replicate == 0]
    found = {run.key: sent_means(run, 1) for run in work}
    assert len(found) == 4 and len({tuple(means) for means in found.values()}) == 4
    assert all((sent_means(run, 1) == found[run.key]).all() for run in work), "what is sent again has the same noise"
