"""The figures of Krishnamoorthy's text for both of its toy problems: local objectives, iterates, residuals, price.

Run `python benchmarks/admm_figure.py consensus.png --problem consensus`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from admm import Trace, run
from matplotlib.figure import Figure

from fedbo.objectives.admm_toys import ADMMToy


def draw(toy: ADMMToy, trace: Trace, file: Path) -> None:
    """Draw one run in four panels."""
    best, (box,) = toy.joint_optimum[:, 0], toy.parameters
    figure = Figure(figsize=(9.0, 6.5), layout="constrained")
    (functions, path), (residuals, price) = figure.subplots(2, 2)
    x = np.linspace(box.low, box.high, 400)
    for agent in range(2):
        objective = toy.objective(agent, np.random.default_rng(0), np.random.default_rng(0))
        (line,) = functions.plot(x, [-objective.score(np.array([one])) for one in x], label=f"agent {agent}")
        at = trace.agreed[agent]
        functions.plot(at, [-objective.score(at)], "o", color=line.get_color())
        path.plot(trace.iterates[:, agent, 0], color=line.get_color(), label=f"agent {agent}")
        path.axhline(best[agent], color=line.get_color(), linewidth=0.8, linestyle=":")
        price.plot(trace.duals[:, agent, 0], color=line.get_color(), label=f"agent {agent}")
    rounds = [answer["round"] for answer in trace.answers]
    for row, name in enumerate(("primal", "dual")):
        values = [answer["residuals"][row] for answer in trace.answers]
        residuals.semilogy(rounds, [value if 0 < value < 1e9 else np.nan for value in values], label=name)
    functions.set(xlabel="x", ylabel="value", title="local objectives, and what was agreed on", ylim=(-3, 10))
    path.set(xlabel="round", ylabel="x", title="iterates; dotted: joint optimum")
    residuals.set(xlabel="round", title="residuals")
    price.set(xlabel="round", title="price" if toy.problem == "allocation" else "duals")
    for axes in (functions, path, residuals, price):
        axes.legend()
    figure.savefig(file, dpi=130)


def main() -> None:
    """Run one toy problem with one seed, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--problem", choices=("consensus", "shifted", "allocation"), default="consensus")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    toy = ADMMToy(given.problem)
    name = "admm_allocation" if given.problem == "allocation" else "admm_consensus"
    draw(toy, run(toy, name, given.seed, 40, rho=2.0), given.file)


if __name__ == "__main__":
    main()
