"""A benchmark: every method on every task, run into a directory that a later call resumes, and compared over all tasks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedbo.algorithms.catalog import catalogue, entry
from fedbo.analysis.result import Result
from fedbo.call_arguments import Overrides, display_of, named_in_python, overrides_of
from fedbo.execution.again import has_ended, run_again
from fedbo.execution.failures import RunError
from fedbo.execution.progress import Progress
from fedbo.execution.requirements import ABSENT, require_objective
from fedbo.figures.style import save
from fedbo.lab.benchmarking.ranks import draw_overview
from fedbo.lab.benchmarking.significance import Overview, overview
from fedbo.lab.benchmarking.suites import SUITES
from fedbo.settings.arguments import flag, path, whole, wrong
from fedbo.settings.errors import unknown
from fedbo.settings.logs import record, say
from fedbo.settings.rooms import optional
from fedbo.study.document import StudyError, read
from fedbo.study.files import resolve_paths
from fedbo.study.paths import make_folder, usable
from fedbo.study.study import Study, load_study


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """A task before its methods are chosen: its name, the tables of its study, and the file or suite to name in errors.

    With `optional`, it is left out if its data or a library are missing. Without [exchange], a method that can send after every
    iteration does.
    """

    name: str
    tables: Mapping[str, Any]
    origin: str
    optional: bool = False

    def algorithms(self, wanted: Sequence[str]) -> list[dict[str, Any]]:
        """Return the tables of methods: those of the file with such a label or name, otherwise bare ones; all by default."""
        known = list(self.tables.get("algorithm", ()))
        if not wanted:
            return known
        return [_table(one, known, "exchange" not in self.tables) for one in wanted]


def _table(wanted: str, known: Sequence[Mapping[str, Any]], immediate: bool) -> dict[str, Any]:
    for key in ("label", "name"):
        for table in known:
            if table.get(key) == wanted:
                return {**table, "label": wanted}
    name, _, preset = wanted.partition("/")
    if not preset and immediate and _pauses(name):
        return {"name": name, "label": wanted, "every": 1}
    return {"name": name, "label": wanted, **({"preset": preset} if preset else {})}


def _pauses(name: str) -> bool:
    """Check whether a method sends before the start but not after the first iteration, although it could.

    Without rounds, a message before the start alone arrives too late for most agents.
    """
    if name not in catalogue() or "every" not in entry(name).free():
        return False
    made = entry(name).make()
    return made.sends(0) and not made.sends(1)


def benchmark_sources(suite: str) -> list[BenchmarkSource]:
    """List the tasks of a suite, or the study files of a folder by name; StudyError if there is neither."""
    folder = Path(suite)
    if folder.is_dir():
        files = sorted(folder.glob("*.toml"))
        if not files:
            raise StudyError(f"{suite}: contains no study; pass a folder of TOML files, or the name of a suite")
        return [BenchmarkSource(path.stem, _resolved(path), str(path)) for path in files]
    if suite not in SUITES:
        if "/" in suite or folder.exists():
            raise StudyError(f"{suite}: is not a folder; pass a folder of study files, or the name of a suite")
        raise StudyError(f"{unknown('suite', suite, SUITES)}; or pass a folder of study files")
    chosen = SUITES[suite]
    named = f"suite {suite} {chosen.version}"
    return [BenchmarkSource(task.name, task.tables(), f"{named}, {task.name}", task.optional) for task in chosen.tasks]


def _resolved(path: Path) -> Mapping[str, Any]:
    document = read(path)
    if not isinstance(document.get("algorithm", []), list):
        raise StudyError(f"{path}: [algorithm] is a table; write [[algorithm]]")
    return resolve_paths(document, path.absolute().parent, trust=True)


QUICK_REPLICATES, QUICK_ITERATIONS = 3, 12
REPLICATES = 20
FIGURE = "benchmark.png"


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """A request for a benchmark: a suite or a folder, the labels or names of methods, replicates, and the output directory.

    A `quick` one has 3 replicates and at most 12 iterations, a `dark` one a dark figure. Without `replicates` there are 20, or
    for a folder the number in its files; without `algorithms` the methods are those of the files.
    """

    suite: str
    out: Path
    algorithms: Sequence[str] = ()
    replicates: int | None = None
    seed: int | None = None
    quick: bool = False
    hosting: Sequence[str] = ()
    dark: bool = False


@dataclass(slots=True)
class Benchmark:
    """A finished benchmark: its results, the tasks that were left out with the reason, and the tasks whose studies failed.

    `overview` has the statistics over all tasks, and `paths` are the tables, the figure and the report, once they are written.
    """

    request: BenchmarkRequest = field(repr=False)
    results: list[Result] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    overview: Overview | None = field(default=None, repr=False)
    paths: list[Path] = field(default_factory=list)


@named_in_python()
def bench(
    suite: str | Path,
    *,
    algorithms: Sequence[str] = (),
    replicates: int | None = None,
    quick: bool = False,
    seed: int | None = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    progress: bool = False,
    dark: bool = False,
) -> Benchmark:
    """Run two or more algorithms, "name/preset" for a preset, on every task of a suite or a folder of study files.

    By default the algorithms are those of the files, with 20 replicates, or 3 short ones if `quick`. `overrides` set the
    hosting. Runs that `out`, by default under `runs/`, has already are used again. With `dark` the figure is on a dark page.
    The answer's `overview.pairs` are the paired tests, `overview.ranking` the mean ranks, `results` a run for each task. Raises
    StudyError where no task can run.
    """
    if isinstance(algorithms, str) or len(algorithms) == 1:
        raise wrong("algorithms", algorithms, "must be two or more names, such as ['random', 'fts']")
    for name, value, least in (("replicates", replicates, 1), ("seed", seed, 0)):
        if value is not None:
            whole(name, value, least)
    folder = Path(out or Path("runs") / f"bench-{Path(path('suite', suite)).name}{'-quick' * quick}")
    hosting = overrides_of(overrides)
    sizes: dict[str, Any] = {"replicates": replicates, "seed": seed, "quick": quick, "hosting": hosting}
    request = BenchmarkRequest(str(suite), folder, algorithms, **sizes, dark=flag("dark", dark))
    made = run_benchmark(request, lambda line: (say if progress else record)(line, logging.INFO), lambda: display_of(progress))
    if made.results:
        write_benchmark(made)
    return made


def run_benchmark(
    request: BenchmarkRequest, notify: Callable[[str], None], progress: Callable[[], Progress | None]
) -> Benchmark:
    """Run the missing studies, one task after another.

    A task whose data are missing, or whose study fails, is left out.

    Raises:
        StudyError: a study is invalid; nothing has run then.
        KeyboardInterrupt: after Ctrl-C; the same request resumes the benchmark.
    """
    made = Benchmark(request)
    studies = _studies(request, made)
    with usable(request.out, "cannot create a folder there"):
        request.out.exists()
    make_folder(request.out / "runs")
    for number, (name, study) in enumerate(studies.items(), 1):
        file_name = re.sub(r"[^\w.-]+", "-", name)
        directory = request.out / "runs" / f"{file_name}-{study.digest()[:8]}"
        notify(f"{name} ({number} of {len(studies)}){': already finished' if has_ended(directory, study) else ''}")
        try:
            made.results.append(run_again(study, directory, request.hosting, progress()))
        except RunError as error:
            made.failed.append(f"{name}: the study failed: {error}; partial results are in {error.directory}")
            notify(f"  {made.failed[-1]}")
    return made


def _studies(request: BenchmarkRequest, made: Benchmark) -> dict[str, Study]:
    """Load every study; StudyError with all faults of all studies."""
    studies, faults = dict[str, Study](), list[str]()
    for source in benchmark_sources(request.suite):
        try:
            study = load_study(_document(request, source), request.hosting, trust=True, derived=True)
            require_objective(study.cells()[0].study)
        except ABSENT as error:
            made.left_out.append(f"{source.name}: {str(error).splitlines()[0]}")
            continue
        except StudyError as error:
            faults += [f"{source.origin}: {line.removeprefix('study: ')}" for line in str(error).splitlines()]
            continue
        studies[source.name] = study
    if faults:
        raise StudyError("\n".join(dict.fromkeys(faults)))
    if not studies:
        raise StudyError(f"{request.suite}: no task can run on this machine: {'; '.join(made.left_out)}")
    return studies


def _document(request: BenchmarkRequest, source: BenchmarkSource) -> Mapping[str, Any]:
    """Return the study of a task, with the requested methods."""
    tables, algorithms = dict(source.tables), source.algorithms(request.algorithms)
    if not algorithms:
        raise StudyError("has no algorithms; add some, for example --algorithms ts,fts,fts_noise")
    header = {"seed": 1, "replicates": REPLICATES, **tables.get("study", {}), "name": source.name}
    budget = dict(tables.get("budget", {}))
    if request.quick:
        header["replicates"] = min(QUICK_REPLICATES, header["replicates"])
        if isinstance(budget.get("iterations"), int):
            budget["iterations"] = min(QUICK_ITERATIONS, budget["iterations"])
    header |= {} if request.replicates is None else {"replicates": request.replicates}
    header |= {} if request.seed is None else {"seed": request.seed}
    return {**tables, "study": header, "budget": budget, "algorithm": algorithms}


def write_benchmark(made: Benchmark) -> None:
    """Compare the methods over all tasks; write the tables, the figure and the report."""
    out = made.request.out
    found = overview(made.results, tuple(made.request.algorithms))
    make_folder(out / "tables")
    for table in [*found.tables(), found.scores()]:
        table.write(out / "tables")
    figure = draw_overview(found, made.request.dark)
    FigureCanvasAgg(figure)
    save(figure, out / FIGURE, 110)
    made.overview, made.paths = found, [out / "tables", out / FIGURE]
    if (write_report := optional("write_report")) is not None:
        made.paths.append(write_report(made.results, out / "report.html"))
