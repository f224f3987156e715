"""Processor time of a decision with whole numbers and categories among the parameters, compared with an earlier revision.

    python benchmarks/typed_decisions.py [REVISION] [--repeats 3] [--methods ts fts gp_ei]

One agent decides 100 times on a number, a whole number of 30 and one of three choices. Printed are mean times in milliseconds
of the decisions with 11 to 30 and with 81 to 100 observations, the least of the repetitions. Each repetition is a separate
process, in turn with those of the revision.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from against import in_process, installed

SPACE = {"x": (0.0, 1.0), "n": (1, 30), "kind": ["a", "b", "c"]}
RANGES = ((11, 30), (81, 100))


def measure(methods: list[str]) -> dict[str, list[float]]:
    """Time each method in this process: mean milliseconds in each range of observations."""
    import fedbo

    found = dict[str, list[float]]()
    for method in methods:
        spent = np.zeros(101)
        with tempfile.TemporaryDirectory() as folder:
            agent = fedbo.Agent(folder, SPACE, fedbo.Terms(method), 0)
            for seen in range(101):
                begun = time.process_time()
                (suggestion,) = agent.ask()
                spent[seen] = 1e3 * (time.process_time() - begun)
                given = suggestion.configuration
                agent.tell(suggestion.token, -((given["x"] - 0.3) ** 2) - 0.01 * (given["n"] - 10) ** 2)
        found[method] = [float(spent[first : last + 1].mean()) for first, last in RANGES]
    return found


def main() -> None:
    """Measure in turn, and print a line for each method and revision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["ts", "fts", "gp_ei"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = {"the working tree": installed(None, Path(folder) / "new")}
        if given.revision:
            targets[given.revision] = installed(given.revision, Path(folder) / "old")
        for target in targets.values():
            in_process(target, "typed_decisions", given.methods)  # which compiles
        found: dict[str, list[dict[str, list[float]]]] = {label: [] for label in targets}
        for number in range(given.repeats):
            for label in targets if number % 2 else reversed(targets):
                found[label].append(in_process(targets[label], "typed_decisions", given.methods))
    for method in given.methods:
        for label, runs in found.items():
            least = np.min([run[method] for run in runs], axis=0)
            words = ", ".join(f"{first} to {last}: {ms:5.1f} ms" for (first, last), ms in zip(RANGES, least, strict=True))
            print(f"{method:<8} {label:<18} observations {words}")


if __name__ == "__main__":
    main()
