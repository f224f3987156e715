"""An attack on the privacy mechanism: a lower bound on epsilon from thousands of releases, with and without planted faults.

Two worlds differ in the messages of one agent. Each row is one mechanism, attacked by the statistic that separates the worlds
best. One half of the trials chooses the threshold, the other half bounds epsilon (Clopper-Pearson). The bound must stay below
the ledger's claim for a sound mechanism, and exceed it for a planted fault; otherwise the exit code is 1.

    python benchmarks/audit.py [--times 2] [--seed 1] [--only WORDS]

With --times 2 there are at least 2,000 trials in each world and half, or 600 of 12 releases each. It takes three minutes.
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
