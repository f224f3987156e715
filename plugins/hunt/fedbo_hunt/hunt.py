"""Hunts in their directories: begun, continued after an interruption, and replayed."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.analysis.manifest import read_manifest
from fedbo.call_arguments import Overrides, display_of, named_in_python, new_folder_of, overrides_of, study_of
from fedbo.execution.directory import new_folder, unfinished
from fedbo.execution.progress import Progress
from fedbo.execution.requirements import require_objectives
from fedbo.execution.runner import run_study
from fedbo.settings import arguments
from fedbo.settings.errors import ArgumentError
from fedbo.study.document import StudyError, as_document, locate, parse_override, read, with_value
from fedbo.study.files import resolve_paths
from fedbo.study.paths import PRIVATE, DirectoryError, locked, make_folder
from fedbo.study.study import load_study
from fedbo_hunt.claims import parse_claim
from fedbo_hunt.hunting import Hunting, HuntQuestion
from fedbo_hunt.result import REPLAY, Hunt
from fedbo_hunt.room import ANSWER
from fedbo_hunt.search import SEARCHES
from fedbo_hunt.trials import LEDGER
from fedbo_hunt.worlds import VARIED, check_varied

WORLDS = 64
_ELSEWHERE = ("hosting", "recovery")  # which change no result


def hunt(
    study: str | Path | Mapping[str, Any],
    claim: str,
    *,
    vary: Sequence[str] = ("timing", "availability", "fault", "exchange", "agents"),
    worlds: int = 64,
    seed: int = 0,
    search: Literal["guided", "random"] = "guided",
    overrides: Overrides = (),
    out: str | Path | None = None,
    progress: bool = False,
) -> Hunt:
    """Hunt for the smallest world in which a claim about a method fails, and test it on fresh seeds.

    - `study`: a TOML file, or a dictionary of its tables.
    - `claim`: such as "fts is not worse than ts by 0.01", "bytes of fts is at most 1e6" or "fts ends".
    - `vary`: the tables of the study that worlds draw anew; `worlds`: how many worlds to try.
    - `search`: guided by what broke so far, or all worlds drawn at random, by the `seed` of the hunt.
    - `overrides`: changes as `dotted.key=value`.
    - `out`: the directory, by default a new one under `runs/`. The same hunt in the same directory is continued.

    Raises StudyError when the study is invalid or cannot be hunted in, ArgumentError when its methods do not fit the claim,
    DirectoryError when the directory is in use, and KeyboardInterrupt after Ctrl-C.
    """
    with named_in_python():
        given, changes, place, display = study_of(study), overrides_of(overrides), new_folder_of(out), display_of(progress)
        source = given if isinstance(given, Mapping) else Path(given)
        return hunt_world(question_of(source, claim, vary, worlds, seed, search, changes), place, display)


def question_of(
    source: Path | Mapping[str, Any],
    claim: str,
    vary: Sequence[str] = VARIED,
    worlds: int = WORLDS,
    seed: int = 0,
    search: str = "guided",
    overrides: Sequence[str] = (),
) -> HuntQuestion:
    """Return what is hunted, checked; StudyError or ArgumentError where something is invalid or cannot be asked.

    Both `fedbo.hunt` and the command begin here.
    """
    parsed = parse_claim(claim)
    check_varied(vary)
    arguments.whole("worlds", worlds, 1)
    arguments.whole("seed", seed)
    arguments.one_of("search", search, SEARCHES)
    study = load_study(source, overrides, trust=True)
    document = read(source) if isinstance(source, Path) else as_document(source)
    for key, value in map(parse_override, overrides):
        document = with_value(document, locate(document, key), value)
    is_file = isinstance(source, Path)
    document = resolve_paths(document, source.absolute().parent if isinstance(source, Path) else Path.cwd(), True, is_file)
    parsed.check(study.labels, study.budget.decisions)
    named = source if is_file else "study"
    if study.sweep:
        raise StudyError(f"{named}: [sweep] cannot be hunted in; remove it, or set one of its values")
    if study.timing.clock == "wall" or study.hosting.kind == "sites" or study.has_secure_noise:
        raise StudyError(
            f"{named}: runs in real time, at sites or with secure noise, so no world of it can be repeated; use another"
        )
    methods = [table for table, label in zip(document["algorithm"], study.labels, strict=True) if label in parsed.labels]
    kept = {name: table for name, table in document.items() if name not in _ELSEWHERE}
    return HuntQuestion(
        study={**kept, "algorithm": methods}, claim=parsed.words, vary=tuple(vary), worlds=worlds, seed=seed, search=search
    )


def hunt_world(question: HuntQuestion, out: Path | None = None, progress: Progress | None = None) -> Hunt:
    """Hunt for the smallest world in which a claim fails, in a directory; one with the same question is continued.

    The directory is by default a new one under `runs/`.

    Raises:
        DirectoryError: the directory is in use.
        LibraryMissingError: the objective lacks a library; DataMissingError and DataDamagedError likewise for its data.
        KeyboardInterrupt: it was interrupted; its argument is the directory.
    """
    require_objectives(load_study(question.study, trust=True))
    out = out or new_folder("hunt")
    asked = {"question": {**asdict(question), "vary": list(question.vary)}}
    if (out / ANSWER.begun).is_file():
        if unseal(out / ANSWER.begun)["question"] != asked["question"]:
            raise DirectoryError(f"'{out}': contains another hunt; choose another directory with --out")
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DirectoryError(f"'{out}' exists and is not an empty directory; choose a new one")
    make_folder(out, PRIVATE)
    with locked(out):
        (out / ANSWER.file).unlink(missing_ok=True)
        atomic.write_text(out / ANSWER.begun, seal(asked, indent=2))
    return resume_hunt(out, progress)


def resume_hunt(place: Path, progress: Progress | None = None) -> Hunt:
    """Continue a hunt after an interruption; trials that have ended are not carried out again."""
    asked = unseal(place / ANSWER.begun)["question"]
    question = HuntQuestion(**{**asked, "vary": tuple(asked["vary"])})
    load_study(question.study, trust=True)
    with locked(place):
        try:
            found = Hunting(place, question, progress).run()
            if found.broken:
                _replay(found)
            return found.save()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(place) from None
        except ArgumentError:
            if not (place / LEDGER).is_file():
                shutil.rmtree(place)
            raise


def _replay(found: Hunt) -> None:
    """Run the reported world as a study, unless that was done."""
    target, study = found.directory / REPLAY, load_study(tomllib.loads(found.world), trust=True)
    if target.is_dir() and (unfinished(target) or read_manifest(target)["study_sha256"] != study.digest()):
        shutil.rmtree(target)
    if not target.is_dir():
        run_study(study, target)
