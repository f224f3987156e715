"""The effects of a fork as a table, and as plain data."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.figures.reports.tables import gap_in_words, plain, table_of
from fedbo.lab.fork.result import BEST, COSTS, Fork

_HEADINGS = ("algorithm", "at", "what", "original ± se", "changed ± se", "effect [95 %]")


def fork_table(fork: Fork) -> RenderableType:
    """Format the effect of a change on each algorithm, a table for each cell of a sweep; only changed facts."""
    tables, effects = list[RenderableType](), fork.effects()
    moved = [one for one in effects if one.original != one.changed]
    changing = {one.fact for one in moved} | {BEST}
    labels = dict.fromkeys(one.algorithm for one in effects)  # in their order
    shown = {one.algorithm for one in moved} or set(labels)
    for cell, title in enumerate(fork.original.study.titles()):
        metric = fork.original.metric(cell)
        lines = [
            (
                one.algorithm if one.fact == BEST else "",
                one.at if one.fact == BEST else "",
                f"best {metric.name}" if one.fact == BEST else COSTS[one.fact],
                str(one.original),
                str(one.changed),
                gap_in_words(one.difference, metric.sign if one.fact == BEST else -1),
            )
            for one in effects
            if one.cell == cell and one.fact in changing and one.algorithm in shown
        ]
        tables.append(table_of(title, _HEADINGS, lines))
    changed = f"changed: {', '.join(fork.changes) or 'nothing'}; differences are paired by replicate, on the same draws"
    if same := [COSTS[fact] for fact in COSTS if fact in {one.fact for one in effects} - changing]:
        changed += f"; unchanged: {', '.join(same)}"
    if unchanged := [label for label in labels if label not in shown]:
        changed += f"; no effect on: {', '.join(unchanged)}"
    if fork.original.privacy.num_rows:
        changed += ". A fork on real data spends privacy again: add its epsilon to the epsilon of the run"
    return Group(*tables, Text(changed, style="dim"))


def fork_facts(fork: Fork) -> dict[str, Any]:
    """Return a fork as plain data."""
    return {
        "directory": str(fork.directory),
        "at": list(fork.at),
        "changes": list(fork.changes),
        "effects": plain(fork.effects()),
    }
