"""Methods on the GPUs of one kernel, without earlier tasks: regret after few evaluations, for each site; prints Markdown.

A regret is the logarithm of a kernel's time over the least one. Run it again to continue after an interruption.

    python benchmarks/kernels.py convolution --replicates 5 --out kernels
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import fedbo
from fedbo.analysis.result import Result
from fedbo.analysis.summary import holm
from fedbo.analysis.traces import Axis
from fedbo.execution.directory import unfinished
from fedbo.objectives.tasks.gpu_kernels import GPUKernels
from fedbo.study.study import Study, load_study

METHODS: dict[str, dict[str, Any]] = {
    "gp_ei": {"name": "gp_ei"},
    "gp_ei_per_cost": {"name": "gp_ei", "cost": "per_cost"},
    "gp_ei_pbgi": {"name": "gp_ei", "cost": "pbgi"},
    "random": {"name": "random"},
    "share_best": {"name": "share_best", "every": 1},
    "share_best_suited": {"name": "share_best", "every": 1, "own": {"surrogate": "suited", "refit": 1}},
    "fed_prior": {"name": "fed_prior", "every": 1},
    "fed_prior_feasible": {"name": "fed_prior", "every": 1, "feasibility": True},
    "fed_prior_shuffled": {"name": "fed_prior_shuffled", "every": 1},
    "trust_best": {"name": "trust_best"},
    "trust_best_alone": {"name": "trust_best_alone"},
    "trust_best_noise": {"name": "trust_best_noise"},
    "trust_best_uniform": {"name": "trust_best_uniform"},
    "rgpe": {"name": "rgpe", "every": 1},  # of the plug-in fedbo-rivals
}


def study_of(kernel: str, method: str, replicates: int, iterations: int) -> Study:
    """Make the study of a method on a kernel: evaluations take their measured time."""
    return load_study(
        {
            "study": {"name": f"kernels-{kernel}", "seed": 1, "replicates": replicates},
            "objective": {"name": "gpu_kernels", "kernel": kernel},
            "agents": {"initial": 3},
            "budget": {"iterations": iterations},
            "timing": {"evaluation": {"model": "cost"}},
            "algorithm": [{**METHODS[method], "label": method}],
        }
    )


def result_of(study: Study, out: Path) -> Result:
    """Run a study, or open or resume the run in a folder."""
    if (out / "observations.parquet").is_file():
        return fedbo.Result.open(out)
    return fedbo.resume(out) if unfinished(out) else fedbo.run(study, out=out)


def regrets(study: Study, result: Result, axis: Axis, places: np.ndarray) -> np.ndarray:
    """Return the regret `(replicates, agents, places)` on an axis; before the first success it is the worst score known."""
    federation = study.federation()
    best = [federation.objective(agent, None, None).best_value for agent in range(federation.n_agents)]
    found = np.full((study.study.replicates, federation.n_agents, len(places)), np.nan)
    for trace in result.traces:
        values = trace.at(axis, places)
        values = np.where(np.isnan(values), np.nanmin(trace.score) if trace.begun else trace.best[-1], values)
        found[trace.replicate, trace.agent] = best[trace.agent] - values
    return found


def rows(found: dict[str, np.ndarray], after: list[int], names: tuple[str, ...], baseline: str) -> list[str]:
    """Write the table: mean regrets, those of each site after the second last number, and p-values against the baseline."""
    others, at = [label for label in found if label != baseline], after[-2] - 1
    chances = []
    for label in others:
        apart = (found[label] - found[baseline])[:, :, at].mean(axis=1)
        chances.append(float(scipy.stats.wilcoxon(apart).pvalue) if apart.any() else 1.0)
    corrected = dict(zip(others, holm(chances), strict=True))
    head = ["method", *(f"after {n}" for n in after), *(f"{name} after {at + 1}" for name in names), "p (Holm)"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for label, regret in found.items():
        cells = [f"{regret[:, :, n - 1].mean():.3f}" for n in after] + [f"{one:.3f}" for one in regret[:, :, at].mean(axis=0)]
        lines.append(f"| `{label}` | {' | '.join([*cells, f'{corrected[label]:.3f}' if label in corrected else ''])} |")
    return lines


def site_tests(found: dict[str, np.ndarray], method: str, baseline: str, at: int, names: tuple[str, ...]) -> list[str]:
    """Write a line for each site: how much a method gains over the baseline, and Wilcoxon's p-value after Holm."""
    apart = (found[baseline] - found[method])[:, :, at - 1]
    chances = [float(scipy.stats.wilcoxon(one).pvalue) if one.any() else 1.0 for one in apart.T]
    lines = zip(names, apart.T, holm(chances), strict=True)
    return [f"- {name}: {method} gains {one.mean():+.3f} (p {chance:.3f}) over {baseline}" for name, one, chance in lines]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--after", type=int, nargs="+", default=[3, 5, 8, 10, 15])
    parser.add_argument("--seconds", type=float, nargs="+", help="time in evaluations at which to compare, instead of counts")
    parser.add_argument("--out", type=Path, default=Path("kernels"))
    given = parser.parse_args()
    found, names = {}, GPUKernels(given.kernel).agent_names
    for method in given.methods:
        study = study_of(given.kernel, method, given.replicates, given.iterations)
        result = result_of(study, given.out / given.kernel / method)
        count = study.agents.initial + study.budget.decisions
        found[method] = regrets(study, result, "evaluations", np.arange(1.0, count + 1.0))
        if given.seconds:
            mean = regrets(study, result, "cost", np.array(given.seconds)).mean(axis=(0, 1))
            print(f"{method}: {', '.join(f'{one:.3f} after {x:g} s' for one, x in zip(mean, given.seconds, strict=True))}")
    print("\n".join(rows(found, given.after, names, given.methods[0])))
    for method in given.methods[1:]:
        print("\n".join(["", *site_tests(found, method, given.methods[0], given.after[-2], names)]))


if __name__ == "__main__":
    main()
