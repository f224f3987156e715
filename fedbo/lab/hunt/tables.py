"""The result of a hunt as a table and as plain data."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.figures.reports.tables import plain, table_of
from fedbo.lab.hunt.result import FOUND, REPLAY, WORLD, Hunt
from fedbo.settings.shown import quoted


def hunt_table(hunt: Hunt) -> RenderableType:
    """Format the sentence, the verdicts, and the reported world."""
    parts = list[RenderableType]([Text(str(hunt))])
    rows = [
        (
            row.how + (" *" if place == hunt.verdict else ""),
            row.tables or "as the study",
            str(row.lines),
            str(len(row.excesses)),
            f"{row.mean:.3g}",
            f"{row.low:.3g}",
            f"{row.corrected:.2g}",
        )
        for place, row in enumerate(hunt.verdicts)
    ]
    columns = ("world", "its tables", "lines", "replicates", "mean excess", "at least (95 %)", "p, corrected")
    if rows:
        parts.append(table_of(f"Verdicts on fresh seeds: {hunt.quantity}", columns, rows, "verdicts"))
    if hunt.broken:
        last = hunt.verdicts[-1]
        if last.how != "shrunk":
            parts.append(Text("no smaller world was found in which the claim fails as clearly"))
        elif hunt.reported is not last:
            parts.append(Text("the shrunk world does not break the claim on fresh seeds, so the world before it is reported"))
        world = quoted(hunt.directory / WORLD)
        parts.append(Text(hunt.world.rstrip()))
        parts.append(Text(f"run it again: fedbo run {world}; before shrinking: {hunt.directory / FOUND}", style="dim"))
        parts.append(Text(f"replay: {hunt.directory / REPLAY}", style="dim"))
    search, verdicts, shrinking = hunt.trials
    parts.append(Text(f"trials: {search} of the search, {verdicts} of verdicts, {shrinking} of the shrinking", style="dim"))
    return Group(*parts)


def hunt_facts(hunt: Hunt) -> dict[str, Any]:
    """Return the result as plain data."""
    return {**plain(hunt), "directory": str(hunt.directory), "broken": hunt.broken, "sentence": str(hunt)}
