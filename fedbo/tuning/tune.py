"""The study that `fedbo.tune` makes of its arguments, and how it runs or resumes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from fedbo.algorithms.catalog import algorithms
from fedbo.analysis.manifest import STUDY, read_manifest
from fedbo.call_arguments import named_in_python, overrides_of, succeeded
from fedbo.callbacks import callbacks_of
from fedbo.execution.directory import differing_code, unfinished
from fedbo.execution.extension import why_no_extension
from fedbo.execution.notices import FirstFailure
from fedbo.execution.runner import extend_study, resume_study, run_study
from fedbo.figures.illustration import illustrate
from fedbo.figures.reports.tables import console
from fedbo.objectives.typed_function import giving
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.arguments import flag, spelled_out
from fedbo.settings.errors import ArgumentError, closest, warn_caller
from fedbo.settings.logs import LOGGER, say
from fedbo.settings.own_modules import is_earlier
from fedbo.settings.rooms import optional
from fedbo.study.document import StudyError, as_document
from fedbo.study.paths import DirectoryError
from fedbo.study.study import Study, checked_study, recall_study
from fedbo.tuning.arguments import DEFAULTS, EVALUATION, Options, Resources, check_arguments, in_arguments, value_of_metrics
from fedbo.tuning.progress import TuningProgress
from fedbo.tuning.start import enqueued_file, start_file

if TYPE_CHECKING:
    from rich.console import Console

    from fedbo.analysis.result import Result

# What other tuners call an argument.
_ELSEWHERE = {
    **dict.fromkeys(
        ("n_trials", "num_samples", "max_evals", "n_iter"),
        "use iterations (of each agent, after its initial points), or evaluations (of all agents)",
    ),
    "direction": "use mode='min' or mode='max'",
    "directions": 'use metrics=[{"name": …, "mode": "min"}, …]',
    "timeout": "use seconds",
    "time_budget_s": "use seconds",
    "n_jobs": "use parallel (evaluations of each agent at once)",
    "max_concurrent_trials": "use parallel (evaluations of each agent at once)",
    "sampler": "use algorithm, such as 'gp_ei'",
    "search_alg": "use algorithm, such as 'gp_ei'",
    "pruner": "use stopping, such as 'asha', with steps",
    "scheduler": "use stopping, such as 'asha', with steps",
    "n_startup_trials": "use initial",
    "points_to_evaluate": "use enqueue",
    "random_state": "use seed",
    "storage": "use out, the directory of the run, and resume=True to continue",
    "storage_path": "use out, the directory of the run",
}


@spelled_out(Options, DEFAULTS)
def tune(
    objective: Callable[..., Any], space: Any, agents: int = 1, *, progress: bool = False, **options: Unpack[Options]
) -> Result:
    """Tune a function of a configuration at several sites at once, in real time on Ray, and return the results.

    Each of `agents` sites evaluates `objective(configuration)`: a number, or a dictionary of numbers with the key `metric`.
    This value is maximised, or with `mode="min"` minimised; `metrics` makes other numbers objectives, or limits them. The
    function gets `agent`, a generator `rng` and a `report(value, step)` if it has parameters of these names. `space` is a
    `ConfigSpace.ConfigurationSpace`, a dictionary of ranges and choices, or a space of Ray Tune or Optuna.

    Every agent makes `initial` and `iterations` evaluations. Up to `parallel` of them run at once, and up to `prefetch` more
    are decided in advance. Each evaluation reserves `resources` (one table, or one for each agent: CPU, GPU, memory in MiB, and
    custom resources). It may take `time_limit` seconds and `memory_limit` MiB, and is retried up to `retries` times.

    An agent decides nothing more once its evaluations have taken `cost` seconds. Tuning ends early after `seconds`, after a
    total of `evaluations`, when an agent reaches `target`, or when one of the `callbacks`, which are called for every
    evaluation, returns True. An evaluation of several `steps` may stop early by its reports, by the rules of `stopping`. In a
    space of at most 2,048 configurations none is evaluated twice, and tuning ends when all were; with `repeats`, for noisy
    objectives, they are evaluated again.

    `start` are earlier evaluations: pairs of a configuration and its value, a .csv or .parquet file, the directory of a run, an
    `optuna.Study`, or a dictionary of these by agent. The configurations in `enqueue` are evaluated first, in place of random
    ones.

    `algorithm` is a name or a table with settings, by default the preset "careful" of `trust_best`, `fts` with `metrics`, and
    `gp_ei` for a single agent. `seed`, `name` and `failure`, for failed evaluations, are as in a study. `address` is a Ray
    cluster, and `study` has tables of a study, which override all else. With `resume`, a study in `out` goes on. `progress`
    shows how far it is. `mirror` is an Optuna storage that gets each evaluation. Raises the errors of `run` (docs/tuning.md).
    """
    with named_in_python():
        terminal = console(stderr=True)
        terminal.quiet = not flag("progress", progress)
        with giving(_place_of(objective), objective):
            result = succeeded(_tuned(objective, space, agents, options, terminal), warn=False)
    _, trouble = illustrate(result)
    if trouble:
        warn_caller(trouble, RuntimeWarning)
    return result


def _tuned(function: Callable[..., Any], space: Any, agents: int, options: Options, console: Console) -> Result:
    options = _given_options(options)
    callbacks = [FirstFailure(), *callbacks_of(options.get("callbacks", DEFAULTS["callbacks"]))]
    study = tuning_study(function, space, agents, options)
    progress = None if console.quiet and not LOGGER.isEnabledFor(logging.INFO) else _progress(study, console)
    callbacks += [] if progress is None else [progress]
    out = Path(options["out"]) if "out" in options else None
    if "mirror" in options:
        callbacks.append(_mirror(study, options["mirror"], (out, options.get("resume", False))))
    if not options.get("resume"):
        if out is not None and unfinished(out):
            raise DirectoryError(f"'{out}': contains an unfinished run; add resume=True, or choose another directory")
        return run_study(study, out, progress, callbacks)
    if out is None:
        raise ArgumentError("resume = True: requires the directory of the study; add out=…")
    if not unfinished(out):
        if not (out / "manifest.json").exists():
            return run_study(study, out, progress, callbacks)
        if not _same(study, out):
            return extend_study(out, partial(_extended, study, out), progress, callbacks, mixed=True)
        from fedbo.analysis.result import Result

        return Result.open(out)
    if not _same(study, out):
        words = "contains an unfinished run of another study than these arguments define"
        raise DirectoryError(f"'{out}': {words}; resume it with its original arguments, then extend it")
    # The objective is often edited between runs of a tuning script, so a change is allowed.
    place = {"hosting.address": options["address"]} if "address" in options else {}  # the cluster may have another one now
    return resume_study(out, overrides_of(place), progress, callbacks, changed_code=True)


def _mirror(study: Study, place: Any, run: tuple[Path | None, bool]) -> Any:
    with suppress(ImportError):
        if (mirror := optional("mirror")) is not None:
            return mirror(study, place, *run)
    raise ArgumentError("mirror: needs Optuna, and the part of fedbo for it; run pip install optuna, or leave it out")


def _progress(study: Study, console: Console) -> TuningProgress:
    objective, budget = study.federation(), study.budget
    total = objective.n_agents * (study.agents.initial + budget.decisions)
    total = total if budget.evaluations is None else min(total, budget.evaluations)
    return TuningProgress(console, total, objective.metric.sign > 0)


def _given_options(options: Options) -> Options:
    """Return the options that are not None (the default); ArgumentError where one is unknown."""
    if unknown := sorted(set(options) - set(Options.__annotations__)):
        if unknown[0] in _ELSEWHERE:
            raise ArgumentError(f"tune(): has no argument '{unknown[0]}'; {_ELSEWHERE[unknown[0]]}")
        near = closest(unknown[0], Options.__annotations__)
        words = f"did you mean '{near}'?" if near else f"available: {', '.join(sorted(Options.__annotations__))}"
        raise ArgumentError(f"tune(): has no argument '{unknown[0]}'; {words}")
    return cast(Options, {name: value for name, value in options.items() if value is not None})


def tuning_study(function: Callable[..., Any], space: Any, agents: int, options: Options) -> Study:
    """Return the study of these arguments; ArgumentError when one of them is invalid."""
    check_arguments(function, space, agents, options)
    metric, mode = value_of_metrics(options)
    settings: Options = {**DEFAULTS, **options}
    document: dict[str, Any] = {
        "study": {"name": settings["name"], "seed": settings["seed"]},
        "objective": {
            "name": "typed_function",
            "function": _place_of(function),
            "space": written_space(space),
            "agents": agents,
            "direction": "maximise" if mode == "max" else "minimise",
            "metric_name": metric,
        }
        | _given(options, steps="steps"),
        "agents": {"initial": settings["initial"]},
        "budget": _given(options, target="target", evaluations="evaluations", time="seconds", cost="cost")
        | {"iterations": settings["iterations"]},
        "algorithm": [_algorithm(options.get("algorithm", _default_algorithm(agents, options)))],
        "timing": {"clock": "wall"},
        "evaluation": _given(settings, **{name: name for name in EVALUATION})
        | {"resources": _tables(options.get("resources", {}))},
        "hosting": {"kind": "dedicated"} | _given(options, address="address"),
    }
    if "enqueue" in options:
        folder, size = _beside(options), (agents, document["agents"]["initial"], document["study"]["seed"])
        file, count = enqueued_file(options["enqueue"], document["objective"]["space"], size, folder)
        document["agents"] = {"initial_file": str(file), "initial": count}
    _end_with_space(document, options)
    if "metrics" in options:
        document["metric"] = [dict(table) for table in options["metrics"]]
    if "stopping" in options:
        stopping = options["stopping"]
        table = document["stopping"] = {"kind": stopping} if isinstance(stopping, str) else dict(stopping)
        if table.get("variant") == "promote" and "resources" not in options:  # only separate tasks can pause
            document["evaluation"]["resources"] = _tables({"CPU": 1.0})
    if "start" in options:
        metrics = options.get("metrics", ())
        file = start_file(options["start"], document["objective"]["space"], agents, mode, _beside(options), metrics)
        document["agents"]["history"] = {"file": str(file), "warm_start": True}
    more = options.get("study", {})
    for name, table in more.items():
        document[name] = {**document.get(name, {}), **table} if isinstance(table, Mapping) else table
    document = as_document(document)
    try:
        with giving(_place_of(function), function):
            return checked_study(document, Path.cwd(), trust=True)
    except StudyError as found:
        raise in_arguments(found, document, more) from None


def _beside(options: Options) -> Path:
    return Path(options.get("out", "runs/tuning")).absolute().parent


def _end_with_space(document: dict[str, Any], options: Options) -> None:
    """Limit the budget to the number of configurations, unless repeats are on or there are start points."""
    every = read_space(document["objective"]["space"]).every()
    if every is None or options.get("repeats") or "start" in options:
        return
    agents = document["agents"]
    initial = agents["initial"] = agents["initial"] if "initial_file" in agents else min(agents["initial"], len(every) - 1)
    document["budget"]["iterations"] = max(1, min(document["budget"]["iterations"], len(every) - initial))


def _default_algorithm(agents: int, options: Options) -> str | dict[str, Any]:
    """Return `gp_ei` for one agent, for several `trust_best`, or `fts` where there are limits or several objectives."""
    if agents == 1:
        return "gp_ei"
    has_metrics = "metrics" in options or "metric" in options.get("study", {})
    return "fts" if has_metrics or "trust_best" not in algorithms() else {"name": "trust_best", "preset": "careful"}


def _algorithm(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of an algorithm; `fts` sends after every evaluation, since agents tune one point at a time."""
    table = {"name": given} if isinstance(given, str) else dict(given)
    return {"every": 1, **table} if table.get("name") == "fts" else table


def _given(options: Options, **names: str) -> dict[str, Any]:
    return {key: options[name] for key, name in names.items() if name in options}  # type: ignore[literal-required]


def _tables(resources: Resources | Sequence[Resources]) -> list[dict[str, float]]:
    """Return the resources as one table for all agents or one for each; an empty table if none are set."""
    several = [resources] if isinstance(resources, Mapping) else list(resources)
    return [{str(name): float(amount) for name, amount in table.items()} for table in several] or [{}]


def _place_of(function: Callable[..., Any]) -> str:
    """Return the place from which every process can import a function; without one, the function itself is passed on."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", type(function).__name__)
    there = sys.modules.get(str(module))
    if module not in (None, "__main__") and (getattr(there, name, None) is function or is_earlier(function)):
        return f"{module}:{name}"
    return f"given:{name}"


def _same(study: Study, directory: Path) -> bool:
    """Return whether a directory holds this study; warn where it has ended and the objective has changed since."""
    manifest = read_manifest(directory)
    if manifest["study_sha256"] != study.digest(manifest.get("code", {})):
        check_function(study, directory)
        return False
    if manifest["status"] == "complete" and (differ := differing_code(manifest, study)):
        words = "changed after the run started; its results come from the earlier version"
        say(f"warning: {', '.join(differ)} {words}")
    return True


def check_function(study: Study, directory: Path) -> None:
    """Raise DirectoryError if a directory tuned a function of another name, such as one of a script that is now a module."""
    before = recall_study(directory / STUDY).objective.settings.get("function", "")
    begun, now = (str(each).removeprefix("given:") for each in (before, study.objective.settings["function"]))
    if before and begun != now:
        words = f"tuned the function '{begun}', not '{now}'"
        raise DirectoryError(f"'{directory}': {words}; call fedbo.tune from the original program, or use another out")


def _extended(study: Study, directory: Path, before: Study) -> Study:
    """Return the study; DirectoryError where it is more than an extension of the study before."""
    if why := why_no_extension(before, study):
        words = f"contains another study than these arguments define, and cannot be extended to it: {why[0]}"
        raise DirectoryError(f"'{directory}': {words}; or set another out and start={str(directory)!r}")
    return study
