"""Questions about a run, and the runs that can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.analysis.manifest import read_manifest
from fedbo.lab.fork.fork import repeatable_study
from fedbo.lab.why.ends import STUCK, parse_end
from fedbo.lab.why.shares import ENOUGH
from fedbo.settings.arguments import wrong
from fedbo.settings.shown import quoted
from fedbo.study.paths import DirectoryError
from fedbo.study.study import Study

BUDGET = 150
_LEAST = 40  # branches below which neither the moments nor the sources would say anything
_SIGNS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a run: the bad end in words, or empty for the spread alone, and the branches to spend on it.

    `rows` are those of the design for the shares, each of which takes a branch for each source and two more.
    """

    end: str = ""
    algorithm: str | None = None
    replicate: int | None = None
    cell: int = 0
    level: float | None = None
    budget: int = BUDGET
    rows: int | None = None

    @property
    def wanted_rows(self) -> int:
        """Return the rows, by default some if only the spread is asked for."""
        return self.rows if self.rows is not None else 0 if self.end else ENOUGH

    def check(self) -> None:
        """Check the question by itself; ArgumentError."""
        if self.end:
            parse_end(self.end)
            if self.budget < _LEAST:
                raise wrong("budget", self.budget, f"must be at least {_LEAST} branches")
        if self.rows is not None and self.rows < 0:
            raise wrong("rows", self.rows, "must be at least 0")

    @property
    def document(self) -> dict[str, Any]:
        """Return the question as plain data."""
        return {name: getattr(self, name) for name in Question.__dataclass_fields__}

    @property
    def directory_name(self) -> str:
        """Return the name of the directory of the answer."""
        words = [self.end or "spread", self.algorithm or "", f"cell {self.cell}" if self.cell else ""]
        words.append("" if self.replicate is None else f"replicate {self.replicate}")
        text = " ".join(word for word in words if word)
        for sign, name in _SIGNS.items():
            text = text.replace(sign, f" {name} ")
        return "-".join("".join(c if c.isalnum() or c in ".+-" else " " for c in text).split())


def without_budget(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what two questions must share for the branches of one to serve the other."""
    question = {name: value for name, value in asked["question"].items() if name not in ("budget", "rows")}
    return {"run": asked["run"], "question": question}


def askable(directory: Path, question: Question, trust: bool) -> tuple[Study, dict[str, Any]]:
    """Load the study of a run that can be asked; DirectoryError with the remedy for any other."""
    manifest = read_manifest(directory)
    stuck = question.end == STUCK and str(manifest.get("error", "")).startswith("EndlessError")
    study = repeatable_study(directory, trust, failed=stuck)
    if study.timing.clock == "wall" or study.has_secure_noise:
        is_real = study.timing.clock == "wall"
        reason = "ran in real time, which cannot be repeated" if is_real else "used secure noise, whose key was deleted"
        remedy = f"fit a twin in virtual time, run its study, and ask that run: fedbo twin {quoted(directory)}"
        raise DirectoryError(f"'{directory}': {reason}; {remedy}")
    return study, manifest
