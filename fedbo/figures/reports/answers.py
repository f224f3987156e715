"""Tables that come before the summary of some studies: the regret of bandits, and the answers of ADMM."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.finished_run import ResultError, own_metric
from fedbo.analysis.regret import RegretRow, plays_bandits, regret_summary
from fedbo.analysis.result import Result
from fedbo.analysis.statistics.answers import AnswerRow, answers
from fedbo.figures.reports.tables import table_of

HEADINGS = ("algorithm", "agents", "rounds", "R(T)/M ± sd", "R(T)", "last", "messages/agent", "numbers up", "numbers down")


def regret_table(result: Result) -> RenderableType:
    """Return the regret, a table for each cell with a line for each algorithm."""
    rows = regret_summary(result)
    tables = [
        table_of(title, HEADINGS, [_regret_line(row) for row in rows if row.cell == cell])
        for cell, title in enumerate(result.study.titles())
    ]
    legend = (
        "R(T)/M: sum over the evaluations of an agent of f* - f(x), f the mean of all agents' functions; mean over agents, "
    )
    legend += "± one standard deviation over replicates. numbers: of eight bytes, transmitted by and to each agent"
    return Group(*tables, Text(legend, style="dim"))


def _regret_line(row: RegretRow) -> tuple[str, ...]:
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


_HEADINGS = ("agents", "cost ± se", "violation", "primal residual", "dual residual", "time")


def before_summary(result: Result) -> list[RenderableType]:
    """Return the tables that come before the summary; none for most studies."""
    parts = list[RenderableType]()
    if found := answers(result):
        parts += [answers_table(result, found), Text()]
    if plays_bandits(result):
        try:
            parts += [regret_table(result), Text()]
        except ResultError as error:
            parts += [Text(f"Regret is unknown: {error}", style="dim"), Text()]
    return parts


def answers_table(result: Result, found: list[AnswerRow]) -> RenderableType:
    """Return the answers, a table for each cell with a line for each algorithm that agrees on a point."""
    tables = list[RenderableType]()
    for cell, title in enumerate(result.study.titles()):
        lines = [_line(row) for row in found if row.cell == cell]
        name = ", ".join(filter(None, (title, "the common point")))
        tables += [table_of(name, ("algorithm", *_HEADINGS), lines, "answers")] if lines else []
    said = (
        f"cost: {own_metric(result).name} of the common points, mean over agents; violation: distance of these points from "
        "the constraint; residuals: the last that agents knew; time: of the last answer"
    )
    return Group(*tables, Text(said, style="dim"))


def _line(row: AnswerRow) -> tuple[str, ...]:
    numbers = ("–" if value is None else f"{value:.3g}" for value in (row.violation, row.primal, row.dual))
    return (row.algorithm, f"{row.agents:.4g}", str(row.cost), *numbers, f"{row.time:.4g}")
