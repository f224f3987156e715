"""The best configurations of a run as text tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.finished_run import own_metric
from fedbo.analysis.recommendation import ESTIMATED, EVALUATED, UNKNOWN, BestConfiguration
from fedbo.analysis.result import Result
from fedbo.figures.reports.tables import table_of
from fedbo.objectives.typed_spaces.nesting import flattened

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
        lines = [(_who(one), _value(one), _written(one)) for one in mine]
        names = [own_metric(result, cell).name, *(name for name in mine[0].metrics if name != own_metric(result, cell).name)]
        headings = ("agent", ", ".join(names), "configuration")
        tables.append(replace(table_of(", ".join(filter(None, words)), headings, lines, "best"), numbers=False))
    return Group(*tables, Text(_legend(found), style="dim"))


def shows_configurations(result: Result) -> bool:
    """Return whether the summary includes configurations: that of a single run, such as a tuning, with few agents."""
    return len({(trace.algorithm, trace.replicate) for trace in result.traces}) == 1 and len(result.traces) <= _FEW


def _who(one: BestConfiguration) -> str:
    return "all" if one.agent is None else str(one.agent)


def _value(one: BestConfiguration) -> str:
    if one.value is None:
        return "–"
    if len(one.metrics) > 1:
        return ", ".join(f"{each:.4g}" for each in one.metrics.values())
    return f"{one.value:.4g}" if one.error is None else f"{one.value:.4g} ± {one.error:.2g}"


def _written(one: BestConfiguration) -> str:
    if one.known == UNKNOWN:
        return f"unknown: {one.why}"
    return ", ".join(f"{name} = {_number(value)}" for name, value in flattened(one.configuration).items())


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
