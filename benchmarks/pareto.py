"""Federated methods with limits or several objectives: the tasks of the suite `pareto`, minus local methods and controls.

    python benchmarks/pareto.py --out FOLDER [--part plain earlier private] [--tasks bnh mlp] [--replicates 10]

Three parts, each behind a barrier with 3 initial points and 30 decisions, on tasks of at most `--agents` agents: without
earlier tasks; with an earlier task of 20 evaluations that each agent has made alone, of which its first message tells; and
private forms with 20 agents, at the epsilon that is printed. `compressors` is left out: it measures seconds on the present
machine.

It prints values, and shares of an agent's range and paired differences as `benchmarks/methods.py` does, but over all pairs of
task and replicate. The indicator is the best feasible value, the worst one of any method before there is one, or the
hypervolume. All parts and tasks run on one replicate after another, each into a folder of its own: stop at any time, and give
the same command to continue. `--table` runs nothing, and prints what is there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from methods import EARLY, Task, differences_table, task_of

from fedbo.execution.again import has_ended, run_again
from fedbo.lab.benchmarking.suites import SUITES
from fedbo.study.study import Study, load_study

TASKS = ("gardner", "hernandez-lobato", "mystery", "bnh", "dtlz2", "mlp", "fcnet", "nas", "lcbench")
TABLES = ("mlp", "fcnet", "nas")
KINDS = ("native", "share")
ITERATIONS, EARLIER, MANY = 30, 20, 20
LOCAL: list[dict[str, Any]] = [{"name": name} for name in ("random", "ts", "gp_ei")]
FEDERATED: list[dict[str, Any]] = [
    {"name": "fts"},
    {"name": "fts_noise"},
    {"name": "fed_prior", "every": 1},
    {"name": "fed_prior_alone"},
    {"name": "fed_prior_noise", "every": 1},
]
METHODS = {
    "plain": [*LOCAL, *FEDERATED, {"name": "share_best", "every": 1}],
    "earlier": [*LOCAL[1:], *FEDERATED],
    "private": [LOCAL[1], *({"name": name, "every": 5, "noise_multiplier": 0.79} for name in ("dp_fts_de", "dp_fts_de_noise"))],
}


def study_of(part: str, name: str, seed: int, agents: int) -> Study:
    """Return the study of a part on a task."""
    tables = SUITES["pareto"].task(name).tables()
    if name not in ("fcnet", "nas"):
        tables["objective"]["agents"] = MANY if part == "private" else agents
    if part == "earlier":
        tables["agents"]["history"] = {"algorithm": "ts", "observations": EARLIER, "initial": 3}
    return load_study(
        {
            **tables,
            "study": {"name": f"{name}, {part}", "seed": seed, "replicates": 1},
            "budget": {"iterations": ITERATIONS},
            "exchange": {"mode": "barrier"},
            "hosting": {"kind": "inline", "workers": 0},
            "algorithm": METHODS[part],
        }
    )


def joined(tasks: Sequence[Task]) -> Task:
    """Return the runs of a task with different seeds as one, whose replicates they are."""
    one = tasks[0]
    native, share = (
        {each: np.concatenate([getattr(task, kind)[each] for task in tasks]) for each in one.share} for kind in KINDS
    )
    sent = {each: float(np.mean([task.sent[each] for task in tasks])) for each in one.sent}
    return Task(one.result, one.axis, one.at, native, share, sent)


def over_all(tasks: Sequence[Task]) -> Task:
    """Return different tasks as one, whose replicates are the pairs of task and replicate."""
    one = tasks[0]
    share = {each: np.concatenate([task.share[each].mean(axis=1, keepdims=True) for task in tasks]) for each in one.share}
    return Task(one.result, one.axis, one.at, {}, share, {})


def print_part(part: str, runs: dict[tuple[str, str], list[Task]]) -> None:
    """Print the tables of a part: values of each task early and late, then shares and differences of all tasks."""
    tasks = {name: joined(found) for (of, name), found in runs.items() if of == part}
    if not tasks:
        return
    whole = over_all(list(tasks.values()))
    labels, counts = list(whole.share), sorted({len(found) for (of, _), found in runs.items() if of == part})
    print(f"## {part}: {len(tasks)} tasks, replicates: {', '.join(map(str, counts))}\n")
    for place in (EARLY.index(5), len(EARLY)):
        print(f"| t = {whole.at[place]:.0f} |{''.join(f' `{each}` |' for each in labels)}\n|---|{'---|' * len(labels)}")
        for name, task in tasks.items():
            metric = task.result.metric()
            cells = "".join(f" {float(metric.native(task.native[each][..., place].mean())):.4g} |" for each in labels)
            print(f"| {name}, {len(task.result.study.targets)} agents; {metric.name} |{cells}")
        print()
    print(f"| per cent of the range | {' | '.join(f't = {at:.0f}' for at in whole.at)} | sent by an agent |")
    print(f"|---|{'---|' * (len(whole.at) + 1)}")
    for each in labels:
        cells = "".join(f" {100 * share:.1f} |" for share in whole.share[each].mean(axis=(0, 1)))
        print(f"| `{each}` |{cells} {np.mean([task.sent[each] for task in tasks.values()]) / 1024.0:.1f} KiB |")
    if len(next(iter(whole.share.values()))) > 1:
        print(f"\n{differences_table(whole)}\n")
    if part == "private":
        traces = [trace for task in tasks.values() for trace in task.result.traces]
        print(f"Epsilon of the first replicates: at most {max(float(trace.spent[-1]) for trace in traces):.2f}.\n")


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    runs: dict[tuple[str, str], list[Task]] = {}
    each = product(range(1, given.replicates + 1), given.part, given.tasks)
    for seed, part, name in each:
        if part == "private" and name in TABLES:
            continue  # too few data sets for 20 agents
        study, folder = study_of(part, name, seed, given.agents), given.out / part / f"{name}-{seed}"
        if not given.table or has_ended(folder, study):
            runs.setdefault((part, name), []).append(task_of(run_again(study, folder)))
    for part in given.part:
        print_part(part, runs)


if __name__ == "__main__":
    main()
