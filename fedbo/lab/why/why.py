"""Why did a run end as it did: begins, continues and repeats answers in their directories."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.manifest import STUDY, write_manifest
from fedbo.call_arguments import display_of, folder_of, named_in_python, new_folder_of
from fedbo.execution.directory import discard_parts, gather, new_directory, new_manifest
from fedbo.execution.progress import Progress
from fedbo.lab.why.branches import JOURNAL
from fedbo.lab.why.inquiry import Inquiry
from fedbo.lab.why.question import Question, askable, without_budget
from fedbo.lab.why.result import Why
from fedbo.lab.why.room import ANSWER
from fedbo.settings import arguments as checks
from fedbo.settings.arguments import wrong
from fedbo.settings.errors import ArgumentError
from fedbo.settings.shown import quoted
from fedbo.study.paths import PRIVATE, DirectoryError, locked, make_folder


def why(
    directory: str | Path,
    end: str = "",
    *,
    algorithm: str | None = None,
    replicate: int | None = None,
    cell: int = 0,
    level: float | None = None,
    budget: int = 150,
    rows: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    trust: bool = False,
) -> Why:
    """Ask when the bad end of a finished run was decided, and which luck it was; branches repeat it with other draws.

    - `end`: the bad end, such as "regret > 0.1", "time to level > 40", "agent 3 last" or "stuck"; empty for the spread alone.
    - `replicate`: the run to ask, by default the first that ended so; for the spread, all of them.
    - `level`: that of "time to level", by default the final value of the first algorithm.
    - `budget`: the branches to spend on a bad end.
    - `rows`: those of the design for the shares of the spread, by default 64, or 0 with an `end`.
    - `out`: a new directory, by default one in the folder `why` of the run. The same question with a larger budget goes on.

    Raises ValueError with the reason where a run cannot be asked, or none ended so; else the errors of `run`.
    """
    with named_in_python():
        question = Question(end=end, algorithm=algorithm, replicate=replicate, cell=cell, level=level, budget=budget, rows=rows)
        folder, place = folder_of("directory", directory), new_folder_of(out)
        for name, value in {"replicate": replicate, "rows": rows, "cell": cell, "budget": budget}.items():
            if value is not None:
                checks.whole(name, value)
        if level is not None:
            checks.number("level", level)
        return why_run(folder, question, place, display_of(progress), checks.flag("trust", trust))


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
    if (place / ANSWER.begun).is_file():
        before = unseal(place / ANSWER.begun)
        if without_budget(before) != without_budget(asked):
            raise DirectoryError(f"'{place}': contains another question; choose another directory with --out")
    elif place.is_dir() and any(place.iterdir()):
        raise DirectoryError(f"'{place}' exists and is not an empty directory; choose a new one")
    make_folder(place, PRIVATE)
    with locked(place):
        (place / ANSWER.file).unlink(missing_ok=True)
        atomic.write_text(place / ANSWER.begun, seal(asked, indent=2))
    return resume_why(place, progress, trust)


def resume_why(place: Path, progress: Progress | None = None, trust: bool = True) -> Why:
    """Continue to ask after an interruption; branches that have ended are not run again."""
    asked = unseal(place / ANSWER.begun)
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
    if not (place / ANSWER.begun).is_file():
        answers = place / "why"
        remedy = f"pass one of the folders in {quoted(answers)}" if answers.is_dir() else "ask first: fedbo why RUN"
        raise DirectoryError(f"'{place}': is not an answer of fedbo why: it has no {ANSWER.begun}; {remedy}")
    asked = unseal(place / ANSWER.begun)
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
