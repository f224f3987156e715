"""An attack on the privacy door: a lower bound on epsilon from thousands of releases, sound and with each planted fault.

Two worlds differ in what one agent says. Each row is one mechanism, attacked by the statistic that tells the worlds apart
best; one half of the trials chooses the threshold, the other half bounds epsilon (Clopper-Pearson). The bound must stay below
what the ledger claims where the door is sound, and exceed it where a fault is planted; else the exit code is 1.

    python benchmarks/audit.py [--times 2] [--seed 1] [--only WORDS]

At --times 2 there are at least 2,000 trials in each world and half, but 600 where each is 12 releases; it takes three minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from time import perf_counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "coordinator"))

from auditing import CONFIDENCE, DELTA, FAULTY, SOUND, SUBTLE, audit  # noqa: E402


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    print(f"delta = {DELTA:g}, confidence {CONFIDENCE:g} for each line, seed {chosen.seed}")
    print(f"{'door':8s}{'case':28s}{'releases':>10s}{'claimed':>9s}{'found':>8s}  verdict")
    wrong = 0
    for sound, cases in ((True, SOUND), (False, FAULTY + SUBTLE)):
        for case in cases:
            if chosen.only not in case.name:
                continue
            begun = perf_counter()
            verdict = audit(case, chosen.seed, chosen.times)
            wrong += verdict.broken == sound
            words = "EXCEEDED" if verdict.broken else "holds"
            words += "" if verdict.broken != sound else "  <-- not as it should be"
            made = 4 * int(case.trials * chosen.times) * case.releases
            door, spent = "sound" if sound else "faulty", perf_counter() - begun
            print(
                f"{door:8s}{case.name:28s}{made:10d}{verdict.claimed:9.3f}{verdict.found:8.3f}  {words} ({spent:.0f} s)",
                flush=True,
            )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
