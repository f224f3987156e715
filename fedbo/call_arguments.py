"""The arguments of the functions of `fedbo` that take a study or a run, their names in errors, and common results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbo.analysis.described import failures, refusals
from fedbo.analysis.result import Result
from fedbo.execution.failures import RunError
from fedbo.settings import arguments
from fedbo.settings.errors import ArgumentError, EvaluationWarning, FedboError, warn_caller
from fedbo.study.document import as_document, inline

if TYPE_CHECKING:
    from fedbo.execution.progress import Progress

Overrides = Sequence[str] | Mapping[str, Any]

# What the command line calls otherwise, where a message names it.
_IN_PYTHON = (
    (re.compile(r"^--set:? ", re.MULTILINE), "overrides: "),
    (re.compile(r"--set \"?([\w.]+=(?:[^\s;,\"]+|\"[^\"]*\"))\"?"), r"overrides=['\1']"),
    (re.compile(r"--set\b"), "overrides"),
    (re.compile(r"--algorithm\b"), "algorithms"),
    (re.compile(r"--trust\b(?: \(trust=True in Python\))?"), "trust=True"),
    (re.compile(r"(?<![\w-])--(at|every|out|agents|algorithms|belief|points|seed|workers|address|callback)\b"), r"\1"),
)


@contextmanager
def named_in_python() -> Iterator[None]:
    """Replace options of the command line by arguments in the errors that are raised within."""
    try:
        yield
    except FedboError as error:
        if error.args and isinstance(error.args[0], str):
            words = error.args[0]
            for option, argument in _IN_PYTHON:
                words = option.sub(argument, words)
            error.args = (words, *error.args[1:])
        raise


def study_of(given: Any) -> Any:
    """Return a study file or the tables of a study; ArgumentError for anything else."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str | Path) and str(given):
        return arguments.path("study", given, "file")
    raise arguments.wrong("study", given, "must be a study file, or a dictionary of its tables")


def overrides_of(given: Any) -> list[str]:
    """Return overrides as `key=value`, also if they are a dictionary by dotted keys."""
    if isinstance(given, Mapping):
        return [f"{arguments.text('overrides: a key', key)}={inline(as_document(value))}" for key, value in given.items()]
    if isinstance(given, str) or not isinstance(given, Sequence):
        remedy = "must be a list such as ['budget.iterations=20'], or a dictionary such as {'budget.iterations': 20}"
        raise arguments.wrong("overrides", given, remedy)
    for place, each in enumerate(given):
        if not isinstance(each, str):
            raise arguments.wrong(f"overrides[{place}]", each, "must be a string such as 'budget.iterations=20'")
    return list(given)


def folder_of(name: str, given: Any) -> Path:
    """Return an existing directory; ArgumentError otherwise."""
    folder = Path(arguments.path(name, given))
    if not folder.is_dir():
        raise arguments.wrong(name, str(given), "is no directory; pass the directory of a run, as result.directory names it")
    return folder


def display_of(progress: Any) -> Progress | None:
    """Return the progress display on standard error if it is asked for; otherwise only records, or None."""
    from fedbo.execution.progress import progress_for, recorder
    from fedbo.figures.reports.tables import console

    return progress_for(console(stderr=True)) if arguments.flag("progress", progress) else recorder()


def results_of(given: Any, trust: Any = False) -> list[Result]:
    """Return a list of results as they are, and open the directories in it; ArgumentError for anything else."""
    if isinstance(given, str | Path) or not isinstance(given, Iterable):
        raise arguments.wrong("runs", given, "must be a list of results or of run directories, such as ['runs/a', 'runs/b']")
    arguments.flag("trust", trust)
    return [each if isinstance(each, Result) else Result.open(arguments.path("runs", each), trust) for each in given]


def new_folder_of(given: Any) -> Path | None:
    """Return the directory to be created; None for the default."""
    return None if given is None else Path(arguments.path("out", given))


def added_algorithms(given: Any) -> list[Mapping[str, Any]]:
    """Return the tables of algorithms; a name is expanded to a table."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise arguments.wrong("algorithms", given, "must be a list of tables, such as [{'name': 'ts'}]")
    tables = [{"name": each} if isinstance(each, str) else each for each in given]
    for place, table in enumerate(tables):
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            raise ArgumentError(f"algorithms[{place}] = {arguments.short(table)}: must be a table with a name; add one")
    return tables


def succeeded(result: Result, warn: bool = True) -> Result:
    """Return a run's result; RunError if all evaluations failed; warn if some did, or if most messages were refused."""
    failed, first = failures(result)
    total = len(result.observations)
    words = f"{failed} of {total} evaluations failed; first error: {first}"
    if failed and failed == total:
        raise RunError(f"{words}; all that was observed is in {result.directory}", result.directory)
    if failed and warn:
        warn_caller(words, EvaluationWarning)
    for line in refusals(result) if warn else ():
        warn_caller(line, RuntimeWarning)
    return result
