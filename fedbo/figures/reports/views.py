"""The views of `fedbo show`: each as tables, as plain data and as records, and in the written forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from fedbo.analysis.comparison import TargetValue
from fedbo.analysis.disruptions import trouble, trouble_by_agent
from fedbo.analysis.privacy_summary import spending, spending_together
from fedbo.analysis.recommendation import best_configurations, best_table
from fedbo.analysis.records.records import ResultTable, Tabular
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.regret import regret_summary
from fedbo.analysis.result import Result
from fedbo.figures.reports.answers import regret_table
from fedbo.figures.reports.configurations import configurations_table
from fedbo.figures.reports.disruptions import disruptions_table, facts_of, tables_of, trouble_facts
from fedbo.figures.reports.privacy import privacy_table
from fedbo.figures.reports.tables import plain


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
            "privacy": lambda: privacy_table(result),
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
            "privacy": lambda: spending(result),
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
        total = spending_together(result) if self.name == "privacy" else None
        makers: dict[str, Any] = {
            "summary": dict,
            "trouble": lambda: trouble_facts(result, self.agents),
            "privacy": lambda: {
                "privacy": plain(spending(result)),
                "privacy_together": plain([] if total is None else [total]),
            },
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
