"""Trials of worlds: each carries out one replicate of the methods of a claim, and a ledger keeps its excess."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.storage import atomic
from fedbo.analysis.indicators import indicator_of
from fedbo.coordinator.errors import EndlessError
from fedbo.coordinator.runtime.actor import Coordinator, Run, RunSummary, WarmupRun
from fedbo.execution.directory import best_values, joined
from fedbo.execution.jobs import learnings, runs
from fedbo.lab.why.ends import EndedRun
from fedbo.study.problems import agent_goals
from fedbo.study.study import Study, load_study
from fedbo.surrogates.posterior import Diverged
from fedbo_hunt.claims import Claim

LEDGER = "ledger.jsonl"
SEARCH, VERDICT, SHRINKING, LAST = "search", "verdict", "shrinking", "last verdict"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Work:
    """The jobs of a world's study."""

    study: Study
    learnings: Sequence[WarmupRun]
    runs: Sequence[Run]

    def runs_of(self, replicate: int) -> list[Run]:
        return [run for run in self.runs if run.key.replicate == replicate]

    def learnings_of(self, replicate: int) -> list[WarmupRun]:
        history = self.runs_of(replicate)[0].task.history
        return [] if history is None else [job for job in self.learnings if job.folder == history.folder]


class WorldTrials:
    """The trials of a hunt in a folder. Each purpose has a seed of its own, so that none sees the replicates of another.

    Worlds have the same draws in the same replicate of a purpose, which cancels most of the noise of their comparison.
    """

    def __init__(self, place: Path, claim: Claim, seed: int, tell: Callable[[], None] = lambda: None) -> None:
        self.claim, self._place, self._seed, self._tell = claim, place, seed, tell
        self._coordinator = Coordinator()
        self._known: dict[tuple[str, str, int], float | None] = dict(_read(place / LEDGER))
        self._used = set[tuple[str, str, int]]()

    def seed(self, purpose: str) -> int:
        """Return the seed of the studies of a purpose."""
        return int.from_bytes(hashlib.sha256(f"{self._seed} {purpose}".encode()).digest()[:4]) >> 1

    def count(self, purpose: str) -> int:
        """Return how many trials were made for a purpose."""
        return sum(used[1] == purpose for used in self._used)

    def excesses(self, document: Document, purpose: str, count: int) -> list[float] | None:
        """Return the excess of each of the first `count` replicates of a world; None where one of them says nothing."""
        world, work, found = _digest(document), None, list[float]()
        for replicate in range(count):
            key = (world, purpose, replicate)
            if key not in self._known:
                work = work or self._work(document, purpose, count)
                self._known[key] = self._excess(work, replicate)
                _note(self._place / LEDGER, key, self._known[key])
            if key not in self._used:
                self._used.add(key)
                self._tell()
            value = self._known[key]
            if value is None:
                return None
            found.append(value)
        return found

    def study(self, document: Document, purpose: str, replicates: int) -> Study:
        """Return the checked study of a world for a purpose."""
        header = {**document.get("study", {}), "seed": self.seed(purpose), "replicates": replicates}
        return load_study({**document, "study": header}, trust=True)

    def _work(self, document: Document, purpose: str, count: int) -> _Work:
        study, parts = self.study(document, purpose, count), self._place / "parts"
        return _Work(study, learnings(study, parts), runs(study, parts))

    def _excess(self, work: _Work, replicate: int) -> float | None:
        parts = self._place / "parts"
        shutil.rmtree(parts, ignore_errors=True)  # which a kill may have left
        atomic.make_folder(parts)
        try:
            for job in work.learnings_of(replicate):
                self._coordinator.learn(job)
            ended = {run.key.algorithm: self._carried_out(work.study, run) for run in work.runs_of(replicate)}
            return self.claim.excess(ended, work.study.budget.decisions)
        except (EvaluationError, Diverged):
            return None
        finally:
            shutil.rmtree(parts, ignore_errors=True)

    def _carried_out(self, study: Study, run: Run) -> EndedRun:
        """Carry one run out in this process and return its tables."""
        run, summary = replace(run, hosts=0, isolate=False, patience=None, seconds=math.inf, events=None), None
        with suppress(EndlessError):
            summary = self._coordinator.run(run)
        whole = joined(study, run.folder, [run.key])
        goals, metric = agent_goals(study), study.federation().metric
        indicator = None if goals is None else indicator_of(goals.common)
        return EndedRun(
            key=run.key,
            observations=whole["observations"],
            events=whole["events"],
            privacy=whole.get("privacy", ()),
            metric=metric if indicator is None else indicator.metric(metric),
            best_values=best_values([summary] if isinstance(summary, RunSummary) else []),
            was_stuck=summary is None,
            indicators=() if indicator is None else (indicator,),
        )


def _digest(document: Document) -> str:
    """Return a short hash of a world, whatever its name."""
    plain = {name: table for name, table in document.items() if name != "study"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _note(ledger: Path, key: tuple[str, str, int], excess: float | None) -> None:
    file = atomic.open_log(ledger)
    try:
        atomic.append(file, (json.dumps([*key, excess]) + "\n").encode(), sync=False)
    finally:
        os.close(file)


def _read(ledger: Path) -> Iterator[tuple[tuple[str, str, int], float | None]]:
    """Read the excesses in a ledger; a line that a kill has cut off does not count."""
    if not ledger.is_file():
        return
    for line in ledger.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            world, purpose, replicate, excess = json.loads(line)
            yield (world, purpose, replicate), excess
