"""Why did a run end as it did: begins, continues and repeats answers in their directories."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.manifest import STUDY, write_manifest
from fedbo.execution.directory import discard_parts, gather, new_directory, new_manifest
from fedbo.execution.progress import Progress
from fedbo.lab.why.branches import JOURNAL
from fedbo.lab.why.inquiry import Inquiry
from fedbo.lab.why.question import Question, askable, without_budget
from fedbo.lab.why.result import ASKED, WHY, Why
from fedbo.settings.arguments import wrong
from fedbo.settings.errors import ArgumentError
from fedbo.settings.shown import quoted
from fedbo.study.lock import locked
from fedbo.study.paths import PRIVATE, DirectoryError, make_folder


def why_run(
    directory: Path, question: Question, out: Path | None = None, progress: Progress | None = None, trust: bool = False
) -> Why:
    """Ask why a finished run ended badly, in a directory that is by default within that of the run.

    A directory with the same question and another budget is continued.

    Raises:
        DirectoryError: there is no such run, or it cannot be asked.
        ArgumentError: the question is wrong, or no run ends so.
        RunError: an evaluation of a branch failed where the study ends with it.
    """
    question.check()
    askable(directory, question, trust)
    place = out or directory / "why" / question.directory_name
    asked = {"run": str(directory.resolve()), "question": question.document}
    if (place / ASKED).is_file():
        before = unseal(place / ASKED)
        if without_budget(before) != without_budget(asked):
            raise DirectoryError(f"'{place}': contains another question; choose another directory with --out")
    elif place.is_dir() and any(place.iterdir()):
        raise DirectoryError(f"'{place}' exists and is not an empty directory; choose a new one")
    make_folder(place, PRIVATE)
    with locked(place):
        (place / WHY).unlink(missing_ok=True)
        atomic.write_text(place / ASKED, seal(asked, indent=2))
    return resume_why(place, progress, trust)


def resume_why(place: Path, progress: Progress | None = None, trust: bool = True) -> Why:
    """Continue to ask after an interruption; branches that have ended are not run again."""
    asked = unseal(place / ASKED)
    directory, question = Path(asked["run"]), Question(**asked["question"])
    study, manifest = askable(directory, question, trust)
    with locked(place):
        try:
            return Inquiry(directory, place, question, (study, manifest), progress).answer().save()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(place) from None
        except (ArgumentError, ResultError, DirectoryError):
            if not (place / JOURNAL).is_file():
                shutil.rmtree(place)
            raise


def repeat_branch(place: Path, number: int, out: Path | None = None, trust: bool = False) -> Path:
    """Run branch `number` of an answer again, into a run directory of its own; return that directory.

    DirectoryError when `place` holds no answer.
    """
    if not (place / ASKED).is_file():
        answers = place / "why"
        remedy = f"pass one of the folders in {quoted(answers)}" if answers.is_dir() else "ask first: fedbo why RUN"
        raise DirectoryError(f"'{place}': is not an answer of fedbo why: it has no {ASKED}; {remedy}")
    asked = unseal(place / ASKED)
    directory, question = Path(asked["run"]), Question(**asked["question"])
    study, manifest = askable(directory, question, trust)
    with locked(place):
        inquiry = Inquiry(directory, place, question, (study, manifest), None)
        made = list(inquiry.branches.ends)
        if not 1 <= number <= len(made):
            raise wrong("branch", number, f"must be one of the {len(made)} branches, from 1")
        target = new_directory(study, out or place / f"branch-{number:04d}")
        run, _ = inquiry.branches.carried_out(made[number - 1], target / "parts")
        atomic.write_text(target / STUDY, study.to_toml())
        files = gather(study, target, [run.key])
        noted = {"forked": {"branch": number, "at": made[number - 1].time}, "complete_runs": list[Any]()}
        kept = {"status": "complete", "error": None, "files": files, "best_values": manifest.get("best_values", {})}
        write_manifest(target, new_manifest(study) | kept | noted)
        discard_parts(target)
        inquiry.branches.discard_trunks()
    return target
