"""Hunts for worlds in which twelve claims of README and docs about methods fail: `python benchmarks/hunts.py FOLDER`.

Prints the table of `plugins/hunt/README.md`: the worlds and trials of the guided search and of random search until they were
clear or at an end, and the lines of the reported world before and after it was shrunk. A hunt that has ended is not repeated.
It needs the plug-ins fedbo-hunt and fedbo-rivals.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from fedbo_hunt.claims import parse_claim
from fedbo_hunt.hunt import hunt_world, question_of
from fedbo_hunt.result import Hunt
from fedbo_hunt.search import WorldSearch
from fedbo_hunt.trials import SEARCH, WorldTrials
from fedbo_hunt.worlds import Worlds

OWN = {"refit": 1000}
FTS = {"name": "fts", "every": 1, "features": 12, "own": {**OWN, "features": 12}}
ALONE = {"name": "ts", **OWN, "features": 12}
QUADRATIC = {"name": "quadratic", "agents": 3, "spread": 0.1}
ALL = "timing,availability,fault,exchange,agents"


class Hunted(NamedTuple):
    """A claim, the page that makes it, the tables to vary, its methods, and the rest of the study."""

    claim: str
    page: str
    vary: str
    methods: list[dict[str, Any]]
    rest: dict[str, Any] = {}

    @property
    def study(self) -> dict[str, Any]:
        """Return the study."""
        tables: dict[str, Any] = {"objective": QUADRATIC, "budget": {"iterations": 3}, **self.rest}
        return {"study": {"name": "hunt"}, **tables, "algorithm": self.methods}


LATE = {"exchange": {"mode": "immediate", "staleness": {"bound": 2}}}
PRIVATE = {"name": "dp_fts_de", "features": 12, "own": {**OWN, "features": 12}}
LIED_TO = {"name": "fed_prior", "points": 9}
HUNTS = (
    Hunted("fts ends", "disruptions.md", ALL, [FTS]),
    Hunted(
        "evaluations of random is at most 15",
        "studies.md",
        "availability,fault",
        [{"name": "random"}],
        {"agents": {"initial": 2}},
    ),
    Hunted(
        "end of random is at most 8",
        "studies.md",
        "timing,fault,availability",
        [{"name": "random"}],
        {"budget": {"iterations": 3, "time": 8.0}},
    ),
    Hunted("staleness of fts is at most 2", "disruptions.md", "timing,availability,fault", [FTS], LATE),
    Hunted(
        "random has the same results as again", "studies.md", ALL, [{"name": "random"}, {"name": "random", "label": "again"}]
    ),
    Hunted(
        "bytes of fts is not above that of rgpe",
        "methods.md",
        "timing,fault,exchange",
        [FTS, {"name": "rgpe", "features": 12, "samples": 10, "own": OWN}],
    ),
    Hunted(
        "gp_ei is not worse than random by 0.02", "methods.md", "fault,agents", [{"name": "gp_ei", **OWN}, {"name": "random"}]
    ),
    Hunted("fts is not worse than ts by 0.05", "README.md", "timing,fault,exchange", [FTS, ALONE]),
    Hunted(
        "share_best is not worse than gp_ei by 0.02",
        "methods.md",
        "fault,agents",
        [{"name": "share_best", "own": OWN}, {"name": "gp_ei", **OWN}],
    ),
    Hunted(
        "median is not worse than mean by 0.02",
        "disruptions.md",
        "fault,agents,exchange",
        [{**LIED_TO, "label": "mean"}, {**LIED_TO, "label": "median", "aggregation": {"rule": "median"}}],
    ),
    Hunted(
        "epsilon of dp_fts_de is at most 3",
        "privacy.md",
        "fault,availability,agents",
        [PRIVATE],
        {"exchange": {"mode": "barrier"}, "privacy": {"epsilon_max": 3.0}},
    ),
    Hunted(
        "fed_prior is not worse than fed_prior_alone by 0.02",
        "methods.md",
        "timing,fault,exchange",
        [LIED_TO, {"name": "fed_prior_alone", "points": 9}],
    ),
)


def row(hunted: Hunted, folder: Path, worlds: int) -> str:
    """Carry one hunt out and return its row."""
    question = question_of(hunted.study, hunted.claim, hunted.vary.split(","), worlds)
    found = Hunt.open(folder) if (folder / "hunt.json").is_file() else hunt_world(question, folder)
    trials = WorldTrials(folder, parse_claim(question.claim), question.seed)
    random = WorldSearch(Worlds(question.study, question.vary, 0), trials, worlds, 0)
    random.run("random")
    guided, drawn = f"{found.worlds}, {found.trials[0]}", f"{random.count}, {trials.count(SEARCH)}"
    lines = "–"
    if (reported := found.reported) is not None:
        before = (folder / "found.toml").read_text(encoding="utf-8")
        lines = f"{len([line for line in before.splitlines() if line])}, {reported.lines}"
    verdict = "–" if reported is None else f"{reported.mean:.3g} ≥ {reported.low:.3g}, p = {reported.corrected:.2g}"
    kept = tomllib.loads(found.world) if found.broken else {}
    least = ", ".join(f"{name} {kept[name]}" for name in kept if name not in ("study", "algorithm", "objective", "budget"))
    cells = (hunted.claim, hunted.page, hunted.vary, guided, drawn, lines, verdict, least or "–")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Carry the hunts out, in order, and print a row of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--only", type=int, nargs="*", default=range(len(HUNTS)), help="numbers of claims, from 0")
    given = parser.parse_args()
    print("| claim | page | varied | guided: worlds, trials | random | lines before, after | excess | least world |")
    print("|---|---|---|---|---|---|---|---|")
    for number in given.only:
        print(row(HUNTS[number], given.folder / f"{number:02d}", given.worlds), flush=True)


if __name__ == "__main__":
    main()
