"""The disruptions of a run, and the comparison of a sweep's cells, as text tables and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.answers import answers
from fedbo.analysis.comparison import Comparison, TargetValue, against_first, metric_of
from fedbo.analysis.disruptions import trouble, trouble_by_agent
from fedbo.analysis.finished_run import trusted_cells
from fedbo.analysis.recommendation import best_configurations
from fedbo.analysis.result import Result
from fedbo.figures.reports.answers import before_summary, configurations_table, shows_configurations
from fedbo.figures.reports.tables import amount, gap_in_words, plain, results_table, run_facts, table_of
from fedbo.settings.rooms import optional

_COLUMNS: dict[str, Callable[[Any], str]] = {
    "rounds": lambda row: _count(row.rounds),
    "length": lambda row: _number(row.round_length),
    "sent": lambda row: _count(row.sent),
    "lost": lambda row: _count(row.lost + row.answers_lost),
    "lost to": lambda row: ", ".join(f"{cause} {_count(count)}" for cause, count in row.lost_to.items()) or "–",
    "late": lambda row: _count(row.late),
    "rejected": lambda row: _count(row.rejected),
    "stale": lambda row: _count(row.stale),
    "copies": lambda row: _count(row.duplicates + row.answer_copies),
    "given up": lambda row: _count(row.given_up),
    "falsified": lambda row: f"{_count(row.falsified)} ({_count(row.lies)} took effect)" if row.falsified else "0",
    "staleness": lambda row: "–" if row.staleness is None else f"{row.staleness:.2g} (max {row.max_staleness:g})",
    "bytes up": lambda row: _moved(row.bytes_up, row.bytes_arrived),
    "bytes down": lambda row: _moved(row.bytes_down, row.bytes_delivered),
    "busy": lambda row: f"{row.utilisation:.0%}",
    "useful": lambda row: _number(row.useful),
    "lost to crashes": lambda row: _number(row.lost_to_crashes or None),
    "to preemption": lambda row: _number(row.lost_to_preemption or None),
    "to lateness": lambda row: _number(row.lost_to_lateness or None),
    "queueing": lambda row: _number(row.queueing or None),
    "waiting": lambda row: _number(row.waiting or None),
    "away": lambda row: _number(row.away or None),
    "down": lambda row: _number(row.down or None),
    "crashes": lambda row: _count(row.crashes),
    "failed": lambda row: _count(row.failed),
    "forgotten": lambda row: _count(row.forgotten),
}

_IN_VAIN = ("lost to crashes", "to preemption", "to lateness")
_RARE = ("lost to", "stale", "falsified", *_IN_VAIN, "queueing")  # columns that are shown where there is anything in them
_OF_AGENTS = ("sent", "lost", "lost to", "late", "rejected", "stale", "falsified", "staleness", "busy", "useful", *_IN_VAIN,
              "queueing", "waiting", "away", "down")  # fmt: skip

_WORKERS: dict[str, Callable[[Any], str]] = {
    "placed": lambda row: _count(row.placed),
    "preempted": lambda row: _count(row.preempted),
    "copies": lambda row: _count(row.copies),
    "waited": lambda row: _number(row.waited),
    "longest": lambda row: _number(row.longest),
    "delayed": lambda row: f"{row.delayed:.0%}",
    "busy": lambda row: f"{row.utilisation:.0%}",
}


def tables_of(result: Result, baseline: str | None, target: TargetValue) -> RenderableType:
    """Return the summary of a run and, for a sweep, the differences of its cells, or for a single run its configurations."""
    parts = [*before_summary(result), results_table(result, baseline)]
    if result.study.sweep:
        parts += [Text(), cells_table(result, target)]
    elif shows_configurations(result):
        parts.append(configurations_table(result, best_configurations(result)))
    return Group(*parts)


def facts_of(result: Result, baseline: str | None, target: TargetValue) -> dict[str, Any]:
    """Return a run as plain data, with `cells` for a sweep."""
    cells = {"cells": cells_facts(result, target)} if result.study.sweep else {}
    found = answers(result)
    return {**run_facts(result, baseline), **cells, **({"answers": plain(list(found))} if found else {})}


def trouble_facts(result: Result, agents: bool) -> dict[str, Any]:
    """Return disruptions as plain data, with `agents` also those of every agent."""
    used = plain(_used(result))
    told = {"trouble": plain(trouble(result))} | ({"agents": plain(trouble_by_agent(result))} if agents else {})
    return {**told, **({"workers": used} if used else {})}


def disruptions_table(result: Result, agents: bool = False) -> RenderableType:
    """Return disruptions, a table for each cell of a sweep, and with `agents` one with a row for each agent."""
    rows, tables = trouble(result), list[RenderableType]()
    columns = _filled(_COLUMNS, rows)
    for cell, title in enumerate(result.study.titles()):
        lines = [(row.algorithm, *(column(row) for column in columns.values())) for row in rows if row.cell == cell]
        tables.append(table_of(title, ("algorithm", *columns), lines, "trouble"))
    tables += _agent_tables(result) if agents else []
    tables += _worker_tables(result)
    unit = result.study.timing.in_words
    said = f"means over replicates; useful to down: {unit} per optimising agent, which sum to its whole time. "
    said += "lost: in both directions. bytes: transmitted, with the share that arrived. "
    barren = [f"{row.algorithm} {row.barren:.3g}" for row in rows if row.barren]
    lacking = f"Agents without a successful evaluation: {', '.join(barren)}. " if barren else ""
    hint = "" if agents else "Add --agents for one row per agent."
    return Group(*tables, Text(f"{said}{lacking}{hint}".strip(), style="dim"))


def _filled(columns: dict[str, Callable[[Any], str]], rows: Sequence[Any]) -> dict[str, Callable[[Any], str]]:
    """Return the columns without rare empty ones; the table is wide."""
    return {
        name: column
        for name, column in columns.items()
        if name not in _RARE or any(column(row) not in ("0", "–") for row in rows)
    }


def _agent_tables(result: Result) -> list[RenderableType]:
    """Return the disruptions of every agent, a table for each algorithm in each cell."""
    rows, tables = trouble_by_agent(result), list[RenderableType]()
    columns = _filled({name: _COLUMNS[name] for name in _OF_AGENTS}, rows)
    titles = result.study.titles()
    for cell, label in dict.fromkeys((row.cell, row.algorithm) for row in rows):
        mine = [row for row in rows if (row.cell, row.algorithm) == (cell, label)]
        lines = [(str(row.agent), *(column(row) for column in columns.values())) for row in mine]
        title = ", ".join(word for word in (titles[cell], label, "by agent") if word)
        tables.append(table_of(title, ("agent", *columns), lines, "agents"))
    return tables


def _worker_tables(result: Result) -> list[RenderableType]:
    """Return the queueing of evaluations for workers, a table for each cell with a cluster."""
    used, tables = _used(result), list[RenderableType]()
    for cell, title in enumerate(result.study.titles()):
        lines = [(row.algorithm, *(column(row) for column in _WORKERS.values())) for row in used if row.cell == cell]
        tables += [table_of(f"{title} workers".strip(), ("algorithm", *_WORKERS), lines, "workers")] if lines else []
    return tables


def _used(result: Result) -> list[Any]:
    """Return the `WorkerUse` of each algorithm in each cell with a cluster."""
    worker_use = optional("worker_use")
    return [] if worker_use is None or result.study.cluster is None else worker_use(result.events, trusted_cells(result))


def cells_table(result: Result, target: TargetValue) -> RenderableType:
    """Return for each cell of a sweep an algorithm's final value, its time to the level, and their comparisons."""
    finals = {row.cell: row for row in result.summary() if row.algorithm == target.algorithm}
    titles, lines = result.study.titles(), list[tuple[str | Text, ...]]()
    for one, gap in against_first(result, target):
        count = f"{len(one.reached)} of {len(one.times)}"
        sign = metric_of(result, one.cell, target.regret).sign
        gaps = (gap_in_words(gap.final if gap else None, sign), _ratio_in_words(gap))
        lines.append(
            (titles[one.cell], str(finals[one.cell].final), gaps[0], f"{one.level:.4g}", one.mean_in_words, count, gaps[1])
        )
    ratio = "ratio to first, up to the earlier end [95 %]"
    headings = ("cell", "final ± se", "minus first [95 %]", "level", "time to level [95 %]", "reached", ratio)
    baseline = result.study.labels[0]
    level = "given" if target.level is not None else f"the final value of {baseline} in the same cell and replicate"
    said = (
        f"level: {level}. Times are geometric means; a replicate that did not reach the level counts with the end of its run "
        "(≥). Differences and ratios are paired by replicate. The ratio counts both times of a pair only up to the earlier end "
        "of the two runs, so it is not the quotient of the two times."
    )
    return Group(table_of(f"{target.algorithm}, cell by cell", headings, lines, "cells"), Text(said, style="dim"))


def _ratio_in_words(gap: Comparison | None) -> Text:
    """Format a ratio of times, green for sooner and red for later if its interval excludes one."""
    if gap is None or gap.ratio is None:
        return Text("–")
    clear = not gap.ratio.low <= 1 <= gap.ratio.high
    return Text(f"× {gap.ratio}", style=("green" if gap.ratio.mean < 1 else "red") if clear else "")


def cells_facts(result: Result, target: TargetValue) -> list[dict[str, Any]]:
    """Return the same as plain data."""
    facts = []
    for one, gap in against_first(result, target):
        times = [one.reached.get(number) for number in one.times]
        fact = {"cell": one.cell, "algorithm": one.algorithm, "level": one.level, "times": times}
        facts.append({**plain(fact), "time": plain(one.mean), "against_first": plain(gap)})
    return facts


def _moved(size: float, came: float) -> str:
    """Format the transmitted bytes, and the share that arrived if that is not all."""
    return "–" if not size else amount(size) if came == size else f"{amount(size)} ({came / size:.0%})"


def _count(mean: float) -> str:
    return f"{mean:.0f}" if mean == round(mean) else f"{mean:.1f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
