"""A study as a list of jobs: first the earlier tasks of its agents, then its runs."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbo.actors.history import history_task
from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.task import EarlyEnd, HistoryFiles, Task
from fedbo.algorithms.base import Problem
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.runtime.actor import Run, WarmupRun
from fedbo.objectives.base import Federation
from fedbo.objectives.derived.federation import Centralised
from fedbo.settings.rooms import optional_or
from fedbo.settings.trust import admitted
from fedbo.study.agents.histories import has_history, history_sources, key_of, observed, warm_agents
from fedbo.study.agents.tables import HistoryTable
from fedbo.study.environment.groups import budgets_of
from fedbo.study.environment.models import centralised, environment_of
from fedbo.study.problems import agent_goals, goals, own_goals, with_goals
from fedbo.study.study import Cell, Study
from fedbo.study.tables import AlgorithmTable

_CHUNK = 4  # agents to one job of learning: enough jobs to keep all workers busy


def runs(study: Study, parts: Path) -> list[Run]:
    """Return the runs by cell and replicate, with all algorithms of a replicate in a row."""
    return [
        Run(
            key=RunKey(cell.number, table.title, replicate),
            task=replace(task, noise_scope=f"{cell.number}/{table.title}/"),
            exchange=cell.study.exchange.make(),
            environment=centralised(environment) if table.centralised else environment,
            folder=parts,
            hosts=study.hosting.hosts(task.problem.n_agents),
            isolate=study.hosting.isolate or study.hosting.patience is not None,
            patience=study.hosting.patience,
            labels=study.hosting.labels,
            until=math.inf if cell.study.budget.time is None else cell.study.budget.time,
            seconds=study.recovery.seconds,
            events=study.recovery.events,
            budget=optional_or("privacy_budget", None)(cell.study),
        )
        for cell in study.cells()
        for replicate in range(cell.study.study.replicates)
        for environment in (environment_of(cell.study, replicate),)
        for table in cell.study.algorithm
        for task in (_task(cell.study, table, replicate, parts),)
    ]


def learnings(study: Study, parts: Path) -> list[WarmupRun]:
    """Return the earlier tasks. Cells with equal histories share them, and so do all algorithms."""
    jobs: dict[Path, list[WarmupRun]] = {}
    for cell in study.cells():
        for replicate in range(cell.study.study.replicates):
            folder = _history_folder(cell.study, replicate, parts)
            if folder is not None and folder not in jobs:
                jobs[folder] = _learnings(cell, replicate, parts)
    return [job for chunked in jobs.values() for job in chunked]


def _learnings(cell: Cell, replicate: int, parts: Path) -> list[WarmupRun]:
    """Return the earlier tasks of one replicate, with empty histories for agents without one."""
    study, found = cell.study, list[WarmupRun]()
    folder = _history_folder(study, replicate, parts)
    assert folder is not None
    sources = history_sources(study)
    for source in sources:
        table, own = source.table, _history_replicate(source.table, replicate)
        key = key_of(source, cell.number, own)
        chunks = [tuple(source.agents[place : place + _CHUNK]) for place in range(0, len(source.agents), _CHUNK)]
        if table.algorithm is not None:
            task = _earlier_task(study, table, own, parts)
            found += [WarmupRun(key, task, chunk, folder) for chunk in chunks]
            continue
        task, rows = _task(study, study.algorithm[0], replicate, parts), observed(study, source, replicate)
        given = ({agent: rows.get(agent, []) for agent in chunk} for chunk in chunks)
        found += [WarmupRun(key, task, tuple(some), folder, some) for some in given]
    taken = {agent for source in sources for agent in source.agents}
    rest = [agent for agent in range(study.federation().n_agents) if agent not in taken]
    if rest:
        task = _task(study, study.algorithm[0], replicate, parts)
        found.append(WarmupRun(RunKey(cell.number, "none", replicate), task, tuple(rest), folder, {}))
    return found


def _earlier_task(study: Study, table: HistoryTable, replicate: int, parts: Path) -> Task:
    assert table.algorithm is not None and table.observations is not None and table.initial is not None
    task = history_task(_task(study, table.algorithm, replicate, parts))
    initial = min(table.initial, table.observations)
    known = task.problem
    problem = Problem(known.dim, known.n_agents, known.targets, initial, table.observations - initial)
    return replace(task, problem=with_goals(study, replace(problem, lattice=known.lattice)), initial={})


def _task(study: Study, table: AlgorithmTable, replicate: int, parts: Path) -> Task:
    problem, federation = study.problem_of(table), study.federation()
    given, folder = study.initial_points() if problem.initial else None, _history_folder(study, replicate, parts)
    real = study.timing.clock == "wall"
    rules = None if study.stopping is None else study.stopping.rules(study.federation(), real)
    task = Task(
        federation=federation,
        algorithm=table.make(),
        problem=problem,
        streams=Streams(study.study.seed, replicate),
        noise=study.objective.noise,
        initial={agent: points for (agent, number), points in (given or {}).items() if number == replicate},
        history=None if folder is None else HistoryFiles(folder, warm_agents(study)),
        policy=study.evaluation.make(),
        checkpoint=study.agents.checkpoint,
        budgets={agent: own if problem.initial else own._replace(initial=0) for agent, own in budgets_of(study).items()},
        slopes=getattr(study.timing.evaluation.make(), "slopes", ()),
        stopping=None if real else rules,
        reported=rules if real else None,
        code=admitted(study.document()),
        early_end=_early_end(study, federation),
        goals=goals(study),
        own_goals=own_goals(study),
        cost=math.inf if study.budget.cost is None else study.budget.cost,
        has_secret_draws=study.sites is not None and study.sites.streams == "secret",
    )
    if not table.centralised:
        return task
    # The one agent begins where the first target does.
    initial = {0: task.initial[study.targets[0]]} if task.initial else {}
    return replace(task, federation=Centralised(federation), initial=initial, history=None, budgets={})


def _early_end(study: Study, federation: Federation) -> EarlyEnd | None:
    """Return when a run in virtual time ends early; None in real time, where the monitor of all runs checks it."""
    target, count, metric = study.budget.target, study.budget.evaluations, federation.metric
    if study.timing.clock == "wall" or (target is None and count is None):
        return None
    return EarlyEnd(None if target is None else metric.sign * (target - metric.offset), count)


def _history_folder(study: Study, replicate: int, parts: Path) -> Path | None:
    """Return the folder of all agents' earlier observations for one replicate, named by a hash of their settings."""
    if not has_history(study):
        return None
    sources = history_sources(study)
    tables: list[Any] = [study.objective, sources[0].table, study.evaluation]
    made_of = [*(each.model_dump(mode="json", exclude_none=True) for each in tables), study.study.seed]
    if (asked := agent_goals(study)) is not None:
        made_of.append(asked.document())
    if sources[0].loc != ("agents", "history") or len(sources) > 1:
        made_of += [[source.table.model_dump(mode="json", exclude_none=True), list(source.agents)] for source in sources]
    name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    number = max(_history_replicate(source.table, replicate) for source in sources)
    return parts / "histories" / f"{name}-{number:04d}"


def keep_histories(before: Study, after: Study, parts: Path) -> None:
    """Copy the histories of a study to the folders of its continuation, whose settings may name them differently."""
    held, named = set[Path](), set[Path]()
    for old, new in zip(before.cells(), after.cells(), strict=True):
        for replicate in range(before.study.replicates):
            here, there = (_history_folder(cell.study, replicate, parts) for cell in (old, new))
            if here is None or there is None:
                continue
            held.add(here)
            named.add(there)
            if not there.exists():
                atomic.copy_folder(here, there)
    for folder in held - named:
        shutil.rmtree(folder)


def _history_replicate(table: HistoryTable, replicate: int) -> int:
    """Return the replicate whose histories this one uses: itself, or the first if all share those."""
    return 0 if table.fresh is False else replicate
