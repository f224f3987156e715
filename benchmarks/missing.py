"""The bias of the means of Fed-PNE's phases when some clients are missing.

    fedbo run examples/fed_pne.toml
    python benchmarks/missing.py RUN

For every phase it computes the mean of the functions of the clients whose means had arrived, at the phase's nodes, minus that
of all clients' functions. This bias has no noise. Printed are the share of missing clients, and the root mean square and the
largest bias over nodes, phases and replicates.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo import Result
from fedbo.actors.agent import objective_of
from fedbo.algorithms.bandits.trees.elimination_phases import MissingPolicy
from fedbo.algorithms.streams import Streams
from fedbo.objectives.models.families import FormulaAgent

Array = np.ndarray[Any, np.dtype[np.float64]]
Row = dict[str, Any]


class Phase(NamedTuple):
    """What was seen of a phase: its nodes' points `(n, 1)`, and whose means came in time `(agents,)`."""

    x: Array
    there: np.ndarray[Any, np.dtype[np.bool_]]


def phases(rows: list[Row], events: list[Row], agents: int) -> list[Phase]:
    """List the phases of a run that closed, in order; one closed at the round before anybody began the next."""
    points, missing, of_step = defaultdict[int, set[float]](set), dict[int, int](), dict[tuple[int, int], int]()
    begun = dict[int, float]()
    for row in rows:
        words = (row["note"] or "").split()
        if words[:1] == ["phase"]:
            number = of_step[row["agent"], row["step"]] = int(words[1])
            points[number].add(row["x"][0])
            begun[number] = min(row["started"], begun.get(number, np.inf))
            missing[number - 1] = int(words[words.index("missing") + 1]) if "missing" in words else 0
    rounds = [row["time"] for row in events if row["kind"] == "round"]
    there = {number: np.zeros(agents, dtype=bool) for number in points}
    for row in events:
        # A message that was dropped is sent again in a later step, so it has the means of the last phase that was evaluated.
        phase = max((of_step.get((row["agent"], step), 0) for step in range(row["step"] + 1)), default=0)
        if row["kind"] == "arrived" and phase and phase + 1 in begun:
            closed = max(time for time in rounds if time <= begun[phase + 1])
            there[phase][row["agent"]] |= row["time"] <= closed
    closed_ones = sorted(points)[:-1]
    for number in closed_ones:
        counted, told = agents - int(there[number].sum()), missing[number]
        assert counted == told, f"phase {number}: {counted} clients were missing by the events, {told} as clients were told"
    return [Phase(np.array(sorted(points[number]))[:, None], there[number]) for number in closed_ones]


def biases(found: list[Phase], functions: list[FormulaAgent], policy: MissingPolicy) -> list[Array]:
    """Give each phase's biases at its nodes."""
    made = list[Array]()
    for phase in found:
        values = np.array([function.scores(phase.x) for function in functions])
        mean, _ = policy.mean(values[phase.there])
        made.append(mean - values.mean(axis=0))
    return made


def main() -> None:
    """Print a line for each algorithm of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    result = Result.open(parser.parse_args().run)
    study = result.study
    federation, seed = study.federation(), study.study.seed
    rows, events = (defaultdict[tuple[str, int], list[Row]](list) for _ in range(2))
    for kept, table, names in (
        (rows, result.observations, ("note", "started", "x")),
        (events, result.events, ("kind", "time")),
    ):
        for row in table.select(["algorithm", "replicate", "agent", "step", *names]).to_pylist():
            kept[row["algorithm"], row["replicate"]].append(row)
    for settings in study.algorithm:
        policy = MissingPolicy(getattr(settings, "missing", "flag"), 0.0)
        absent, off = list[float](), list[Array]()
        for replicate in range(study.study.replicates):
            world = Streams(seed, replicate)
            functions: list[Any] = [objective_of(federation, agent, world) for agent in range(federation.n_agents)]
            run = settings.label or settings.name, replicate
            found = phases(rows[run], events[run], len(functions))
            absent += [1.0 - float(phase.there.mean()) for phase in found]
            off += biases(found, functions, policy)
        every = np.concatenate(off)
        root, most = np.sqrt(np.mean(every**2)), np.abs(every).max()
        print(f"{settings.label:28s} missing {np.mean(absent):5.1%}, bias: root mean square {root:.4f}, largest {most:.4f}")


if __name__ == "__main__":
    main()
