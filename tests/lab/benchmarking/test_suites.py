"""Suites: every task is a study that can be checked, and a suite's tasks have names of their own."""

from __future__ import annotations

import pytest

from fedbo.lab.benchmarking.suites import SUITES, SuiteTask
from fedbo.objectives.datasets.data import DataMissingError
from fedbo.study.study import load_study

TASKS = [pytest.param(task, id=f"{name}-{task.name}") for name, suite in SUITES.items() for task in suite.tasks]


@pytest.mark.parametrize("task", TASKS)
def test_the_tables_of_a_task_make_a_study(task: SuiteTask) -> None:
    tables = {"study": {"name": task.name}, "algorithm": [{"name": "random"}], **task.tables()}
    try:
        study = load_study(tables)
    except DataMissingError:
        pytest.skip("its data are not here")
    assert study.budget.iterations == task.iterations and study.agents.initial == task.initial


def test_the_tasks_of_a_suite_have_names_of_their_own() -> None:
    for name, suite in SUITES.items():
        assert suite.name == name and len({task.name for task in suite.tasks}) == len(suite.tasks)


def test_a_task_that_a_suite_lacks_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(KeyError, match="no task 'moon' in suite 'synthetic'; available: hartmann3, "):
        SUITES["synthetic"].task("moon")
