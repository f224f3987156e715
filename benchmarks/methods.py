"""Which method when: every method on every task, minus the agent alone and minus its own control, early and late.

    python benchmarks/methods.py [--replicates 10] [--tasks landmine digits ...] [--methods fts fed_prior ...] [--out FOLDER]

A task is a study of 30 iterations in which all methods have the same initial points and the same earlier task. What is compared
is the best value so far in units of the task's range, the mean over the agents of a replicate; intervals and tests are of
replicates, paired, so they speak of these agents. One table for each task is printed as Markdown, with Holm's correction over
all its tests. What an earlier call with the same folder has run is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import ttest_rel

import fedbo
from fedbo.algorithms.catalog import algorithms

Array = npt.NDArray[np.float64]
Table = dict[str, Any]
AT = (1, 3, 5, 10, 30)  # iterations
ALONE = "fed_prior_alone"
EARLIER = {"algorithm": "ts", "observations": 30, "initial": 3}


def _family(likeness: float) -> Table:
    return {"objective": {"name": "gp_family", "agents": 12, "likeness": likeness}, "agents": {"initial": 3}}


TASKS: dict[str, Table] = {
    "landmine 0 to 14": {"objective": {"name": "landmine"}, "agents": {"targets": list(range(15)), "history": EARLIER}},
    "digits": {"objective": {"name": "digits", "agents": 12}, "agents": {"initial": 3}},
    "likeness 0": _family(0.0),
    "likeness 0.5": _family(0.5),
    "likeness 0.95": _family(0.95),
    "himmelblau": {"objective": {"name": "himmelblau", "agents": 12, "family": "shift"}, "agents": {"initial": 3}},
    "hartmann 6": {"objective": {"name": "hartmann", "agents": 8, "dimensions": 6}, "agents": {"initial": 5}},
}
METHODS = ("random", "ts", "gp_ei", "fts", "fed_prior", "dp_fed_prior", "rgpe", "taf", "pooled")


def study(name: str, task: Table, methods: Sequence[str], replicates: int) -> Table:
    """Describe a task with methods and their controls; methods that speak once do so where there was an earlier task."""
    before = "history" in task["agents"]
    tables = []
    for method in methods:
        once = {"every": 0} if before and "every" in algorithms()[method].free() else {}
        tables.append({"name": method} | once | ({"every": 10} if not before and method.startswith("dp_fed_prior") else {}))
    return {
        "study": {"name": "methods", "seed": 11, "replicates": replicates},
        "budget": {"iterations": max(AT)},
        "algorithm": tables,
        "exchange": {"mode": "barrier"},
        "hosting": {"kind": "inline", "workers": 2},
    } | task


def with_controls(methods: Sequence[str]) -> list[str]:
    """List methods with the agent alone and all controls that have the method's name."""
    known = algorithms()
    controls = [f"{method}_{word}" for method in methods for word in ("noise", "shuffled") if f"{method}_{word}" in known]
    return [ALONE, *methods, *controls]


def traces(result: Any) -> dict[str, Array]:
    """Give every method's best score so far `(replicates, agents, len(AT))`, in units of the range that anybody has seen."""
    frame = result.observations.to_pandas()
    frame = frame[frame.phase != "history"].sort_values(["step", "query"], kind="stable")
    span = frame.groupby(["replicate", "agent"]).score.agg(np.ptp).to_dict()
    found: dict[str, Array] = {}
    for method, rows in frame.groupby("algorithm", sort=False):
        best = {}
        for key, own in rows.groupby(["replicate", "agent"]):
            high, step = np.maximum.accumulate(own.score.to_numpy()), own.step.to_numpy()
            best[key] = high[np.searchsorted(step, AT, side="right") - 1] / (span[key] or 1.0)
        keys = sorted(best)
        found[str(method)] = np.array([best[key] for key in keys]).reshape(len({key[0] for key in keys}), -1, len(AT))
    return found


def holm(chances: Array) -> Array:
    """Give the p values `(n,)` that Holm's procedure makes of p values `(n,)`."""
    order = np.argsort(chances)
    raised = np.maximum.accumulate(chances[order] * np.arange(len(chances), 0, -1))
    back = np.empty_like(raised)
    back[order] = np.minimum(raised, 1.0)
    return back


def compared(best: dict[str, Array], methods: Sequence[str]) -> list[tuple[str, str, Array, Array, Array]]:
    """List method, what it is compared with, mean differences, half widths of intervals and p values, each `(len(AT),)`."""
    rows = []
    for method in methods:
        for other in (ALONE, f"{method}_noise", f"{method}_shuffled"):
            if other not in best or other == method:
                continue
            ours, theirs = best[method].mean(axis=1), best[other].mean(axis=1)
            with np.errstate(all="ignore"):
                test = ttest_rel(ours, theirs)
                interval = test.confidence_interval(0.95)
            chance = np.where(np.isnan(test.pvalue), 1.0, test.pvalue)
            rows.append((method, other, (ours - theirs).mean(axis=0), (interval.high - interval.low) / 2.0, chance))
    return rows


def printed(name: str, best: dict[str, Array], methods: Sequence[str]) -> str:
    """Write the table of a task."""
    rows = compared(best, methods)
    corrected = holm(np.concatenate([row[-1] for row in rows])).reshape(-1, len(AT))
    replicates, agents, _ = best[ALONE].shape
    lines = [f"{name}: {agents} agents, {replicates} replicates; per cent of the range, positive is better", ""]
    lines += ["| | minus | " + " | ".join(f"t = {t}" for t in AT) + " |", "|---" * (len(AT) + 2) + "|"]
    for (method, other, mean, half, _), chances in zip(rows, corrected, strict=True):
        cells = [
            f"{100 * m:+.1f} ± {100 * h:.1f}{' *' if p < 0.05 else ''}" for m, h, p in zip(mean, half, chances, strict=True)
        ]
        lines.append(
            f"| `{method}` | {'alone' if other == ALONE else other.removeprefix(method + '_')} | {' | '.join(cells)} |"
        )
    return "\n".join([*lines, "", "`*`: p below .05 after Holm's correction over this table."])


def main() -> None:
    """Run what is not there yet, and print a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    folder = given.out or Path(mkdtemp())
    for name in given.tasks:
        place = folder / name.replace(" ", "_")
        described = study(name, TASKS[name], with_controls(given.methods), given.replicates)
        result = fedbo.Result.open(place) if (place / "manifest.json").exists() else fedbo.run(described, out=place)
        print(printed(name, traces(result), given.methods), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
