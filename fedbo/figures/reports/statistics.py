"""The statistics over many runs, and runs side by side, as text tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.result import Result
from fedbo.analysis.statistics.side_by_side import RunRow, run_names
from fedbo.figures.reports.tables import amount, gap_in_words, table_of


def runs_table(results: Sequence[Result], rows: Sequence[RunRow]) -> RenderableType:
    """Return a table with a line for each algorithm in each cell of each run."""
    metric, swept, first = results[0].metric(), any(row.cell for row in rows), run_names(results)[0]
    units = {"seconds" if result.study.timing.clock == "wall" else "virtual" for result in results}
    headings = ["run", *(["cell"] if swept else []), "algorithm", f"best {metric.name} ± se", f"minus {first} [95 %]",
                "sent/agent", "answers/agent", "time", "evaluations", "replicates"]  # fmt: skip
    lines: list[tuple[str | Text, ...]] = [
        (
            row.run, *([row.cell] if swept else []), row.algorithm, str(row.final), gap_in_words(row.difference, metric.sign),
            amount(row.bytes_up) if row.bytes_up else "–", amount(row.bytes_down) if row.bytes_down else "–",
            f"{row.duration:.4g}", f"{row.evaluations:.0f}", str(row.replicates),
        )
        for row in rows
    ]  # fmt: skip
    said = f"{metric.name} is {metric.direction}d. Differences from the same algorithm in {first} are paired. "
    seeds = {result.study.study.seed for result in results}
    said += "The seeds differ; runs with another seed than the first have no paired difference. " if len(seeds) > 1 else ""
    cut = [result.directory.name for result in results if result.manifest["status"] != "complete"]
    said += f"Not complete: {', '.join(cut)}. " if cut else ""
    return Group(table_of("", headings, lines, "runs"), Text(f"{said}time: {' or '.join(sorted(units))}.", style="dim"))


def statistics_table(table: TextTable) -> RenderableType:
    """Return a table with its remarks below; final values have a line for each method, so that its name fits."""
    shown = table
    if table.name == "finals":
        (_, *headings), *rows = zip(*[table.headings, *table.rows], strict=True)
        shown = replace(table, headings=["algorithm", *headings], rows=rows)
    return Group(shown, Text("\n".join([table.caption, *table.remarks]), style="dim"))
