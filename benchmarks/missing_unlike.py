"""The bias of federated answers when missing agents are unlike the rest: fed_pne, admm_consensus, fts.

    python benchmarks/missing_unlike.py [--replicates 20]

Agents have bowls in one input, so the best point of their mean is the mean of their centres. 30 % of them are seldom present:
any agents (`by = "number"`), or those with the largest optima (`by = "x1"`). Printed is the bias: the signed distance of
answers from the mean of all centres, with its mean and 95 % interval over replicates, also with all agents present. An answer
is an agent's last evaluation. For fts, whose agents optimise for themselves, it is the mean of the federated queries in the
later half of the steps.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import fedbo
from fedbo.actors.agent import objective_of
from fedbo.algorithms.streams import Streams

EXAMPLE = Path(__file__).parents[1] / "examples" / "missing_unlike.toml"
SHORT: dict[str, Any] = {
    "timing": {"evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 0.5}},
}
ADMM = {"name": "admm_consensus", "rho": 2.0}
FTS = {"name": "fts", "own": {"surrogate": "features"}, "every": 1, "p": 0.5}
Array = np.ndarray[Any, np.dtype[np.float64]]


def studies(replicates: int) -> list[dict[str, Any]]:
    """List the studies: the example, and the same world with other methods, whose rounds are shorter."""
    bandit = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    bandit["study"]["replicates"] = replicates
    group = {**bandit["group"][0], "availability": {"model": "markov", "present": 3.0, "absent": 9.0}}
    short = {**bandit, **SHORT, "group": [group]}
    admm = {**short, "budget": {"iterations": 30}, "algorithm": [ADMM]}
    fts = {**short, "budget": {"iterations": 16}, "algorithm": [FTS], "agents": {"initial": 2}}
    return [bandit, admm, fts]


def answers(result: fedbo.Result) -> dict[tuple[str, int, int], float]:
    """Give where the answer of each algorithm, cell and replicate lies, the mean over agents."""
    rows: dict[tuple[str, int, int], dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in result.observations.to_pylist():
        if row["error"] is None:
            rows[row["algorithm"], row["cell"], row["replicate"]][row["agent"]].append(row)
    found = {key: [_answer(key[0], own) for own in agents.values()] for key, agents in rows.items()}
    return {key: float(np.nanmean(places)) for key, places in found.items()}


def _answer(label: str, rows: list[dict[str, Any]]) -> float:
    end = max(row["step"] for row in rows)
    if label == "fts":
        sent = [row["x"][0] for row in rows if row["origin"] == "federated" and row["step"] > end / 2]
        return float(np.mean(sent)) if sent else np.nan
    last = [row for row in rows if row["step"] == end]
    return float(np.average([row["x"][0] for row in last], weights=[row["pulls"] for row in last]))


def centres(study: fedbo.Study, replicate: int) -> Array:
    """Give the agents' optima `(agents,)`."""
    federation, world = study.federation(), Streams(study.study.seed, replicate)
    return np.array([objective_of(federation, agent, world).centre[0] for agent in range(federation.n_agents)])  # type: ignore[attr-defined]


def interval(values: list[float]) -> str:
    """Write a mean with half the width of its 95 % interval (Student's t)."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.4f} ± {half:.4f}"


def shown(document: dict[str, Any]) -> None:
    """Carry one study out, also with nobody missing, and print a line for each algorithm and cell."""
    never = {**document, "group": [{**document["group"][0], "availability": {"model": "always"}}], "sweep": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, one in (("all are there", never), ("30 % are seldom there", document)):
            result = fedbo.run(one, out=Path(folder) / name)
            bias = defaultdict[tuple[str, int], list[float]](list)
            for (label, cell, replicate), found in answers(result).items():
                bias[label, cell].append(found - float(centres(result.study, replicate).mean()))
            for (label, cell), values in bias.items():
                who = "" if one is never else ", those with the largest optima" if cell else ", any"
                print(f"{label:17s} {name + who:52s} bias {interval(values)}", flush=True)


def main() -> None:
    """Print the bias of each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=20)
    given = parser.parse_args()
    for document in studies(given.replicates):
        shown(document)


if __name__ == "__main__":
    main()
