"""Attacks on the messages of a study or of a run, in a directory: begun, continued after an interruption, and saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.algorithms.base import LocallyPrivate, Private
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.analysis.manifest import STUDY
from fedbo.call_arguments import Overrides, display_of, named_in_python, new_folder_of, overrides_of, study_of
from fedbo.execution.directory import new_folder
from fedbo.execution.progress import Progress
from fedbo.execution.requirements import require_objectives
from fedbo.study.document import as_document as document_of
from fedbo.study.document import locate, parse_override, read, with_value
from fedbo.study.files import resolve_paths
from fedbo.study.paths import PRIVATE, DirectoryError, locked, make_folder
from fedbo.study.study import Study, load_study
from fedbo_leak.measuring import measure
from fedbo_leak.readings import COORDINATOR, READER
from fedbo_leak.result import Leak, MethodRow, as_document, measured, of_document
from fedbo_leak.room import ANSWER
from fedbo_leak.watched import WatchedRun, check_same, check_watchable, watch


def leak(
    study: str | Path | Mapping[str, Any],
    *,
    overrides: Overrides = (),
    out: str | Path | None = None,
    progress: bool = False,
) -> Leak:
    """Measure by attacks what the messages of a study betray.

    - `study`: a TOML file, a dictionary of its tables, or the directory of a run, which is carried out again.
    - `overrides`: changes as `dotted.key=value`; more replicates make intervals shorter, and let more attacks learn.
    - `out`: the directory, by default a new one under `runs/`.

    Raises StudyError when the study is invalid or its messages cannot be heard again, DirectoryError when the directory is in
    use or a run is not repeated to the bit, and KeyboardInterrupt after Ctrl-C.
    """
    with named_in_python():
        given = study if not isinstance(study, Mapping) and Path(study).is_dir() else study_of(study)
        source = given if isinstance(given, Mapping) else Path(given)
        return attack_study(source, overrides_of(overrides), new_folder_of(out), display_of(progress))


def attack_study(
    source: Path | Mapping[str, Any], overrides: Sequence[str] = (), out: Path | None = None, progress: Progress | None = None
) -> Leak:
    """Attack the messages of a study, or of the run in a directory, and keep the result in another one."""
    run = source.absolute() if isinstance(source, Path) and source.is_dir() else None
    if run is not None and overrides:
        raise DirectoryError(f"'{run}': a run is attacked as it is; remove --set, or pass its study.toml")
    study_source = source if run is None or not isinstance(source, Path) else source / STUDY
    study = load_study(study_source, overrides, trust=True, derived=run is not None)
    check_watchable(study)
    require_objectives(study)
    document = read(study_source) if isinstance(study_source, Path) else document_of(study_source)
    for key, value in map(parse_override, overrides):
        document = with_value(document, locate(document, key), value)
    folder = study_source.absolute().parent if isinstance(study_source, Path) else Path.cwd()
    document = resolve_paths(document, folder, True, isinstance(study_source, Path))
    out = out or new_folder("leak")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DirectoryError(f"'{out}' exists and is not an empty directory; choose a new one")
    make_folder(out, PRIVATE)
    begun = Leak(out, study.study.name)
    with locked(out):
        _keep({"tables": document, "run": None if run is None else str(run)}, begun)
    return resume_leak(out, progress)


def resume_leak(place: Path, progress: Progress | None = None) -> Leak:
    """Continue after an interruption; methods that were attacked are not attacked again."""
    kept = unseal(place / ANSWER.begun)
    question, found = kept["question"], of_document(place, kept["found"])
    study = load_study(question["tables"], trust=True, derived=question["run"] is not None)
    with locked(place):
        try:
            for label in study.labels:
                if label not in {row.algorithm for row in found.methods}:
                    found = _with_method(study, label, found, question["run"])
                    _keep(question, found)
                    if progress is not None:
                        progress.note(found.sentence(label))
            return found.save()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(place) from None


def _keep(question: dict[str, Any], found: Leak) -> None:
    atomic.write_text(found.directory / ANSWER.begun, seal({"question": question, "found": as_document(found)}, indent=2))


def _with_method(study: Study, label: str, found: Leak, run: str | None) -> Leak:
    """Add what attacks find of one method."""
    heard = [one for one in watch(study, found.directory, label) if one.agents]
    if run is not None:
        check_same(Path(run), heard)
    rows = measure(label, heard)
    return replace(found, methods=(*found.methods, method_row(label, heard, rows)), rows=(*found.rows, *rows))


def method_row(label: str, runs: Sequence[WatchedRun], rows: Sequence[Any]) -> MethodRow:
    """Return what is said and measured of a method as a whole."""
    algorithm = runs[0].algorithm
    spent = [run.epsilon for run in runs if math.isfinite(run.epsilon)]
    return MethodRow(
        algorithm=label,
        declared=str(revealed_by(algorithm)),
        measured=measured(rows, is_private(algorithm), view_of(algorithm)),
        epsilon=max(spent, default=math.nan),
        best=float(np.mean([run.best_score for run in runs])),
        runs=len(runs),
    )


def is_private(algorithm: Any) -> bool:
    """Check whether messages of a method pass a mechanism of differential privacy, at the aggregator or before."""
    return isinstance(algorithm, Private) or (isinstance(algorithm, LocallyPrivate) and algorithm.hides)


def view_of(algorithm: Any) -> str:
    """Return the adversary that a declaration is about.

    Of noisy sums a trusted coordinator adds the noise, so only its answers hide anything; agents that hide trust nobody.
    """
    is_summed = revealed_by(algorithm) is Reveals.NOISY_SUMS and isinstance(algorithm, Private)
    return READER if is_summed else COORDINATOR
