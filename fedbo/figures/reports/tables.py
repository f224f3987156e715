"""Runs, studies, catalogues and data sets as text tables, and runs as plain data."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fedbo.analysis.described import failures
from fedbo.analysis.finished_run import counted_tables
from fedbo.analysis.records.text_table import TextTable
from fedbo.objectives.goals import goals_in
from fedbo.settings.shown import ShownStream, shown, written

if TYPE_CHECKING:  # the lists of names need not wait for what reads a run
    from fedbo.algorithms.reveals import Reveals
    from fedbo.analysis.cost import CostEstimate
    from fedbo.analysis.result import Result
    from fedbo.analysis.summary import Difference, SummaryRow
    from fedbo.study.listing import Item


def results_table(result: Result, baseline: str | None = None) -> RenderableType:
    """Return the summary of a run, a table for each cell of a sweep."""
    columns = _columns(result, baseline or result.study.labels[0])
    rows, tables = result.summary(baseline), list[RenderableType]()
    for cell, title in enumerate(result.study.titles()):
        lines = [(row.algorithm, *(column(row) for column in columns.values())) for row in rows if row.cell == cell]
        tables.append(table_of(title, ("algorithm", *columns), lines, "summary"))
    return Group(*tables, Text(_legend(result), style="dim"))


def table_of(title: str, headings: Sequence[str], lines: Sequence[Sequence[str | Text]], name: str = "table") -> TextTable:
    """Return a table: a title, which may be empty, headings, and lines of words; the first column is aligned left."""
    return TextTable(name, title or name, headings, lines, title=title)


def _columns(result: Result, reference: str) -> dict[str, Callable[[SummaryRow], str | Text]]:
    gap: dict[str, Callable[[SummaryRow], str | Text]] = {
        f"minus {reference} [95 %]": lambda row: gap_in_words(row.difference, result.metric(row.cell).sign)
    }
    return {
        f"best {_name(result)} ± se": lambda row: str(row.final),
        "at half": lambda row: str(row.half),
        **(gap if len(result.study.labels) > 1 else {}),
        "federated": _federated,
        "sent/agent": lambda row: amount(row.bytes_up) if row.bytes_up else "–",
        "answers/agent": lambda row: amount(row.bytes_down) if row.bytes_down else "–",
        "time": lambda row: f"{row.duration:.4g}",
        "evaluations": lambda row: f"{row.evaluations:.0f}",
    }


def _federated(row: SummaryRow) -> str:
    """Format the share of federated queries, or of a control's replacement for them."""
    instead = row.origins.get("uniform", 0.0)
    return f"{row.federated:.0%}" if row.federated else f"({instead:.0%})" if instead else "–"


def gap_in_words(gap: Difference | None, sign: int) -> Text:
    """Format a difference, green for better and red for worse if its interval excludes zero."""
    if gap is None or math.isnan(gap.mean):
        return Text("–")
    clear = not gap.low <= 0 <= gap.high
    return Text(str(gap), style=("green" if sign * gap.mean > 0 else "red") if clear else "")


def _legend(result: Result) -> str:
    replicates = result.study.study.replicates
    unit = result.study.timing.in_words
    spread = (
        f"se and intervals over {replicates} replicates, averaged over agents; differences are paired"
        if replicates > 1
        else "one replicate: no standard errors"
    )
    names = {result.study.objective.name, *result.study.sweep.get("objective.name", ())}
    twins = [words for words in dict.fromkeys(result.manifest.get("objective", ())) if words not in names]
    on = f" On {' and '.join(twins)}, a twin." if twins else ""
    return f"{_cut_short(result)}{spread}. time: {unit}; {_name(result)} is {result.metric().direction}d.{_asked(result)}{on}"


def _asked(result: Result) -> str:
    """Return what the metrics of a study ask for, in sentences that begin with a blank; empty where it names none."""
    goals = goals_in(result.manifest)
    if not goals:
        return ""
    common, seen = goals[0].common, counted_tables(result)[0]
    words = [f"{goal.name} = {goal.reference:g}" for goal in common.objectives if goal.reference is not None]
    found = f" hypervolume is measured from {', '.join(words)}." if common.several else ""
    if common.constraints and len(seen):
        found += f" {np.mean(seen['feasible']):.0%} of the evaluations are feasible."
    return found


def _cut_short(result: Result) -> str:
    status = result.manifest["status"]
    if status == "complete":
        return ""
    ended = len(result.manifest.get("complete_runs", ()))
    total = len(result.study.titles()) * len(result.study.labels) * result.study.study.replicates
    shown = "only these are shown" if ended else "all observations are shown"
    return f"THIS STUDY IS NOT COMPLETE ({status}): {ended} of {total} runs ended, {shown}. "


def _name(result: Result) -> str:
    names = {result.metric(cell).name for cell in range(len(result.study.titles()))}
    return names.pop() if len(names) == 1 else "value"


def study_facts(
    cost: CostEstimate, private: Iterable[tuple[str, str]] = (), revealed: Mapping[str, Reveals] | None = None
) -> RenderableType:
    """Return the cost of a study, including `private` lines on its privacy, and what each algorithm's messages reveal."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        ("runs", f"{cost.runs:,}"),
        ("evaluations", f"{cost.evaluations:,}"),
        ("Ray actors at a time", f"{cost.actors:,}"),
        ("memory", f"about {amount(cost.memory)}"),
        ("messages sent", f"{cost.messages_up:,}, {amount(cost.bytes_up)}"),
        ("answers", amount(cost.bytes_down)),
    ):
        table.add_row(Text(name, style="bold"), value)
    for name, words in private:
        table.add_row(Text(name, style="bold"), words)
    for label, reveals in (revealed or {}).items():
        table.add_row(Text("messages reveal", style="bold"), f"{label}: {reveals} ({reveals.meaning})")
    return Group(
        table, Text("assumes that nothing fails, is late or is lost; see --format json for all assumptions", style="dim")
    )


def items_table(title: str, items: Sequence[Item], ranges: bool = False) -> RenderableType:
    """Return one group of names for a study, optionally with the `ranges` of their settings."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("description", ratio=3)
    shows_revealed = any(item.reveals for item in items)
    if shows_revealed:
        table.add_column("messages reveal", no_wrap=True)
    headings = dict.fromkeys(heading for item in items for heading in item.more)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    table.add_column("settings", ratio=2)
    for item in items:
        settings = ", ".join(
            _setting(name, value, item.ranges.get(name) if ranges else None) for name, value in item.settings.items()
        )
        presets = f" (presets: {', '.join(item.presets)})" if item.presets else ""
        words = [*([item.reveals] if shows_revealed else []), *(item.more.get(heading, "") for heading in headings)]
        table.add_row(item.name, Text(item.summary + presets), *words, Text(settings))
    return table


def _setting(name: str, default: str, allowed: str | None) -> str:
    return (f"{name} = {default}" if default else name) + (f" ({allowed})" if allowed else "")


def examples_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """Return the names of examples with their descriptions."""
    table = Table("example", "description", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].style, table.columns[0].no_wrap = "cyan", True
    for row in rows:
        table.add_row(row["name"], Text(row["description"]))
    return table


def health_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """Return the checks of this installation: the state of each, and a remedy if needed."""
    table = Table("what", "state", "found", "remedy", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        style = {"ok": "green", "broken": "red"}.get(row["state"], "yellow")
        table.add_row(row["what"], Text(row["state"], style=style), Text(row["found"]), Text(row["remedy"]))
    return table


def data_table(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """Return the data sets, and where each was found."""
    table = Table("data set", "state", "size", "where", "from", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        style = {"found": "green", "damaged": "red"}.get(row["state"], "yellow")
        state = Text(row["state"], style=style)
        table.add_row(row["name"], state, amount(row["size"]), row["where"] or "–", Text(row["citation"]))
    return table


def run_facts(result: Result, baseline: str | None = None) -> dict[str, Any]:
    """Return a run as plain data: its directory, its status, how many evaluations were made and failed, and its summary."""
    return {
        "directory": str(result.directory),
        "status": result.manifest["status"],
        "evaluations": len(result.observations),
        "failed_evaluations": failures(result)[0],
        "seconds": result.manifest.get("seconds"),
        "metric": result.manifest["metric"],
        "summary": plain(result.summary(baseline)),
        "best": plain(result.best()),
    }


def amount(size: float) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def console(stderr: bool = False) -> Console:
    """Return a console that, without a terminal, is as wide as its tables need."""
    stream = sys.stderr if stderr else sys.stdout
    raw = stream.raw if isinstance(stream, ShownStream) else stream
    made = ShownConsole(file=raw, highlight=False, markup=False, emoji=False)
    if made.is_terminal:
        return made
    return ShownConsole(file=raw, highlight=False, markup=False, emoji=False, width=max(160, made.width))


class ShownConsole(Console):
    """A console that escapes control characters in text, but not its own colours and cursor movements."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as a console does, or raise OutputError; without a terminal, lines longer than its width stay whole."""
        with written():
            super().print(*objects, **{"crop": self.is_terminal, **options})

    def on_broken_pipe(self) -> None:
        """Leave a broken pipe to the command, which ends without a message."""
        raise BrokenPipeError

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            part if part.control else Segment(shown(part.text), part.style, part.control) for part in buffer
        )


def plain(value: Any) -> Any:
    """Return a value as plain data for JSON: dataclasses as dictionaries, tuples as lists, None for non-finite numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
