"""Time of all decisions of a run against the number of other agents (Dai et al. 2020, Fig. 3d), without evaluations.

Every agent has its history and sends one message before the first decision. Then one target makes all decisions of the study,
on one thread. `fedbo reproduce fts --only fig3d` draws what this prints. It needs the plug-in fedbo-papers, and
fedbo-rivals for RGPE and TAF.

    python benchmarks/decision_time.py [examples/papers/fts_fig3d.toml] [--set KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fedbo.study.study import load_study
from fedbo_papers.decision_time import decisions

STUDY = Path(__file__).resolve().parents[1] / "examples" / "papers" / "fts_fig3d.toml"


def main() -> None:
    """Print one line for each algorithm in each cell: the total of all decisions, and the median and the longest one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("study", nargs="?", default=STUDY)
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    options = parser.parse_args()
    study = load_study(options.study, options.sets)
    print(f"{'others':>6}  {'algorithm':<24} {'total, s':>9} {'median, ms':>11} {'longest, ms':>12}")
    for cell in study.cells():
        others = cell.study.federation().n_agents - 1
        for table in cell.study.algorithm:
            found = np.array([decisions(cell.study, table.make(), seed) for seed in range(study.study.replicates)])
            total, median, longest = found.sum(axis=1).mean(), 1e3 * np.median(found), 1e3 * found.max()
            print(f"{others:>6}  {table.title:<24} {total:>9.3f} {median:>11.2f} {longest:>12.1f}", flush=True)


if __name__ == "__main__":
    main()
