"""Histories: what each agent learned, alone, in a task before the study, written to a file that only it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedbo.actors.agent import HostedAgent
from fedbo.actors.storage import atomic
from fedbo.actors.storage.history_files import history_file, sum_file
from fedbo.actors.storage.rows import RunKey, single_rows, write_rows
from fedbo.actors.task import StepRequest, Task


def history_task(task: Task) -> Task:
    """Turn a task into an earlier one: every agent optimises, alone, with draws of its own."""
    problem = replace(task.problem, targets=range(task.problem.n_agents))
    task = replace(task, target=None, evaluations=None)
    return replace(task, problem=problem, streams=task.streams.within("history "), phase="history", histories=None)


def learn(task: Task, numbers: Iterable[int], key: RunKey, folder: Path) -> None:
    """Let each of these agents make `initial + iterations` observations; agents whose file is there are left alone."""
    for number in numbers:
        path = history_file(folder, number)
        if path.exists() and sum_file(path).exists():  # the sum comes last
            continue
        agent = HostedAgent(task, number)
        total, step = task.problem.initial + task.problem.iterations, 0
        while agent.state.evaluated < total:
            agent.work(StepRequest(number, step))
            agent.commit(())
            step += 1
        atomic.write_text(sum_file(path), write_rows(list(single_rows(agent.state.rows))[:total], key, path))
