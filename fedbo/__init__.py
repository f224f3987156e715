"""fedbo: asynchronous simulation of federated black-box optimisation.

`run` runs a study, `load_study` checks one, `Result.open` reads an earlier run, `tabulate` evaluates an objective in advance,
and `tune` tunes a function at several sites in real time. `serve` and `join` carry out a study whose sites keep their
objectives to themselves, over an authenticated network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fedbo.settings import arguments as checks
from fedbo.settings import registry
from fedbo.settings.signatures import spelled_out
from fedbo.tuning.options import DEFAULTS, Options

if TYPE_CHECKING:
    from fedbo.actors.storage.record_types import CheckpointError
    from fedbo.actors.storage.rows import TooLargeError
    from fedbo.actors.storage.sealed import DamagedError, FormatError
    from fedbo.analysis.finished_run import ResultError
    from fedbo.analysis.result import Result
    from fedbo.call_arguments import Overrides
    from fedbo.coordinator.errors import EndlessError, ForkError, ProtocolError, ReplayError
    from fedbo.execution.cluster import ClusterError
    from fedbo.execution.failures import RunError
    from fedbo.execution.notices import Callback
    from fedbo.execution.progress import Progress
    from fedbo.figures.layout import PlotError
    from fedbo.figures.page.page import ReportError
    from fedbo.lab.fork.result import Fork
    from fedbo.lab.hunt.result import Hunt
    from fedbo.lab.twins.measurements import MeasurementError
    from fedbo.lab.why.result import Why
    from fedbo.objectives.base import ConfigurationFailedError, LibraryMissingError, Objective
    from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError
    from fedbo.objectives.tables.table import TableError
    from fedbo.objectives.typed_spaces.spaces import log
    from fedbo.settings.errors import ArgumentError, EvaluationWarning, FedboError, SettingError
    from fedbo.settings.own_code import CodeError, ExitError
    from fedbo.settings.plugins import PluginError
    from fedbo.settings.shown import OutputError
    from fedbo.settings.trust import UntrustedError
    from fedbo.sites.errors import DocumentError, PolicyError, SignatureError, SitesError
    from fedbo.sites.work import SiteSummary
    from fedbo.study.document import StudyError
    from fedbo.study.paths import DirectoryError
    from fedbo.study.study import Study
    from fedbo.tuning.ask_tell import Agent
    from fedbo.tuning.message_folder import Meeting
    from fedbo.tuning.terms import Terms

registry.register(draw_result="fedbo.figures.plot:draw_result", why_section="fedbo.lab.why.page:why_section")

__all__ = [
    "Agent",
    "ArgumentError",
    "CheckpointError",
    "ClusterError",
    "CodeError",
    "ConfigurationFailedError",
    "DamagedError",
    "DataDamagedError",
    "DataMissingError",
    "DirectoryError",
    "DocumentError",
    "EndlessError",
    "EvaluationWarning",
    "ExitError",
    "FedboError",
    "Fork",
    "ForkError",
    "FormatError",
    "Hunt",
    "LibraryMissingError",
    "MeasurementError",
    "Meeting",
    "OutputError",
    "PlotError",
    "PluginError",
    "PolicyError",
    "ProtocolError",
    "ReplayError",
    "ReportError",
    "Result",
    "ResultError",
    "RunError",
    "SettingError",
    "SignatureError",
    "SiteSummary",
    "SitesError",
    "Study",
    "StudyError",
    "TableError",
    "Terms",
    "TooLargeError",
    "UntrustedError",
    "Why",
    "fork",
    "hunt",
    "join",
    "load_study",
    "log",
    "resume",
    "run",
    "serve",
    "tabulate",
    "tune",
    "why",
]

# Imported when first asked for: reading a help text must not wait for Ray and SciPy.
_PLACES = {
    "CheckpointError": "fedbo.actors.storage.record_types",
    "TooLargeError": "fedbo.actors.storage.rows",
    "DamagedError": "fedbo.actors.storage.sealed",
    "FormatError": "fedbo.actors.storage.sealed",
    "EndlessError": "fedbo.coordinator.errors",
    "ForkError": "fedbo.coordinator.errors",
    "ProtocolError": "fedbo.coordinator.errors",
    "ReplayError": "fedbo.coordinator.errors",
    "ClusterError": "fedbo.execution.cluster",
    "RunError": "fedbo.execution.failures",
    "ConfigurationFailedError": "fedbo.objectives.base",
    "LibraryMissingError": "fedbo.objectives.base",
    "DataDamagedError": "fedbo.objectives.datasets.data",
    "DataMissingError": "fedbo.objectives.datasets.data",
    "TableError": "fedbo.objectives.tables.table",
    "ReportError": "fedbo.figures.page.page",
    "PlotError": "fedbo.figures.layout",
    "ResultError": "fedbo.analysis.finished_run",
    "ArgumentError": "fedbo.settings.errors",
    "FedboError": "fedbo.settings.errors",
    "EvaluationWarning": "fedbo.settings.errors",
    "SettingError": "fedbo.settings.errors",
    "ExitError": "fedbo.settings.own_code",
    "CodeError": "fedbo.settings.own_code",
    "OutputError": "fedbo.settings.shown",
    "PluginError": "fedbo.settings.plugins",
    "UntrustedError": "fedbo.settings.trust",
    "DocumentError": "fedbo.sites.errors",
    "PolicyError": "fedbo.sites.errors",
    "SignatureError": "fedbo.sites.errors",
    "SitesError": "fedbo.sites.errors",
    "SiteSummary": "fedbo.sites.work",
    "StudyError": "fedbo.study.document",
    "DirectoryError": "fedbo.study.paths",
    "MeasurementError": "fedbo.lab.twins.measurements",
    "Agent": "fedbo.tuning.ask_tell",
    "Fork": "fedbo.lab.fork.result",
    "Hunt": "fedbo.lab.hunt.result",
    "Meeting": "fedbo.tuning.message_folder",
    "Terms": "fedbo.tuning.terms",
    "Why": "fedbo.lab.why.result",
    "Result": "fedbo.analysis.result",
    "Study": "fedbo.study.study",
    "log": "fedbo.objectives.typed_spaces.spaces",
}


def load_study(source: str | Path | Mapping[str, Any], overrides: Overrides = (), trust: bool = False) -> Study:
    """Load a study from a TOML file or from a dictionary of its tables, and check it completely.

    `overrides` are `dotted.key=value`, or a dictionary by dotted keys. Checking a study that names Python code imports that
    code, which needs `trust`. StudyError, with one line for each fault, when anything is invalid.
    """
    from fedbo.call_arguments import named_in_python, overrides_of, study_of
    from fedbo.study.study import load_study

    with named_in_python():
        return load_study(study_of(source), overrides_of(overrides), checks.flag("trust", trust))


def run(
    study: str | Path | Mapping[str, Any] | Study,
    *,
    out: str | Path | None = None,
    overrides: Overrides = (),
    progress: bool = False,
    callbacks: Sequence[Callback | str] = (),
) -> Result:
    """Run a study and return its results.

    - `study`: a TOML file, a dictionary of its tables, or a checked study, which takes no overrides.
    - `out`: the new directory, by default one under `runs/`.
    - `overrides`: changes as `dotted.key=value`.
    - `callbacks`: called for each evaluation and event; they change nothing (docs/plugins.md).

    Raises StudyError when the study is invalid, RunError when it fails, and KeyboardInterrupt after Ctrl-C. All observations up
    to then have been written.
    """
    from fedbo.call_arguments import named_in_python, new_folder_of, succeeded
    from fedbo.callbacks import callbacks_of
    from fedbo.execution.runner import run_study
    from fedbo.study.study import Study

    with named_in_python():
        place, made, display = new_folder_of(out), callbacks_of(callbacks), _display(progress)
        if overrides and isinstance(study, Study):
            raise checks.wrong("overrides", overrides, "has no effect on a checked study; pass it to load_study")
        checked = study.renewed() if isinstance(study, Study) else load_study(study, overrides, trust=True)
        return succeeded(run_study(checked, place, display, made))


def resume(
    directory: str | Path,
    *,
    overrides: Overrides = (),
    algorithms: Sequence[Mapping[str, Any]] = (),
    progress: bool = False,
    callbacks: Sequence[Callback | str] = (),
    changed_code: bool = False,
) -> Result:
    """Resume a run that was interrupted, killed or failed, or extend one that has ended, and return its results.

    `overrides` may change the hosting and the snapshots. For a finished run they may also raise `study.replicates` and
    `budget.iterations`, `.evaluations`, `.time`, `.cost` and `.target`, and tables of `algorithms` may be added. Python code
    that the study names must be unchanged, unless the run failed; `changed_code` accepts a mix of both versions. `callbacks`
    are called for everything from the start of the run.

    Raises ValueError when there is nothing to resume, or when a run of the larger study would start differently;
    else the errors of `run`.
    """
    from fedbo.call_arguments import added_algorithms, folder_of, named_in_python, overrides_of, succeeded
    from fedbo.callbacks import callbacks_of
    from fedbo.execution.runner import resume_study

    with named_in_python():
        folder, changes, made = folder_of("directory", directory), overrides_of(overrides), callbacks_of(callbacks)
        added, mixed = added_algorithms(algorithms), checks.flag("changed_code", changed_code)
        return succeeded(resume_study(folder, changes, _display(progress), made, added, changed_code=mixed))


def fork(
    directory: str | Path,
    at: float | str | None = None,
    *,
    every: float | None = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    progress: bool = False,
    trust: bool = False,
) -> Fork:
    """Continue a finished run from one point with a change, with the same random draws, beside the original.

    - `at`: a time, or "event:500"; `every`: fork at each multiple of a time instead.
    - `overrides`: the changes, such as `exchange.mode=immediate`; "fork" as a time stands for the time of the fork. Settings
      that were used before the fork cannot change.
    - `trust`: import the Python code that the run names.

    Raises ValueError with the reason where a run cannot be forked there or with that change; else the errors of `run`.
    """
    from fedbo.call_arguments import folder_of, named_in_python, new_folder_of, overrides_of
    from fedbo.lab.fork.fork import fork_run, points_of

    with named_in_python():
        folder, changes, place = folder_of("directory", directory), overrides_of(overrides), new_folder_of(out)
        if every is not None:
            checks.number("every", every, above=0.0)
        if at is not None and not isinstance(at, str):
            checks.number("at", at)
        points = points_of(folder, None if at is None else str(at), every)
        return fork_run(folder, points, changes, place, _display(progress), checks.flag("trust", trust))


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
    from fedbo.call_arguments import folder_of, named_in_python, new_folder_of
    from fedbo.lab.why.question import Question
    from fedbo.lab.why.why import why_run

    with named_in_python():
        question = Question(end=end, algorithm=algorithm, replicate=replicate, cell=cell, level=level, budget=budget, rows=rows)
        folder, place = folder_of("directory", directory), new_folder_of(out)
        for name, value in {"replicate": replicate, "rows": rows, "cell": cell, "budget": budget}.items():
            if value is not None:
                checks.whole(name, value)
        if level is not None:
            checks.number("level", level)
        return why_run(folder, question, place, _display(progress), checks.flag("trust", trust))


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
    from fedbo.call_arguments import named_in_python, new_folder_of, overrides_of, study_of
    from fedbo.lab.hunt.hunt import hunt_world, question_of

    with named_in_python():
        given, changes, place, display = study_of(study), overrides_of(overrides), new_folder_of(out), _display(progress)
        source = given if isinstance(given, Mapping) else Path(given)
        return hunt_world(question_of(source, claim, vary, worlds, seed, search, changes), place, display)


@spelled_out(Options, DEFAULTS)
def tune(
    objective: Callable[..., Any], space: Any, agents: int = 1, *, progress: bool = False, **options: Unpack[Options]
) -> Result:
    """Tune a function of a configuration at several sites at once, in real time on Ray, and return the results.

    `objective(configuration, agent)` returns a number, or a dictionary of numbers with the key `metric`. This value is
    maximised, or with `mode="min"` minimised; `metrics` makes other numbers objectives, or limits them. The function gets
    `agent`, a generator `rng` and a `report(value, step)` if it has parameters of these names. `space` is a
    `ConfigSpace.ConfigurationSpace`, a dictionary of ranges and choices, or a space of Ray Tune or Optuna.

    Every agent makes `initial` and `iterations` evaluations. Up to `parallel` of them run at once, and up to `prefetch` more
    are decided in advance. Each evaluation reserves `resources` (one table, or one for each agent: CPU, GPU, memory in MiB, and
    custom resources). It may take `time_limit` seconds and `memory_limit` MiB, and is retried up to `retries` times.

    An agent decides nothing more once its evaluations have taken `cost` seconds. Tuning ends early after `seconds`, after a
    total of `evaluations`, when an agent reaches `target`, or when one of the `callbacks`, which are called for every
    evaluation, returns True. An evaluation of several `steps` may stop early by its reports, by the rules of `stopping`. In a
    space of at most 2,048 configurations none is evaluated twice, and tuning ends when all were; with `repeats`, for noisy
    objectives, they are evaluated again.

    `start` are earlier evaluations: pairs of a configuration and its value, a .csv or .parquet file, the directory of
    a run, an `optuna.Study`, or a dictionary of these by agent. The configurations in `enqueue` are evaluated first,
    in place of random ones.

    `algorithm` is a name or a table with settings, by default `fts`, and `gp_ei` for a single agent. `address` is a Ray
    cluster, and `study` contains tables of a study that override all other arguments. With `resume`, the study in `out` is
    resumed if it exists. Raises the errors of `run`. See docs/tuning.md.
    """
    from fedbo.call_arguments import drawn, named_in_python, succeeded
    from fedbo.figures.reports.tables import console
    from fedbo.tuning.tune import tuned

    with named_in_python():
        terminal = console(stderr=True) if checks.flag("progress", progress) else None
        return drawn(succeeded(tuned(objective, space, agents, options, terminal), warn=False))


def serve(
    study: str | Path | Mapping[str, Any] | Study,
    *,
    listen: str = "0.0.0.0:7443",
    service: str | Path | None = None,
    out: str | Path | None = None,
    overrides: Overrides = (),
    progress: bool = False,
) -> Result:
    """Serve a study to its sites until it has ended, and return its results; a study that was killed continues.

    - `study`: as in `run`, with the objective "sites".
    - `listen`: the address "HOST:PORT" at which the server listens.
    - `service`: the folder of keys, certificates and approvals, by default `STUDY.sites` beside a study file.
    - `out`: the directory of the results, by default `run` in that folder.

    The study begins once every site has joined. Raises SitesError when the sites were approved for other terms; else the errors
    of `run`.
    """
    from fedbo.call_arguments import named_in_python, new_folder_of, succeeded
    from fedbo.sites.folders import ServiceFolder
    from fedbo.sites.serve import serve_study
    from fedbo.study.study import Study

    with named_in_python():
        display, place = _display(progress), new_folder_of(out)
        if service is None and not isinstance(study, str | Path):
            raise checks.wrong("service", service, "name the folder of keys and approvals, since the study is no file")
        checked = study if isinstance(study, Study) else load_study(study, overrides)
        path = ServiceFolder.of_study(Path(str(study))) if service is None else Path(checks.path("service", service))
        return succeeded(serve_study(checked, checks.text("listen", listen), ServiceFolder(path), place, display))


def join(
    approval: str | Path,
    objective: Callable[..., Any] | Objective,
    *,
    site: str | Path | None = None,
    patience: float = 86400.0,
    isolate: bool = False,
) -> SiteSummary:
    """Take part in a study with an objective of this site until the study has ended; observations stay here.

    - `approval`: the file that the coordinator sent.
    - `objective`: a function of a point `x (d,)` in native units, or of a configuration where the study has a space, which may
      also take `agent` and `rng`; or an object with the methods of `fedbo.objectives.base.Objective`.
    - `site`: the folder of the site, by default that of the approval.
    - `patience`: seconds without an answer of the coordinator after which the site ends.
    - `isolate`: run each evaluation in a process of its own.

    A site that was killed goes on when it joins again. Raises SitesError where the site or its policy is in the way, or the
    coordinator refuses it.
    """
    from fedbo.call_arguments import named_in_python
    from fedbo.sites.join import join_study

    with named_in_python():
        file = Path(checks.path("approval", approval, "file"))
        folder = None if site is None else Path(checks.path("site", site))
        return join_study(file, objective, folder, patience, checks.flag("isolate", isolate))


def tabulate(
    objective: str | Path,
    *,
    overrides: Overrides = (),
    points: int = 4096,
    refine: int = 0,
    agents: Sequence[int] | None = None,
    seed: int | None = None,
    replicate: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Evaluate a federation at a design by every agent, for the objective `tabulated`; return the contents of `table.json`.

    `objective` is a federation's name, with `setting=value` as `overrides`, or a study file, with overrides of a study. The
    folder `out` (by default NAME.table) is new, or holds the same table, which is then resumed or extended. Raises ValueError
    for an invalid argument, RunError when evaluating failed, and KeyboardInterrupt after Ctrl-C. Finished evaluations are kept.
    """
    from fedbo.call_arguments import check_tabulation, named_in_python, new_folder_of, overrides_of
    from fedbo.lab.tabulation.sources import source
    from fedbo.lab.tabulation.tabulation import TableRequest, tabulate

    with named_in_python():
        check_tabulation(points, refine, agents, seed, replicate, workers)
        place, changes, name = new_folder_of(out), overrides_of(overrides), str(checks.path("objective", objective, "file"))
        origin, hosting = source(name, changes, seed, replicate)
        hosting = hosting if workers is None else hosting.model_copy(update={"workers": workers})
        request = TableRequest(points, refine, None if agents is None else tuple(agents))
        return tabulate(origin, place or Path(f"{origin.name}.table"), request, hosting, _display(progress))


def _display(progress: bool) -> Progress | None:
    if not checks.flag("progress", progress):
        return None
    from fedbo.execution.progress import progress_for
    from fedbo.figures.reports.tables import console

    return progress_for(console(stderr=True))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from fedbo.settings.version import fedbo_version

        return fedbo_version()
    if name not in _PLACES:
        raise AttributeError(f"module 'fedbo' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
