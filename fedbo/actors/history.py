"""Histories: what each agent learned alone in a task before the study, in a file that only this agent reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedbo.actors.agent import HostedAgent
from fedbo.actors.storage import atomic
from fedbo.actors.storage.history_files import history_file, sum_file
from fedbo.actors.storage.rows import Row, RunKey, single_rows, write_rows
from fedbo.actors.task import StepRequest, Task


def history_task(task: Task) -> Task:
    """Return the earlier task, in which every agent optimises alone with separate random streams."""
    problem = replace(task.problem, targets=range(task.problem.n_agents))
    task = replace(task, early_end=None, stopping=None, budgets={}, cost=math.inf)
    return replace(task, problem=problem, streams=task.streams.within("history "), phase="history", history=None)


def learn(
    task: Task, numbers: Iterable[int], key: RunKey, folder: Path, given: Mapping[int, Sequence[Row]] | None = None
) -> None:
    """Have each of these agents make `initial + iterations` observations alone, or store those in `given`, if it is set.

    Agents whose file exists are skipped.
    """
    for number in numbers:
        path = history_file(folder, number)
        if path.exists() and sum_file(path).exists():  # the sum comes last
            continue
        rows = _learned(task, number) if given is None else given.get(number, ())
        atomic.write_text(sum_file(path), write_rows(rows, key, path))


def _learned(task: Task, number: int) -> list[Row]:
    """Optimise with one agent alone and return its observations."""
    agent = HostedAgent(task, number)
    total, step = task.problem.initial + task.problem.iterations, 0
    while agent.state.evaluated < total:
        agent.work(StepRequest(number, step))
        agent.commit(())
        step += 1
    return list(single_rows(agent.state.rows))[:total]
