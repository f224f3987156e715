"""The printed table of a tabulation."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.figures.reports.tables import table_of
from fedbo.objectives.base import Metric


def tabulation_table(facts: dict[str, Any]) -> RenderableType:
    """Return a line for each agent: its best value with its place, and the errors of both surfaces."""
    metric, names = Metric(**facts["metric"]), [parameter["name"] for parameter in facts["parameters"]]
    headings = ("agent", "evaluated", "failed", f"best {metric.name}", *names, "found by", "error: gp", "nearest")
    lines = [(key, *_agent_line(entry, metric, len(names))) for key, entry in facts["agents"].items()]
    return Group(table_of("", headings, lines), Text(_tabulation_legend(facts, metric), style="dim"))


def _agent_line(entry: dict[str, Any], metric: Metric, dim: int) -> tuple[str, ...]:
    best, errors = entry["best"], entry.get("left_out", {})
    found = ["–"] * (dim + 2)
    if best is not None:
        found = [f"{float(metric.native(best['value'])):.5g}", *(f"{value:.4g}" for value in best["x"]), best["origin"]]
    shown = ("–" if errors.get(name) is None else f"{errors[name]:.3g}" for name in ("gp", "nearest"))
    return f"{entry['evaluated']:,}", str(entry["failed"]), *found, *shown


def _tabulation_legend(facts: dict[str, Any], metric: Metric) -> str:
    settings = ", ".join(f"{key} = {value}" for key, value in facts["settings"].items())
    what = f"{facts['federation']}{f' ({settings})' if settings else ''}, seed {facts['seed']}, replicate {facts['replicate']}"
    errors = "error: leave-one-out root mean square over a sample"
    return f"{what}; {metric.name} is {metric.direction}d; {errors}."
