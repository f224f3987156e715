"""A table of evaluations as a text table: the best value of each agent, and the errors of its surfaces."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.objectives.base import Metric
from fedbo.reports.tables import table_of


def table_table(facts: dict[str, Any]) -> RenderableType:
    """Write a line for each agent: its best value with its place, and the errors of both surfaces."""
    metric, names = Metric(**facts["metric"]), [parameter["name"] for parameter in facts["parameters"]]
    headings = ("agent", "evaluated", "failed", f"best {metric.name}", *names, "found by", "left-out error: gp", "nearest")
    lines = [(key, *_line(entry, metric, len(names))) for key, entry in facts["agents"].items()]
    return Group(table_of("", headings, lines), Text(_legend(facts, metric), style="dim"))


def _line(entry: dict[str, Any], metric: Metric, dim: int) -> tuple[str, ...]:
    best, errors = entry["best"], entry.get("left_out", {})
    found = ["–"] * (dim + 2)
    if best is not None:
        found = [f"{float(metric.native(best['value'])):.5g}", *(f"{value:.4g}" for value in best["x"]), best["origin"]]
    shown = ("–" if errors.get(name) is None else f"{errors[name]:.3g}" for name in ("gp", "nearest"))
    return f"{entry['evaluated']:,}", str(entry["failed"]), *found, *shown


def _legend(facts: dict[str, Any], metric: Metric) -> str:
    settings = ", ".join(f"{key} = {value}" for key, value in facts["settings"].items())
    what = f"{facts['federation']}{f' ({settings})' if settings else ''}, seed {facts['seed']}, replicate {facts['replicate']}"
    errors = "left-out error: root mean square over a sample, each point left out in turn"
    return f"{what}; {metric.name} is to {metric.direction}; {errors}."
