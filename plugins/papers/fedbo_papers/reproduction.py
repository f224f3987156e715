"""The reproduction of a paper: its studies run one after another, unless their results exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedbo.algorithms.catalog import catalogue
from fedbo.execution.again import has_ended, run_again
from fedbo.execution.failures import RunError
from fedbo.execution.progress import Progress
from fedbo.execution.requirements import ABSENT, require_objective
from fedbo.objectives.datasets.data import DataMissingError
from fedbo.settings.errors import in_plugin
from fedbo.study.document import StudyError, read
from fedbo.study.paths import make_folder, usable
from fedbo.study.study import Study, load_study
from fedbo_papers.decision_time import Times, is_measured, measure
from fedbo_papers.manifest import FigureTable, Manifest, chosen, load_manifest, suits
from fedbo_papers.plot import draw_paper
from fedbo_papers.statements import (
    AlgorithmRow,
    FigureData,
    PublishedComparison,
    StatementResult,
    algorithm_rows,
    compare_published,
    judge,
)

_PATH = re.compile(r"(?<![\w.])/(?:[^\s/'\"]+/)+")


@dataclass(frozen=True, slots=True)
class ReproductionRequest:
    """A request to reproduce a paper: its manifest, the figures, their size and page, the output directory, and the workers."""

    paper: Path
    out: Path
    quick: bool = False
    only: Sequence[str] = ()
    workers: int | None = None
    dark: bool = False

    @property
    def hosting(self) -> list[str]:
        """Return the overrides of a study's hosting."""
        return [] if self.workers is None else [f"hosting.workers={self.workers}"]


@dataclass(frozen=True, slots=True)
class FigureOutcome:
    """The outcome of a figure: `image` is its file, `folder` has its results; `missing` is the reason if it was left out."""

    figure: FigureTable
    missing: str = ""
    data: FigureData | None = None
    image: Path | None = None
    folder: str = ""
    failed: bool = False
    algorithms: Sequence[AlgorithmRow] = ()
    published: Sequence[PublishedComparison] = ()
    statements: Sequence[StatementResult] = ()


@dataclass(slots=True)
class Reproduction:
    """A paper's figures so far; `pending` are those that have not been processed yet."""

    request: ReproductionRequest
    manifest: Manifest
    outcomes: list[FigureOutcome] = field(default_factory=list)
    pending: list[FigureTable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _FigurePlan:
    """A figure with its study in the requested size and in full, or the reason why there is none."""

    figure: FigureTable
    study: Study | None = None
    full: Study | None = None
    missing: str = ""

    @property
    def name(self) -> str:
        """Return the name of its study's directory, which differs between sizes and versions of one study."""
        assert self.study is not None
        return f"{Path(self.figure.study).stem}-{self.study.digest()[:8]}"


def reproduce(
    request: ReproductionRequest, notify: Callable[[str], None], progress: Callable[[], Progress | None]
) -> Iterator[Reproduction]:
    """Run the missing studies, draw every figure, and judge the statements; yield the reproduction after each figure.

    Finished studies are not run again, interrupted ones are resumed. Figures outside the request are shown too if their runs
    exist. A figure whose data or plug-in is missing, or whose study fails, is left out, with the reason.

    Raises:
        StudyError: the manifest or a study is invalid; nothing has run then.
    """
    manifest = load_manifest(request.paper)
    with usable(request.out, "cannot create a folder there"):
        request.out.exists()
    asked = chosen(manifest, request.only, request.paper)
    plans = _plans(request, asked)
    others = [one for figure in manifest.figure if figure not in asked if (one := _there(request, figure)) is not None]
    done = [one.figure for one in others]
    made = Reproduction(request, manifest, others, [figure for figure in manifest.figure if figure not in done])
    for folder in ("studies", "figures", "times"):
        make_folder(request.out / folder)
    for number, plan in enumerate(plans, 1):
        notify(f"{plan.figure.id} ({number} of {len(plans)}): {plan.figure.title}")
        made.outcomes.append(_outcome(request, plan, notify, progress))
        made.outcomes.sort(key=lambda one: manifest.figure.index(one.figure))
        made.pending.remove(plan.figure)
        _judge(made)
        yield made


def _there(request: ReproductionRequest, figure: FigureTable) -> FigureOutcome | None:
    """Return the outcome of a figure that needs no run or measurement; None if it needs one."""
    try:
        (plan,) = _plans(request, [figure])
    except StudyError:
        return None
    return _outcome(request, plan, lambda line: None, lambda: None) if _complete(request, plan) else None


def _plans(request: ReproductionRequest, figures: Sequence[FigureTable]) -> list[_FigurePlan]:
    """Load every study; StudyError with all faults of all studies."""
    plans, faults, known = list[_FigurePlan](), list[str](), dict[str, str]()
    for figure in figures:
        path = request.paper.parent / figure.study
        try:
            if lacking := _lacking_plugin(path):
                plans.append(_FigurePlan(figure, missing=lacking))
                continue
            full = load_study(path, request.hosting, trust=True)
            study = load_study(path, [*figure.quick, *request.hosting], trust=True) if request.quick else full
        except ABSENT as error:
            plans.append(_FigurePlan(figure, missing=_lacking(error)))
            continue
        except StudyError as error:
            place = f"{request.paper}: figure {figure.id}, quick"
            faults += [re.sub("^--set", place, line) for line in str(error).splitlines()]
            continue
        faults += suits(figure, study, request.paper)
        plan = _FigurePlan(figure, study, full)
        about = str(study.objective.model_dump(mode="json"))
        if about not in known and not _complete(request, plan):
            known[about] = _no_data(study)
        plans.append(replace(plan, missing="" if _complete(request, plan) else known[about]))
    if faults:
        raise StudyError("\n".join(dict.fromkeys(faults)))
    return plans


def _lacking_plugin(path: Path) -> str:
    """Return which plug-in has a method of a study, if it is not installed; empty if nothing is missing."""
    names = [str(table.get("name")) for table in read(path).get("algorithm", ())]
    return next((words for name in names if name not in catalogue() and (words := in_plugin("algorithm", name))), "")


def _complete(request: ReproductionRequest, plan: _FigurePlan) -> bool:
    """Check whether all runs and decision times of a figure exist."""
    if plan.study is None:
        return False
    runs = plan.figure.kind == "decision_time" or has_ended(request.out / "studies" / plan.name, plan.study)
    timed = plan.figure.timed or plan.figure.kind == "decision_time"
    return runs and (not timed or is_measured(plan.study, request.out / "times" / f"{plan.name}.json"))


def _no_data(study: Study) -> str:
    """Build one objective of each cell, and return the missing data set; empty when nothing is missing."""
    try:
        for cell in study.cells():
            require_objective(cell.study)
    except ABSENT as error:
        return _lacking(error)
    return ""


def _lacking(error: Exception) -> str:
    """Return in short what is missing, without this machine's search paths."""
    if isinstance(error, DataMissingError):
        return f"{str(error).split('. ')[0]}; run fedbo data list to see the expected files and folders"
    return without_folders(str(error))


def without_folders(text: str) -> str:
    """Remove the folders of this machine from a text, and leave the names of the files."""
    return _PATH.sub("…/", text)


def _outcome(
    request: ReproductionRequest, plan: _FigurePlan, notify: Callable[[str], None], progress: Callable[[], Progress | None]
) -> FigureOutcome:
    if plan.study is None or plan.full is None or plan.missing:
        notify(f"  skipped:  {plan.missing}")
        return FigureOutcome(plan.figure, plan.missing)
    name, data = plan.name, FigureData(plan.figure, plan.study, plan.full)
    try:
        if plan.figure.kind != "decision_time":
            data = replace(data, result=run_again(plan.study, request.out / "studies" / name, request.hosting, progress()))
    except RunError as error:
        reason = f"the study failed: {without_folders(str(error))}"
        notify(f"  skipped:  {reason}; partial results are in {error.directory}")
        return FigureOutcome(plan.figure, reason, folder=f"studies/{name}", failed=True)
    if plan.figure.kind == "decision_time" or plan.figure.timed:
        file = request.out / "times" / f"{name}.json"
        data = replace(data, times=_measured(plan.study, file, notify))
    image = draw_paper(data, request.out / "figures" / f"{plan.figure.id}.png", request.dark)
    where = "times" if data.result is None else f"studies/{name}"
    return FigureOutcome(
        plan.figure,
        "",
        data,
        image=image,
        folder=where,
        failed=False,
        algorithms=algorithm_rows(data),
        published=compare_published(data),
    )


def _measured(study: Study, file: Path, notify: Callable[[str], None]) -> Times:
    steps: set[int] = set()

    def tell(done: int, total: int) -> None:
        tenth = 10 * done // total
        if tenth not in steps and tenth:
            steps.add(tenth)
            notify(f"  decision times: {done} of {total}")

    return measure(study, file, tell)


def _judge(made: Reproduction) -> None:
    """Judge all statements again: some depend on figures that come later in the manifest."""
    there: Mapping[str, FigureData] = {one.figure.id: one.data for one in made.outcomes if one.data is not None}
    made.outcomes = [
        one if one.data is None else replace(one, statements=[judge(test, one.data, there) for test in one.figure.test])
        for one in made.outcomes
    ]


def seconds_of(outcome: FigureOutcome) -> float:
    """Return the real seconds of a figure's runs, or of its timed decisions."""
    data = outcome.data
    if data is None:
        return 0.0
    if data.result is not None:
        return float(data.result.manifest.get("seconds", 0.0))
    assert data.times is not None
    return float(sum(np.sum(array) for of_cell in data.times.seconds.values() for array in of_cell.values()))
