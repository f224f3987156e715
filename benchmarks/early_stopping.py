"""Early stopping against virtual time: how soon each method reaches the final level of `ts` without stopping.

    python benchmarks/early_stopping.py [--objective '{"name": "learning_curves"}'] [--agents 5] [--replicates 10] [--time 20]

A whole evaluation takes one unit of time, or with `--costs` the objective's cost, relative to its mean over random points of
the same agent. The level of a replicate is the final value of `ts` without `[stopping]`: the mean over agents of the best
observed value, at any fidelity. `--optuna` adds Optuna's random and TPE samplers, each agent alone, with and without its
successive halving.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import fedbo
from fedbo.algorithms.catalog import algorithms
from fedbo.execution.directory import unfinished
from fedbo.objectives.space import from_unit
from fedbo.study.study import load_study

TS = {"features": 50, "refit": 20}
METHODS: list[dict[str, Any]] = [
    {"name": "random"},
    {"name": "ts", "surrogate": "features", **TS},
    {"name": "fts", "every": 1, "features": 50, "own": {"surrogate": "features", **TS}},
]
STOPPERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "asha": {"kind": "asha"},
    "asha, promote": {"kind": "asha", "variant": "promote"},
    "hyperband": {"kind": "hyperband"},
    "median": {"kind": "median", "grace": 3, "interval": 3},
}
GRID = 400
COST_POINTS = 512


def method(name: str) -> dict[str, Any]:
    """Give the table of a method by its name, which sends after every iteration where it can."""
    return {"name": name} | ({"every": 1} if "every" in algorithms()[name].free() else {})


def objectives_of(federation: Any) -> list[Any]:
    """Build all objectives of a federation that no replicate changes."""
    rng = np.random.default_rng(0)
    return [federation.objective(agent, rng, rng) for agent in range(federation.n_agents)]


def mean_costs(federation: Any) -> list[float]:
    """Give the mean cost of a random point for each agent."""
    u = np.random.default_rng(1).random((COST_POINTS, len(federation.parameters)))
    points = from_unit(federation.parameters, np.array([federation.lattice.project(x) for x in u]))
    return [float(np.mean([one.cost(x) for x in points])) for one in objectives_of(federation)]


def in_time(finished: np.ndarray, value: np.ndarray, end: float, worst: float) -> np.ndarray:
    """Give the best value by each time of a grid, `worst` before the first."""
    if not len(value):
        return np.full(GRID, worst)
    order = np.argsort(finished, kind="stable")
    best = np.maximum.accumulate(value[order])
    place = np.searchsorted(finished[order], np.linspace(0.0, end, GRID + 1)[1:], side="right") - 1
    return np.where(place >= 0, best[np.maximum(place, 0)], worst)


def curves(directory: Path, end: float) -> dict[tuple[str, int], np.ndarray]:
    """Give for each method and replicate the mean over agents of the best value by each time of a grid."""
    table = pq.read_table(directory / "observations.parquet").to_pydict()
    label, agent, replicate = np.array(table["algorithm"]), np.array(table["agent"]), np.array(table["replicate"])
    value, finished = np.array(table["value"]), np.array(table["finished"])
    found = dict[tuple[str, int], np.ndarray]()
    for key in {(str(name), int(number)) for name, number in zip(label, replicate, strict=True)}:
        mine = (label == key[0]) & (replicate == key[1])
        each = []
        for one in np.unique(agent):
            own = mine & (agent == one)
            each.append(in_time(finished[own], value[own], end, value[agent == one].min()))
        found[key] = np.mean(each, axis=0)
    return found


def study_of(stopper: str, given: argparse.Namespace) -> dict[str, Any]:
    """Describe the study of a stopper."""
    study: dict[str, Any] = {
        "study": {"name": stopper, "replicates": given.replicates, "seed": 1},
        "objective": {**given.objective, "agents": given.agents},
        "budget": {"iterations": given.iterations, "time": given.time},
        "algorithm": [method(name) for name in given.methods] or METHODS,
    }
    if STOPPERS[stopper] is not None:
        study["stopping"] = STOPPERS[stopper]
    if given.costs:
        costs = mean_costs(load_study(study).federation())
        study["timing"] = {"evaluation": {"model": "cost"}}
        study["group"] = [
            {"name": f"agent {agent}", "agents": [agent], "speed": {"factors": [1.0 / cost]}}
            for agent, cost in enumerate(costs)
        ]
    return study


def by_optuna(given: argparse.Namespace) -> dict[tuple[str, str], list[np.ndarray]]:
    """Let Optuna tune every agent alone in the same time, with its successive halving and without."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    federation = load_study(study_of("none", given)).federation()
    objectives, costs = objectives_of(federation), mean_costs(federation)
    found = dict[tuple[str, str], list[np.ndarray]]()
    for sampler, made in (("Optuna random", optuna.samplers.RandomSampler), ("Optuna TPE", optuna.samplers.TPESampler)):
        for pruner in ("none", "asha"):
            for replicate in range(given.replicates):
                each = []
                for agent, objective in enumerate(objectives):
                    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
                    study = optuna.create_study(
                        direction="maximize",
                        sampler=made(seed=1000 * replicate + agent),
                        pruner=halving if pruner == "asha" else optuna.pruners.NopPruner(),
                    )
                    each.append(_alone(study, federation, objective, (costs[agent], given.time)))
                found.setdefault((sampler, pruner), []).append(np.mean(each, axis=0))
    return found


def _alone(study: Any, federation: Any, objective: Any, times: tuple[float, float]) -> np.ndarray:
    """Let one Optuna study run to the end of the time; an epoch costs its share of the whole, in units of the mean cost."""
    import optuna

    (unit, end), axis, now = times, federation.fidelity, 0.0
    finished, values = list[float](), list[float]()
    distributions = {
        p.name: optuna.distributions.IntDistribution(int(p.low), int(p.high), log=p.log)
        if p.whole
        else optuna.distributions.FloatDistribution(p.low, p.high, log=p.log)
        for p in federation.parameters
    }
    rungs = [3**power for power in range(10) if 3**power < axis.largest] + [axis.largest]
    while now < end:
        trial = study.ask(distributions)
        x = np.array([float(trial.params[p.name]) for p in federation.parameters])
        whole, pruned, value, reached = objective.cost(x) / unit, False, 0.0, 0
        for reached in rungs:
            value = objective.evaluate_at(x, reached, np.random.default_rng(0))
            trial.report(value, reached)
            if reached < axis.largest and trial.should_prune():
                pruned = True
                break
        study.tell(trial, None if pruned else value, optuna.trial.TrialState.PRUNED if pruned else None)
        now += whole * reached / axis.largest
        finished.append(now)
        values.append(value)
    return in_time(np.array(finished), np.array(values), end, min(values))


def printed(found: dict[tuple[str, str], list[np.ndarray]]) -> None:
    """Print the table: final values, and the share of the time until the final level of `ts` without stopping is reached."""
    levels = [curve[-1] for curve in found["ts", "none"]]
    print("| method | stopper | final value | share of the time to the level of `ts`: median (quartiles) | reached |")
    print("|---|---|---|---|---|")
    for (name, stopper), all_curves in found.items():
        reached = [np.flatnonzero(curve >= level) for curve, level in zip(all_curves, levels, strict=True)]
        shares = np.array([(one[0] + 1) / GRID if len(one) else np.inf for one in reached])
        low, middle, high = np.quantile(shares, [0.25, 0.5, 0.75], method="nearest")
        final = np.array([curve[-1] for curve in all_curves])
        error = 1.96 * final.std(ddof=1) / np.sqrt(len(final))
        count = f"{np.isfinite(shares).sum()} of {len(shares)}"
        share = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        print(f"| `{name}` | {stopper} | {final.mean():.4f} ± {error:.4f} | {share} | {count} |")


def main() -> None:
    """Run every method with every stopper, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objective", type=json.loads, default={"name": "learning_curves"}, help="objective as JSON")
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--time", type=float, default=20.0)
    parser.add_argument("--stoppers", nargs="+", default=list(STOPPERS))
    parser.add_argument("--methods", nargs="*", default=[], help="names of methods; default: some with few features")
    parser.add_argument("--costs", action="store_true", help="use the objective's costs as durations")
    parser.add_argument("--optuna", action="store_true", help="also run Optuna's successive halving")
    parser.add_argument("--out", type=Path, default=None, help="folder for runs; finished runs are not repeated")
    given = parser.parse_args()
    found = dict[tuple[str, str], list[np.ndarray]]()
    with tempfile.TemporaryDirectory() as name:
        for stopper in given.stoppers:
            out = (given.out or Path(name)) / stopper.replace(", ", "-")
            if not (out / "observations.parquet").is_file():
                fedbo.resume(out) if unfinished(out) else fedbo.run(study_of(stopper, given), out=out)
            for (label, _), curve in sorted(curves(out, given.time).items()):
                found.setdefault((label, stopper), []).append(curve)
    if ("ts", "none") in found:
        printed(found | (by_optuna(given) if given.optuna else {}))


if __name__ == "__main__":
    main()
