"""Tables beside the summary: the regret of bandits, the answers of ADMM, and the best configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.answers import AnswerRow, answers
from fedbo.analysis.finished_run import ResultError, own_metric
from fedbo.analysis.recommendation import ESTIMATED, EVALUATED, UNKNOWN, BestConfiguration
from fedbo.analysis.regret import RegretRow, plays_bandits, regret_summary
from fedbo.analysis.result import Result
from fedbo.figures.reports.tables import table_of
from fedbo.objectives.typed_spaces.declared_space import flattened

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


_FEW = 10  # agents whose configurations are shown with the summary


def configurations_table(result: Result, found: Sequence[BestConfiguration]) -> RenderableType:
    """Return the best configuration of each agent, and the one recommended for all, as tables."""
    titles, tables = result.study.titles(), list[RenderableType]()
    if not found:
        return Text("No evaluation has a value, so there is no best configuration.")
    for cell, label, replicate in dict.fromkeys((one.cell, one.algorithm, one.replicate) for one in found):
        mine = [one for one in found if (one.cell, one.algorithm, one.replicate) == (cell, label, replicate)]
        words = [titles[cell], f"best configurations of {label}"]
        words += [f"replicate {replicate}"] if result.study.study.replicates > 1 else []
        lines = [("all" if one.agent is None else str(one.agent), _value(one), _written(one)) for one in mine]
        names = [own_metric(result, cell).name, *(name for name in mine[0].metrics if name != own_metric(result, cell).name)]
        headings = ("agent", ", ".join(names), "configuration")
        tables.append(replace(table_of(", ".join(filter(None, words)), headings, lines, "best"), numbers=False))
    return Group(*tables, Text(_legend(found), style="dim"))


def shows_configurations(result: Result) -> bool:
    """Return whether the summary includes configurations: that of a single run, such as a tuning, with few agents."""
    return len({(trace.algorithm, trace.replicate) for trace in result.traces}) == 1 and len(result.traces) <= _FEW


def _value(one: BestConfiguration) -> str:
    if one.value is None:
        return "–"
    if len(one.metrics) > 1:
        return ", ".join(f"{each:.4g}" for each in one.metrics.values())
    return f"{one.value:.4g}" if one.error is None else f"{one.value:.4g} ± {one.error:.2g}"


def _written(one: BestConfiguration) -> str:
    if one.known == UNKNOWN:
        return f"unknown: {one.why}"
    values = flattened(one.configuration).items()
    return ", ".join(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}" for name, value in values)


def _legend(found: Sequence[BestConfiguration]) -> str:
    kinds = {one.known for one in found if one.agent is None}
    words = []
    if EVALUATED in kinds:
        words.append("all: the best mean over agents, among configurations that every agent evaluated.")
    if ESTIMATED in kinds:
        words.append(
            "all: no configuration was evaluated by every agent; the best mean over agents is estimated from a Gaussian "
            "process of each, ± one standard deviation. Evaluate it at every agent before you rely on it."
        )
    return " ".join(words)
