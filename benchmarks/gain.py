"""The possible gain of federation on each task of a suite, without any federated method; prints Markdown.

Each agent's best point, the best point for all, a random point and the likeness of agents come from evaluations alone. Runs of
`random` and `gp_ei` show how far an agent gets alone. Run it again to continue after an interruption.

    python benchmarks/gain.py --suite tuning --replicates 2 --out gain
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fedbo
from fedbo.analysis.averages import replicate_means
from fedbo.analysis.grouping import grouped
from fedbo.analysis.result import Result
from fedbo.execution.directory import unfinished
from fedbo.lab.benchmarking.suites import SUITES, SuiteTask
from fedbo.lab.worth.gain import estimate_gain
from fedbo.study.study import Study, load_study

HEADINGS = (
    ("task", "agents", "random", "best common", "own best", "alike", "random search, end")
    + tuple(f"alone after {share}" for share in ("an eighth", "a half", "all"))
    + ("own evaluations until as good as the common point",)
)


def study_of(task: SuiteTask, replicates: int) -> Study:
    """Make the study of a task in which every agent is alone."""
    document = {
        "study": {"name": task.name, "seed": 1, "replicates": replicates},
        "algorithm": [{"name": "random"}, {"name": "gp_ei"}],
        "hosting": {"kind": "inline", "workers": 0},
        **task.tables(),
    }
    return load_study(document)


def line(task: SuiteTask, study: Study, result: Result, points: int) -> str:
    """Write the row of a task."""
    gain, metric = estimate_gain(study, points), result.metric()
    last = task.iterations
    found = grouped(result.traces, lambda trace: trace.algorithm)
    means = {
        label: np.mean(list(replicate_means(mine, "iteration", np.arange(last + 1.0)).values()), axis=0)
        for label, mine in found.items()
    }
    alone = means["gp_ei"]
    values = (gain.random, gain.common, gain.own)
    ends = (means["random"][-1], alone[last // 8], alone[last // 2], alone[-1])
    reached = np.flatnonzero(alone >= gain.common)
    cells = [f"`{task.name}`", str(gain.targets), *(f"{float(metric.native(value)):.4g}" for value in values)]
    cells += [f"{gain.alike:.2f} ({gain.least:.2f} to {gain.most:.2f})"]
    cells += [f"{float(metric.native(value)):.4g}" for value in ends]
    return f"| {' | '.join([*cells, str(task.initial + int(reached[0])) if len(reached) else f'> {task.initial + last}'])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="tuning")
    parser.add_argument("--replicates", type=int, default=2)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--out", type=Path, default=Path("gain"))
    given = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for task in SUITES[given.suite].tasks:
        study, out = study_of(task, given.replicates), given.out / task.name
        if (out / "observations.parquet").is_file():
            result = fedbo.Result.open(out)
        else:
            result = fedbo.resume(out) if unfinished(out) else fedbo.run(study, out=out)
        print(line(task, study, result, given.points), flush=True)


if __name__ == "__main__":
    main()
