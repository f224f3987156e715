"""Limits on the size of a study: its numbers, its cells and runs, and the memory that it needs.

They are checked before anything of the size of the study is created.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbo.algorithms.base import Phased, Private
from fedbo.settings.errors import SettingError
from fedbo.study.document import Loc
from fedbo.study.study_tables import StudyTables
from fedbo.study.tables import OPEN

if TYPE_CHECKING:
    from fedbo.study.environment.tables import GroupTable

# The largest whole numbers, by the end of their place in a study. The table in docs/studies.md has the main ones.
LIMITS: dict[tuple[str, ...], int] = {
    ("study", "replicates"): 100_000,
    ("objective", "agents"): 2_000_000,
    ("objective", "dimensions"): 1_000,
    ("objective",): 10**9,  # any other whole number
    ("agents", "initial"): 1_000_000,
    ("agents", "history", "observations"): 1_000_000,
    ("budget", "iterations"): 10**9,
    ("budget", "pulls"): 10**12,
    ("algorithm", "regions"): 1_000,
    ("algorithm", "features"): 10**7,
    ("algorithm", "points"): 10_000,
    ("network", "attempts"): 1_000_000,
    ("availability", "zones"): 1_000_000,
    ("evaluation", "retries"): 10_000,
    ("evaluation", "parallel"): 10_000,
    ("evaluation", "prefetch"): 10_000,
    ("hosting", "workers"): 10_000,
    ("cluster", "workers"): 1_000_000,
    ("cluster", "worker", "count"): 1_000_000,
}
CELLS, RUNS = 10_000, 100_000
RELEASES = 100_000  # iterations of an algorithm that is private, whose releases are accounted for one by one
STEPS = 1_000_000  # steps that are asked one by one whether they send
ROW = 200  # bytes in memory of one observation and its events
_AGENT = 1000  # bytes in memory of one agent, at least


def numbers(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for numbers that are too large, and for sweeps with too many cells or runs."""
    for loc, value in _numbers(study.document(), ()):
        most = _limit(loc)
        if most is not None and value > most:
            yield SettingError(loc, f"must be at most {most:,}")
    cells = math.prod(len(values) for values in study.sweep.values())
    runs = cells * study.study.replicates * len(study.algorithm)
    if cells > CELLS:
        yield SettingError(("sweep",), f"has {cells:,} cells; use fewer values, for at most {CELLS:,} cells")
    elif runs > RUNS:
        yield SettingError(
            ("study", "replicates"), f"makes {runs:,} runs of all cells and algorithms; lower it, for at most {RUNS:,} runs"
        )


def memory(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for studies that need more memory than this machine has, or too many private iterations.

    All observations are in memory at the end of a run. Releases of a private algorithm are accounted for one by one.
    """
    need, have = needed(study), machine_memory()
    if need > have:
        words = f"needs at least {need / 2**30:,.0f} GiB of memory, but this machine has {have / 2**30:,.0f} GiB"
        key = "iterations" if study.budget.iterations else "pulls"
        yield SettingError(("budget", key), f"{words}; lower it, [agents] initial, replicates, or the number of agents")
    for number, table in enumerate(study.algorithm):
        if study.budget.decisions > RELEASES and isinstance(table.make(), Private):
            yield SettingError(
                ("budget", "iterations"), f"must be at most {RELEASES:,} for [[algorithm]] {number + 1}, which is private"
            )


def needed(study: StudyTables) -> int:
    """Return a lower bound on a study's memory in bytes, data and surrogates not counted."""
    count, agents = study.federation().n_agents, study.agents
    targets = count if agents.targets == "all" else len(agents.targets)
    rows = 0
    for table in study.algorithm:
        phased = isinstance(table.make(), Phased) or bool(study.budget.pulls)
        rows += (1 if table.centralised else targets) * (agents.initial + (0 if phased else expected_decisions(study)))
        rows += 0 if table.centralised else sum(_more(study, one, phased) for one in study.group)
    histories = [(agents.history, count), *((one.history, _size(study, one)) for one in study.group)]
    history = sum((table.observations or 0) * size for table, size in histories if table is not None)
    return ROW * study.study.replicates * (rows + history) + _AGENT * count


def expected_decisions(study: StudyTables) -> int:
    """Return the decisions of a target: those of the budget, or about as many as its other bounds allow; 0 if nobody knows."""
    budget, targets = study.budget, study.agents.targets
    if not budget.is_open:
        return budget.decisions
    count, bounds = study.federation().n_agents if targets == "all" else len(targets), [float(OPEN)]
    if budget.evaluations is not None:
        bounds.append(budget.evaluations / max(count, 1))
    model = study.timing.evaluation.make()
    if study.timing.clock == "wall" or model.costs:  # whose durations are known when they have passed
        return math.ceil(min(bounds)) % OPEN
    mean = float(np.mean(model.draw(np.random.default_rng(0), 1000)))
    times = [(budget.time or math.inf) * study.evaluation.make().parallel, budget.cost or math.inf]
    return math.ceil(min(*bounds, *(time / mean for time in times))) if mean else math.ceil(min(bounds))


def _more(study: StudyTables, group: GroupTable, phased: bool) -> int:
    """Return how many more observations the agents of a group make than others, negative if fewer."""
    initial = (study.agents.initial if group.initial is None else group.initial) - study.agents.initial
    decisions = 0 if phased or group.iterations is None else group.iterations - expected_decisions(study)
    return _size(study, group) * (initial + decisions)


def _size(study: StudyTables, group: GroupTable) -> int:
    """Return the number of agents of a group, which need not be valid yet."""
    return len(group.agents or ()) or round((group.share or 0.0) * study.federation().n_agents)


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or its container's limit."""
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        told = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return have
    return min(have, int(told)) if told.isdecimal() else have


def _numbers(value: Any, loc: Loc) -> Iterator[tuple[Loc, int]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, (*loc, key)) if loc or key != "sweep" else ()
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _numbers(item, (*loc, place)) if isinstance(item, dict) else ()
    elif type(value) is int:
        yield loc, value


def _limit(loc: Loc) -> int | None:
    """Return the limit of a setting; the limit of its table applies to settings without one."""
    path = tuple(step for step in loc if isinstance(step, str))
    if path[0] == "group":  # whose tables are those of the study
        path = path[1:]
        if path[0] in ("iterations", "pulls", "initial", "history"):
            path = ("budget" if path[0] in ("iterations", "pulls") else "agents", *path)
    return LIMITS.get(path, LIMITS.get(path[:1]))
