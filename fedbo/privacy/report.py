"""The privacy spent in a run, as a text table and as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.result import Result
from fedbo.figures.reports.html import html_of
from fedbo.figures.reports.tables import plain, table_of
from fedbo.privacy.check_study import times_follow_points, weak_deltas
from fedbo.privacy.estimates import NoiseNeeded, PrivacyEstimate, TotalEstimate
from fedbo.privacy.summary import PrivacySummary, PrivacyTotal, spending, spending_together
from fedbo.study.study import Study

_COLUMNS: dict[str, Callable[[PrivacySummary, int], str]] = {
    "delta": lambda row, place: f"{row.deltas[place]:.3g}",
    "epsilon": lambda row, place: _number(row.epsilon[place]),
    "weights": lambda row, place: _number(row.accounts["weights"][place]),
    "PLD": lambda row, place: _number(row.accounts["pld"][place]),
    "RDP": lambda row, place: _number(row.accounts["rdp"][place]),
    "moments": lambda row, place: _number(row.accounts["moments"][place]),
    "least": lambda row, place: _number(row.least[place]),
}
_FACTS: dict[str, Callable[[PrivacySummary], str]] = {
    "releases": lambda row: f"{row.releases:g}" + (f" ({row.refused:g} refused)" if row.refused else ""),
    "sampled": lambda row: f"{row.sampled:.3g}",
    "arrived": lambda row: f"{row.arrived:.3g}",
    "clipped": lambda row: f"{row.clipped:.1%}",
    "signal / noise": lambda row: _number(row.signal),
}


def privacy_table(result: Result) -> RenderableType:
    """Return the spending, a table for each cell of a sweep."""
    rows, parts = spending(result), list[RenderableType]()
    if not rows:
        return Text("no algorithm of this study is private")
    for cell, title in enumerate(result.study.titles()):
        lines: list[tuple[str | Text, ...]] = []
        for row in rows:
            for place in range(len(row.deltas)) if row.cell == cell else ():
                facts = [say(row) if not place else "" for say in _FACTS.values()]
                lines.append((row.algorithm if not place else "", *(say(row, place) for say in _COLUMNS.values()), *facts))
        parts.append(table_of(title, ("algorithm", *_COLUMNS, *_FACTS), lines))
    total = spending_together(result)
    parts += [Text(total_line(total))] if total is not None else []
    parts += [Text(line, style="dim") for line in [*_remarks(rows), *timing_remarks(result.study)]]
    return Group(*parts)


def privacy_facts(result: Result) -> dict[str, Any]:
    """Return the spending as plain data."""
    total = spending_together(result)
    return {"privacy": plain(spending(result)), "privacy_together": plain([] if total is None else [total])}


def privacy_section(result: Result) -> Markup:
    """Return the spending as a part of the page; empty if no algorithm is private."""
    return html_of(privacy_table(result)) if spending(result) else Markup()


def noise_table(found: Sequence[NoiseNeeded], epsilon: float) -> RenderableType:
    """Return the noise multipliers that algorithms need for an epsilon, a table for each cell of a sweep."""
    known = ("algorithm", "mode", "releases", "delta", "noise multiplier now", "epsilon now")
    parts = list[RenderableType]()
    for cell in dict.fromkeys(each.cell for each in found):
        lines = [
            (
                each.algorithm,
                each.mode,
                str(each.releases),
                f"{each.delta:.3g}",
                f"{each.noise:.4g}",
                f"{each.bound} {_number(each.epsilon)}".strip(),
                "–" if each.needed is None else f"{each.bound} {each.needed:.4g}".strip(),
            )
            for each in found
            if each.cell == cell
        ]
        parts.append(table_of(cell, (*known, f"noise for epsilon {epsilon:g}"), lines))
    said = "for one run and the agent that spends most, with the weights of each release"
    if any(each.needed is None for each in found):
        said += "; –: no noise is sufficient, or the clipping norm is infinite"
    return Group(*parts, Text(said, style="dim"))


def estimate_lines(private: Sequence[PrivacyEstimate], total: TotalEstimate | None) -> Iterator[tuple[str, str]]:
    """Yield what a study will spend and a warning of weak guarantees, each with a word before it."""
    for each in private:
        where = f" ({each.cell})" if each.cell else ""
        spent = "no privacy" if each.epsilon and each.epsilon[0] == math.inf else _at_deltas(each)
        remark = f"; no gain from sampling, {each.whole}" if each.whole else ""
        remark += f"; {each.times}, which can reveal private values" if each.times else ""
        bound = f"{each.bound} " if each.bound else ""
        yield "epsilon", f"{each.algorithm}{where}: {bound}{spent}{remark}"
    if total is not None:
        together = f"{total.bound} {_at_deltas(total)} if all {total.runs} private runs use the data of the same agents".strip()
        yield "epsilon, together", together
    if weak := weak_deltas(delta for each in private for delta in each.deltas):
        yield "warning", weak


def _at_deltas(spent: PrivacyEstimate | TotalEstimate) -> str:
    return ", ".join(f"{e:.3g} at delta {d:.3g}" for e, d in zip(spent.epsilon, spent.deltas, strict=True) if e == e)


def total_line(total: PrivacyTotal) -> str:
    """Return a line on the joint cost of all private runs."""
    spent = ", ".join(
        f"epsilon {_number(epsilon)} at delta {delta:.3g}" for epsilon, delta in zip(total.epsilon, total.deltas, strict=True)
    )
    names = ", ".join(total.algorithms)
    return (
        f"In total, agent {total.agent} has spent {spent} in the {total.runs} runs of {names}, assuming they use the same data."
    )


def timing_remarks(study: Study) -> list[str]:
    """Return lines on the information that the times of a private study reveal, outside the guarantee."""
    found = times_follow_points(study)
    return [f"Not protected: {found}, so the times of messages depend on private values."] if found else []


def _remarks(rows: list[PrivacySummary]) -> list[str]:
    said = [
        "epsilon: spent by the agent that spent most, by the tightest accountant. least: spent by the agent that spent least. "
        "weights: with the weights actually used; other columns use the declared noise multiplier."
    ]
    reasons = {row.whole: [other.algorithm for other in rows if other.whole == row.whole] for row in rows if row.whole}
    for reason, names in reasons.items():
        said.append(f"No gain from sampling, {reason.replace('it adds', 'there is')}: {', '.join(dict.fromkeys(names))}.")
    said += [weak] if (weak := weak_deltas(delta for row in rows for delta in row.deltas)) else []
    seeded = any(not row.secure for row in rows if row.noise)
    said.append(
        "Noise: from the study's seed; anyone who knows the seed can remove it." if seeded else "Noise: from a secret key."
    )
    return said


def _number(value: float) -> str:
    return "–" if value != value else "∞" if value == float("inf") else f"{value:.3g}" if value < 100 else f"{value:.0f}"
