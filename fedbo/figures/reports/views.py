"""Views of a run for `fedbo show` in all formats, and tables over several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.comparison import TargetValue
from fedbo.analysis.disruptions import trouble, trouble_by_agent
from fedbo.analysis.recommendation import best_configurations, best_table
from fedbo.analysis.records.records import ResultTable, Tabular
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.regret import regret_summary
from fedbo.analysis.result import Result
from fedbo.analysis.side_by_side import RunRow, run_names
from fedbo.figures.reports.answers import configurations_table, regret_table
from fedbo.figures.reports.disruptions import disruptions_table, facts_of, tables_of, trouble_facts
from fedbo.figures.reports.tables import amount, gap_in_words, plain, table_of
from fedbo.settings.rooms import optional_or


@dataclass(frozen=True, slots=True)
class ReportView:
    """A view of a run: its `name`, and the options of the views.

    "summary" compares with the `baseline`, and for a sweep has the `target`; "best" is of one `algorithm`, or of all; "trouble"
    has a row for each agent too with `agents`.
    """

    name: str
    baseline: str | None
    target: TargetValue
    algorithm: str | None = None
    agents: bool = False

    def shown(self, result: Result) -> RenderableType:
        """Return the view as tables and remarks."""
        makers: dict[str, Callable[[], RenderableType]] = {
            "summary": lambda: tables_of(result, self.baseline, self.target),
            "trouble": lambda: disruptions_table(result, self.agents),
            "privacy": lambda: optional_or("privacy_table", "")(result),
            "regret": lambda: regret_table(result),
            "best": lambda: configurations_table(result, best_configurations(result, self.algorithm)),
            "trials": lambda: self.records(result).in_words(),
            "printed": lambda: self.records(result).in_words(),
        }
        return makers[self.name]()

    def records(self, result: Result) -> Tabular:
        """Return the view as records, with all digits."""
        makers: dict[str, Callable[[], Tabular]] = {
            "summary": lambda: result.summary(self.baseline),
            "trouble": lambda: (trouble_by_agent if self.agents else trouble)(result),
            "privacy": lambda: optional_or("spending", None)(result),
            "regret": lambda: regret_summary(result),
            "best": lambda: best_table(result, self.algorithm),
            "trials": result.trials,
            "printed": lambda: ResultTable("printed", result.printed),
        }
        return makers[self.name]()

    def facts(self, result: Result) -> dict[str, Any]:
        """Return the summary of a run as plain data, with the view's own data."""
        if self.name == "printed":
            return {"printed": plain(result.printed.to_pylist())}
        makers: dict[str, Any] = {
            "summary": dict,
            "trouble": lambda: trouble_facts(result, self.agents),
            "privacy": lambda: optional_or("privacy_facts", {})(result),
            "regret": lambda: {"regret": plain(regret_summary(result))},
            "best": lambda: {"configurations": plain([one.facts() for one in best_configurations(result, self.algorithm)])},
            "trials": lambda: {"trials": plain(result.trials().to_arrow().to_pylist())},
        }
        return {**facts_of(result, self.baseline, self.target), **makers[self.name]()}


def written(shown: RenderableType, form: str) -> str:
    """Format tables and remarks as "markdown" or "latex", where remarks are comments."""
    return "\n".join(_written(shown, form))


def _written(shown: RenderableType, form: str) -> Iterator[str]:
    if isinstance(shown, Group):
        for part in shown.renderables:
            yield from _written(part, form)
    elif isinstance(shown, TextTable):
        yield shown.latex() if form == "latex" else shown.markdown()
    elif words := str(shown).strip():
        yield "".join(f"% {line}\n" for line in words.splitlines()) if form == "latex" else f"{words}\n"


def runs_table(results: Sequence[Result], rows: Sequence[RunRow]) -> RenderableType:
    """Return a table with a line for each algorithm in each cell of each run."""
    metric, swept, first = results[0].metric(), any(row.cell for row in rows), run_names(results)[0]
    units = {result.study.timing.in_words for result in results}
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
