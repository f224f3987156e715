"""`gp_ei` by its use of costs, where evaluations differ in cost: regret at equal cost, and cost-adjusted regret; Markdown.

    python benchmarks/costs.py --replicates 8 --out costs [--tasks kernels lcbench xgboost]

Each agent is alone. One unit of cost is the median cost of a random point for the agent; costs are those after three random
points, the same for all. The cost-adjusted regret is the regret plus `price` times the cost (Xie et al. 2025). Run it again to
continue after an interruption.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
from kernels import result_of

from fedbo.analysis.result import Result
from fedbo.analysis.summary import holm
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_spaces.typed import lattice_of
from fedbo.study.study import Study, load_study

Array = npt.NDArray[np.float64]
INITIAL, POINTS = 3, 200  # random points of each agent whose median cost is the unit


class Task(NamedTuple):
    """An objective, and what one second is worth in its values."""

    objective: dict[str, Any]
    price: float


TASKS = {
    "kernels": Task({"name": "gpu_kernels", "kernel": "convolution"}, 1e-3),
    "lcbench": Task({"name": "lcbench", "part": "held_out", "agents": 4}, 1e-5),
    "xgboost": Task({"name": "xgboost_tasks", "part": "held_out", "agents": 4}, 1e-5),
}
METHODS = ("ignored", "per_cost", "pbgi")


def study_of(task: Task, cost: str, replicates: int, iterations: int) -> Study:
    """Make the study of a use of costs."""
    return load_study(
        {
            "study": {"name": f"costs-{task.objective['name']}", "seed": 2, "replicates": replicates},
            "objective": task.objective,
            "agents": {"initial": INITIAL},
            "budget": {"iterations": iterations},
            "timing": {"evaluation": {"model": "cost"}},
            "algorithm": [{"name": "gp_ei", "cost": cost, "price": task.price, "label": cost}],
            "hosting": {"kind": "inline", "workers": 0},
        }
    )


def units(study: Study) -> Array:
    """Return the median cost of a random point for each agent `(N,)`."""
    federation, rng = study.federation(), np.random.default_rng(0)
    lattice, u = lattice_of(federation), rng.random((POINTS, len(federation.parameters)))
    x = from_unit(federation.parameters, lattice.project(u) if lattice else u)
    objectives: list[Any] = [federation.objective(agent, rng, rng) for agent in range(federation.n_agents)]
    return np.array([np.median([objective.cost(one) for one in x]) for objective in objectives])


def regrets(study: Study, result: Result, unit: Array, multiples: Array, counts: Array) -> tuple[Array, Array]:
    """Return the regret `(replicates, agents, places)` at multiples of an agent's unit, and that adjusted by cost at counts."""
    federation = study.federation()
    best = [federation.objective(agent, None, None).best_value for agent in range(federation.n_agents)]
    price: Any = study.algorithm[0].model_dump()["price"]
    shape = study.study.replicates, federation.n_agents
    equal, adjusted = np.full((*shape, len(multiples)), np.nan), np.full((*shape, len(counts)), np.nan)
    for trace in result.traces:
        place = trace.replicate, trace.agent
        worst, before = float(np.nanmin(trace.score)), trace.used[INITIAL - 1]
        values = trace.at("cost", before + multiples * unit[trace.agent])
        equal[place] = best[trace.agent] - np.where(np.isnan(values), worst, values)
        values, spent = trace.at("evaluations", counts), trace.used[counts.astype(int) - 1] - before
        adjusted[place] = best[trace.agent] - np.where(np.isnan(values), worst, values) + price * spent
    return equal, adjusted


def rows(found: dict[str, Array], places: Array) -> list[str]:
    """Write the mean at each place, and Wilcoxon's p against `ignored` at the last one, with Holm's correction."""
    chances = []
    for name in METHODS[1:]:
        apart = (found[name] - found["ignored"])[:, :, -1].mean(axis=1)
        chances.append(float(scipy.stats.wilcoxon(apart).pvalue) if apart.any() else 1.0)
    corrected = dict(zip(METHODS[1:], holm(chances), strict=True))
    lines = [f"| `cost` | {' | '.join(f'{place:g}' for place in places)} | p, last |", f"|{'---|' * (len(places) + 2)}"]
    for name, regret in found.items():
        cells = [f"{one:.4f}" for one in regret.mean(axis=(0, 1))]
        lines.append(f'| `"{name}"` | {" | ".join(cells)} | {f"{corrected[name]:.3f}" if name in corrected else ""} |')
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--multiples", nargs="+", type=float, default=[2.0, 4.0, 8.0, 16.0])
    parser.add_argument("--out", type=Path, default=Path("costs"))
    given = parser.parse_args()
    for name in given.tasks:
        task, multiples = TASKS[name], np.array(given.multiples)
        last = float(INITIAL) + given.iterations
        counts = np.unique(np.minimum([5.0, 10.0, last], last))
        equal, adjusted, unit = {}, {}, np.empty(0)
        for cost in METHODS:
            study = study_of(task, cost, given.replicates, given.iterations)
            unit = unit if len(unit) else units(study)
            result = result_of(study, given.out / name / cost)
            equal[cost], adjusted[cost] = regrets(study, result, unit, multiples, counts)
        print(f"\n### {name}: regret at so many median costs of a random point\n")
        print("\n".join(rows(equal, multiples)))
        print(f"\n### {name}: cost-adjusted regret after so many evaluations, price {task.price:g}\n")
        print("\n".join(rows(adjusted, counts)), flush=True)


if __name__ == "__main__":
    main()
