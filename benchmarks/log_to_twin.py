"""From a log that ends early to a prediction: fit its durations, with and without what had not ended, and predict a study.

Prints Markdown. The log is drawn by a known law, so that the prediction can be compared with the truth.

    python benchmarks/log_to_twin.py --out world --figure docs/images/log_to_twin.png
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

import fedbo

AGENTS, END = 200, 15.0
TRUTH = {"model": "lognormal", "mean": 6.0, "sigma": 0.8}


def write_log(path: Path, seed: int = 1) -> None:
    """Write the evaluations that all agents began until the log ends, one after the other."""
    rng, lines = np.random.default_rng(seed), ["agent,started,finished,ended"]
    for agent in range(AGENTS):
        now = 0.0
        while now < END:
            length = float(rng.lognormal(np.log(TRUTH["mean"]) - TRUTH["sigma"] ** 2 / 2, TRUTH["sigma"]))
            lines.append(f"{agent},{now:.4f},{min(now + length, END):.4f},{int(now + length <= END)}")
            now += length
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def predicted(evaluation: dict[str, Any], out: Path) -> tuple[float, float]:
    """Return how many evaluations end in four times the length of the log, and the standard error over 20 replicates."""
    study = {
        "study": {"name": "prediction", "replicates": 20},
        "objective": {"name": "quadratic", "agents": AGENTS},
        "agents": {"initial": 1},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": evaluation},
        "budget": {"time": 4 * END},
    }
    replicate = np.asarray(fedbo.run(study, out=out).observations["replicate"])
    counts = np.bincount(replicate)
    return float(counts.mean()), float(counts.std(ddof=1) / np.sqrt(len(counts)))


def main() -> None:
    """Write the log, fit it, predict, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("world"), help="a new folder for the log, the fit and the runs")
    parser.add_argument("--figure", type=Path, help="where to copy the figure of the fit")
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    laws = {}
    for name in ("whole", "ended"):
        log = options.out / f"{name}.csv"
        write_log(log)
        if name == "ended":  # as if what had not ended were not there
            kept = [line for line in log.read_text(encoding="utf-8").splitlines() if not line.endswith(",0")]
            log.write_text("\n".join([*kept, ""]), encoding="utf-8")
        world = options.out / f"fit-{name}"
        subprocess.run([sys.executable, "-m", "fedbo", "fit", log, "--out", world], check=True, capture_output=True)
        laws[name] = tomllib.loads((world / "world.toml").read_text(encoding="utf-8"))["timing"]["evaluation"]
    if options.figure:
        shutil.copy(options.out / "fit-whole" / "durations.png", options.figure)
    print("| durations of | law | evaluations until 60 |\n|---|---|---|")
    for name, law in (("the truth", TRUTH), ("the fit", laws["whole"]), ("a fit of what had ended", laws["ended"])):
        mean, error = predicted(law, options.out / name.replace(" ", "-"))
        shown = ", ".join(f"{key} {value:.3g}" for key, value in law.items() if key != "model" and not isinstance(value, str))
        print(f"| {name} | {law['model']} {shown} | {mean:.0f} ± {error:.1f} |")


if __name__ == "__main__":
    main()
