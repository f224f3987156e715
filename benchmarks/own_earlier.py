"""What an agent's own earlier evaluations are worth on the held-out landmine fields, where they are of the very same function.

    python benchmarks/own_earlier.py [--replicates 3] [--out own_earlier]

Every field makes 50 evaluations by `ts`. Then 14 fields begin again: as newcomers without them (`gp_ei`), as newcomers who get
the messages of the others (`fed_prior`), and with them as a warm start (`gp_ei`), whose best counts from the start. The first
row is the best of the 50 with nothing evaluated. Errors are means over fields and replicates; differences have 95 % intervals
over the fields. Run it again to continue after an interruption.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from kernels import result_of

from fedbo.analysis.result import Result
from fedbo.study.study import load_study

Array = npt.NDArray[np.float64]
FIELDS, EARLIER, INITIAL = range(15, 29), 50, 3
TIMES = (0, 1, 2, 5, 10)


def run(name: str, out: Path, replicates: int, iterations: int, **tables: Any) -> Result:
    """Run a study of the landmine fields, or open it."""
    document = {
        "study": {"name": name, "seed": 4711, "replicates": replicates},
        "objective": {"name": "landmine"},
        "budget": {"iterations": iterations},
        "hosting": {"kind": "inline", "workers": 0},
        **tables,
    }
    return result_of(load_study(document), out / name)


def errors(result: Result, algorithm: str, times: Array) -> Array:
    """Return the least error `(fields, replicates, times)` of an algorithm."""
    rows = {
        (trace.agent, trace.replicate): result.metric().native(trace.at("iteration", times))
        for trace in result.traces
        if trace.algorithm == algorithm and trace.agent in FIELDS
    }
    replicates = result.study.study.replicates
    return np.array([[rows[agent, replicate] for replicate in range(replicates)] for agent in FIELDS])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("own_earlier"))
    given = parser.parse_args()
    first = {"initial": INITIAL}
    earlier = run("earlier", given.out, given.replicates, EARLIER - INITIAL, agents=first, algorithm=[{"name": "ts"}])
    again = {"initial": INITIAL, "targets": [*FIELDS]}
    history = {"run": str(earlier.directory.resolve())}
    newcomers = [{"name": "gp_ei"}, {"name": "fed_prior", "every": 0}]
    last = TIMES[-1]
    new = run("newcomers", given.out, given.replicates, last, agents={**again, "history": history}, algorithm=newcomers)
    warm = run(
        "warm",
        given.out,
        given.replicates,
        last,
        agents={**again, "history": {**history, "warm_start": True}},
        algorithm=[{"name": "gp_ei"}],
    )
    times = np.array(TIMES, dtype=np.float64)
    own = np.repeat(errors(earlier, "ts", np.array([EARLIER - INITIAL + 0.0])), len(times), axis=2)
    rows = {
        "own earlier best, nothing evaluated": own,
        "`gp_ei` with its own earlier evaluations": np.minimum(own, errors(warm, "gp_ei", times)),
        "`fed_prior`, a newcomer": errors(new, "fed_prior", times),
        "`gp_ei`, a newcomer": errors(new, "gp_ei", times),
    }
    print(f"| error | {' | '.join(f't = {time}' for time in TIMES)} |\n|---|{'---|' * len(TIMES)}")
    for name, found in rows.items():
        print(f"| {name} | {' | '.join(f'{mean:.3f}' for mean in found.mean(axis=(0, 1)))} |")
    gaps = (rows["`fed_prior`, a newcomer"] - own).mean(axis=1)
    half = scipy.special.stdtrit(len(gaps) - 1, 0.975) * gaps.std(axis=0, ddof=1) / len(gaps) ** 0.5
    cells = [f"{mean:+.3f} ± {width:.3f}" for mean, width in zip(gaps.mean(axis=0), half, strict=True)]
    print(f"| `fed_prior` minus the own earlier best | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
