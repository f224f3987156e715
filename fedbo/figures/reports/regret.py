"""Regret on the mean of all agents' functions, as a text table and as plain data."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.regret import RegretRow
from fedbo.analysis.result import Result
from fedbo.figures.reports.tables import table_of

HEADINGS = ("algorithm", "agents", "rounds", "R(T)/M ± sd", "R(T)", "last", "messages/agent", "numbers up", "numbers down")


def regret_table(result: Result) -> RenderableType:
    """Write a line for each algorithm, in a table for each cell."""
    rows = result.regret_summary()
    tables = [
        table_of(title, HEADINGS, [_line(row) for row in rows if row.cell == cell])
        for cell, title in enumerate(result.study.titles())
    ]
    legend = (
        "R(T)/M: sum over the evaluations of an agent of f* - f(x), f the mean of all agents' functions; mean over agents, "
    )
    legend += "± one standard deviation over replicates. numbers: of eight bytes, transmitted by and to each agent"
    return Group(*tables, Text(legend, style="dim"))


def _line(row: RegretRow) -> tuple[str, ...]:
    deviation = "" if row.deviation is None else f" ± {row.deviation:.2g}"
    return (
        row.algorithm,
        f"{row.agents:,}",
        f"{row.rounds:,.0f}",
        f"{row.mean:.4g}{deviation}",
        f"{row.total:.4g}",
        f"{row.last:.3g}",
        f"{row.rounds_up:.4g}",
        f"{row.scalars_up:,.4g}",
        f"{row.scalars_down:,.4g}",
    )
