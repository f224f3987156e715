"""The effects of a fork as a table, and as plain data."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.reports.tables import gap_in_words, plain, table_of
from fedbo.results.fork import Fork

_HEADINGS = ("algorithm", "at", "as it was ± se", "changed ± se", "effect [95 %]")


def fork_table(fork: Fork) -> RenderableType:
    """Write the effect of a change on each algorithm, a table for each cell of a sweep."""
    tables, effects = list[RenderableType](), fork.effects()
    for cell, title in enumerate(fork.original.study.titles()):
        sign = fork.original.metric(cell).sign
        lines = [
            (one.algorithm, one.at, str(one.original), str(one.changed), gap_in_words(one.difference, sign))
            for one in effects
            if one.cell == cell
        ]
        tables.append(table_of(title, _HEADINGS, lines))
    changed = f"changed: {', '.join(fork.changes) or 'nothing'}; differences are paired by replicate, on the same draws"
    if fork.original.privacy.num_rows:
        changed += ". With agents of real data a fork is a second spending: add its epsilon to that of the run"
    return Group(*tables, Text(changed, style="dim"))


def fork_facts(fork: Fork) -> dict[str, Any]:
    """Give a fork as plain data."""
    return {
        "directory": str(fork.directory),
        "at": list(fork.at),
        "changes": list(fork.changes),
        "effects": plain(fork.effects()),
    }
