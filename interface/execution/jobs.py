"""A study as a list of jobs: first the earlier tasks of its agents, then its runs."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbo.actors.history import history_task
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.task import Task
from fedbo.algorithms.base import Problem
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.privacy.budget import DEFAULT_BUDGET, PrivacyBudget
from fedbo.coordinator.runtime.actor import Run, WarmupRun
from fedbo.objectives.base import Federation
from fedbo.objectives.derived.centralised import Centralised
from fedbo.study.environment_settings import centralised, environment_of
from fedbo.study.study import Study
from fedbo.study.tables import AlgorithmTable

_CHUNK = 4  # agents to one job of learning: enough jobs to keep all workers busy


def runs(study: Study, parts: Path) -> list[Run]:
    """List the runs: cell by cell, replicate by replicate, and all algorithms of a replicate side by side."""
    return [
        Run(
            key=RunKey(cell.number, table.title, replicate),
            task=_task(cell.study, table, replicate, parts),
            exchange=cell.study.exchange.make(),
            environment=centralised(environment_of(cell.study)) if table.centralised else environment_of(cell.study),
            folder=parts,
            hosting=study.hosting.kind,
            workers=study.hosting.workers or 1,
            until=math.inf if cell.study.budget.time is None else cell.study.budget.time,
            seconds=study.recovery.seconds,
            events=study.recovery.events,
            budget=_budget(cell.study),
        )
        for cell in study.cells()
        for replicate in range(cell.study.study.replicates)
        for table in cell.study.algorithm
    ]


def learnings(study: Study, parts: Path) -> list[WarmupRun]:
    """List the earlier tasks; cells that ask for the same history share it, and so do all algorithms."""
    jobs: dict[Path, list[WarmupRun]] = {}
    for cell in study.cells():
        table = cell.study.agents.history
        for replicate in range(cell.study.study.replicates) if table else ():
            assert table is not None
            folder = _history_folder(cell.study, replicate, parts)
            if folder is None or folder in jobs:
                continue
            task = history_task(_task(cell.study, table.algorithm, replicate if table.fresh else 0, parts))
            initial = min(table.initial, table.observations)
            problem = Problem(
                task.problem.dim, task.problem.n_agents, task.problem.targets, initial, table.observations - initial
            )
            problem = replace(problem, lattice=task.problem.lattice)
            task = replace(task, problem=problem, initial={})
            key = RunKey(cell.number, table.algorithm.title, replicate if table.fresh else 0)
            agents = range(problem.n_agents)
            chunks = [tuple(agents[place : place + _CHUNK]) for place in range(0, len(agents), _CHUNK)]
            jobs[folder] = [WarmupRun(key, task, chunk, folder) for chunk in chunks]
    return [job for chunked in jobs.values() for job in chunked]


def _task(study: Study, table: AlgorithmTable, replicate: int, parts: Path) -> Task:
    problem, federation = study.problem_of(table), study.federation()
    given = study.initial_points() if problem.initial else None
    task = Task(
        federation=federation,
        algorithm=table.make(),
        problem=problem,
        streams=Streams(study.study.seed, replicate),
        noise=study.objective.noise,
        initial={agent: points for (agent, number), points in (given or {}).items() if number == replicate},
        histories=_history_folder(study, replicate, parts),
        policy=study.evaluation.make(),
        checkpoint=study.agents.checkpoint,
        **_early_end(study, federation),
    )
    if not table.centralised:
        return task
    # The one agent begins where the first target does.
    initial = {0: task.initial[study.targets[0]]} if task.initial else {}
    return replace(task, federation=Centralised(federation), initial=initial, histories=None)


def _early_end(study: Study, federation: Federation) -> dict[str, Any]:
    """Say when a run in virtual time ends early; in real time the monitor of all runs looks after it."""
    target, count, metric = study.budget.target, study.budget.evaluations, federation.metric
    if study.timing.clock == "wall":
        return {}
    return {"target": None if target is None else metric.sign * (target - metric.offset), "evaluations": count}


def _budget(study: Study) -> PrivacyBudget:
    asked = study.privacy
    masks = asked.secure_aggregation.make() if asked.secure_aggregation is not None else None
    return PrivacyBudget(asked.deltas or DEFAULT_BUDGET.deltas, asked.epsilon_max, asked.secure_noise, masks)


def _history_folder(study: Study, replicate: int, parts: Path) -> Path | None:
    table = study.agents.history
    if table is None:
        return None
    tables = (study.objective, table, study.evaluation)
    made_of = [*(each.model_dump(mode="json") for each in tables), study.study.seed]
    name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    return parts / "histories" / f"{name}-{replicate if table.fresh else 0:04d}"
