"""Run time of Fed-PNE with a thousand clients and ten thousand rounds, in virtual time with stragglers.

    python benchmarks/fed_pne_scale.py [--clients 1000] [--rounds 10000] [--mode barrier]

The objective is Garland's function on [0, 1], moved by up to 0.05 for each client, with uniform noise of 0.1. Evaluations take
log-normal times, and every client belongs to one of three classes of speed; messages take exponential times. It prints
seconds, phases, the bytes that each client sent, and each client's mean cumulative regret on the mean of all functions.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.actors.agent import objective_of
from fedbo.algorithms.streams import Streams
from fedbo.objectives.models.families import FormulaAgent
from fedbo.study.study import load_study


def study_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Give the study."""
    exchange = {"deadline": {"mode": "deadline", "length": arguments.length}}.get(arguments.mode, {"mode": arguments.mode})
    return {
        "study": {"name": "fed_pne_scale", "seed": arguments.seed},
        "objective": {"name": "garland", "agents": arguments.clients, "family": arguments.family, "half_width": 0.1},
        "budget": {"pulls": arguments.rounds},
        "algorithm": [{"name": "fed_pne", "missing": arguments.missing}],
        "timing": {
            "evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 1.0, "between": 0.3},
            "speed": {"factors": [1.0, 2.0, 4.0]},
            "latency": {"model": "exponential", "mean": 1.0},
        },
        "exchange": exchange,
    }


def regret(table: Any, study: dict[str, Any]) -> float:
    """Sum how far all evaluations were from the largest mean value, for each client; that value by a grid of 20,001 points."""
    loaded = load_study(study)
    federation, world = loaded.federation(), Streams(loaded.study.seed)
    agents = [objective_of(federation, agent, world) for agent in range(federation.n_agents)]
    grid = np.linspace(0.0, 1.0, 20_001)
    x = np.array(table["x"].combine_chunks().flatten())
    places = np.concatenate([grid, np.unique(x)])[:, None]
    total = np.zeros(len(places))
    for agent in agents:
        assert isinstance(agent, FormulaAgent)
        total += agent.scores(places)
    values = total / len(agents)
    known = np.sort(places[len(grid) :, 0])
    at_x = values[len(grid) :][np.searchsorted(known, x)]
    pulls = np.array(table["pulls"])
    return float((pulls * (values.max() - at_x)).sum()) / len(agents)


def main() -> None:
    """Run the study once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--mode", default="barrier", choices=["barrier", "deadline", "immediate"])
    parser.add_argument("--length", type=float, default=2000.0, help="length of a round with a deadline")
    parser.add_argument("--missing", default="flag", choices=["flag", "correct", "wait"])
    parser.add_argument("--family", default="shift", choices=["same", "shift", "mixture"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    study = study_of(arguments)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        result = fedbo.run(study, out=Path(folder) / "run")
        seconds = time.monotonic() - begun
        table, events = result.observations, result.events
    sent = sum(row["bytes"] for row in events.select(["kind", "bytes"]).to_pylist() if row["kind"] == "sent")
    print(f"{arguments.clients} clients, {arguments.rounds} rounds each, {arguments.mode}: {seconds:.1f} s")
    print(f"evaluations {int(np.array(table['pulls']).sum()):,}, points {len(table):,}, events {len(events):,}")
    print(f"phases {max(table['step'].to_pylist())}, bytes sent by each client {sent / arguments.clients:.0f}")
    print(f"virtual time {max(table['finished'].to_pylist()):.0f}, regret of each client {regret(table, study):.1f}")


if __name__ == "__main__":
    main()
