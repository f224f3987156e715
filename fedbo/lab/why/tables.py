"""The answer to why a run ended as it did, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.records.text_table import TextTable
from fedbo.figures.reports.tables import plain, table_of
from fedbo.lab.why.result import SourceRow, Why
from fedbo.lab.why.shares import Share, Spread
from fedbo.settings.shown import quoted

NOT_ENOUGH = "not enough draws"


def why_table(why: Why) -> RenderableType:
    """Format an answer: what happened, when it was decided, whose luck it was, and the shares of the spread."""
    parts = list[RenderableType]([Text(headline(why))])
    if why.end:
        parts += [_moments(why), *(Text(line) for line in jump_lines(why)), _sources(why.sources, "Which luck was it?")]
    if why.agents:
        parts.append(_sources(why.agents, f"{why.causes[0]}, for one agent at a time"))
    if why.spread is not None:
        parts += [_shares(why, why.spread), Text(advice(why, why.spread))]
    if why.constant:
        parts.append(Text(f"without influence: {', '.join(why.constant)}", style="dim"))
    repeat = f"{why.branches} branches; repeat one: fedbo why {quoted(why.directory)} --branch N, from 1"
    return Group(*parts, Text(repeat, style="dim"))


def headline(why: Why) -> str:
    """Return one sentence on the run and its causes."""
    cell, label, replicate = why.run
    run = f"'{label}'" + (f", cell {cell}" if cell else "") + ("" if replicate is None else f", replicate {replicate}")
    if not why.end:
        return f"{run}: the spread of {why.quantity} over {why.runs} replicate{'s' if why.runs > 1 else ''}"
    how = "ended" if why.is_bad else "did not end"
    strong = [row.source for row in why.sources if row.weight > 1 or not why.is_bad] or list(why.causes[:1])
    words = f"{run} {how} with {why.end} ({why.quantity} {why.value:.4g}), as {why.same_end} of {why.runs} runs did"
    return f"{words}. Strongest luck: {' and '.join(strong[:2])}." if strong else f"{words}. No luck has any influence."


def _moments(why: Why) -> TextTable:
    rows = [(f"{row.time:.4g}", f"{row.bad} of {row.draws}", interval(row.low, row.high)) for row in why.moments]
    rows.append((f"{why.stop:.4g}", "the run's own end", "1" if why.is_bad else "0"))
    return table_of(
        "When was it decided? All draws after a moment made anew", ("time", "bad ends", "95 % interval"), rows, "moments"
    )


def jump_lines(why: Why) -> list[str]:
    """Return a line for each jump and each of its events."""
    lines = list[str]()
    for jump in why.jumps:
        sure = "" if jump.sure else "; the intervals overlap, so it may be chance"
        lines.append(
            f"from {jump.start:.4g} to {jump.stop:.4g} the probability went from {jump.before:.2f} to {jump.after:.2f}{sure}:"
        )
        lines += [f"  {event}" for event in jump.events]
        lines += [f"  and {jump.more} more events"] if jump.more else []
    return lines or ["no jump of at least 0.25: it was decided little by little, or before the run began"]


def _sources(rows: Sequence[SourceRow], title: str) -> TextTable:
    lines = [
        (
            row.source,
            f"{row.anew_bad} of {row.anew}",
            interval(*row.anew_interval),
            f"{row.others_bad} of {row.others}",
            interval(*row.others_interval),
        )
        for row in rows
    ]
    return table_of(title, ("source", "bad, it alone anew", "95 %", "bad, all else anew", "95 % "), lines, "sources")


def _shares(why: Why, spread: Spread) -> TextTable:
    title = f"Shares of the spread of {why.quantity}: mean {spread.mean:.4g}, standard deviation {spread.deviation:.3g}"
    rows = [
        (share.source, *_share(share.first, share.first_low, share.first_high, share), *_total(share))
        for share in sorted(spread.shares, key=lambda share: -share.total)
    ]
    return table_of(title, ("source", "alone", "95 %", "with others", "95 % "), rows, "shares")


def _share(value: float, low: float, high: float, share: Share) -> tuple[str, str]:
    if not share.enough:
        return NOT_ENOUGH, "" if value != value else interval(low, high)
    return f"{max(0.0, value):.0%}", interval(low, high)


def _total(share: Share) -> tuple[str, str]:
    return _share(share.total, share.total_low, share.total_high, share)


def advice(why: Why, spread: Spread) -> str:
    """Return how a benchmark should spend its runs (Bouthillier et al. 2021)."""
    known = [share for share in spread.shares if share.enough and share.first_low > 0]
    if not known:
        return f"{spread.rows} rows are too few to say which source matters most; set more with --rows"
    most = max(known, key=lambda share: share.first)
    left = spread.deviation * most.first**0.5
    return (
        f"Vary {most.source} in every run: with it fixed, any number of runs leaves a standard deviation of {left:.3g} "
        f"and is worth {1 / most.first:.2g} runs that vary everything."
    )


def interval(low: float, high: float) -> str:
    """Format the ends of an interval of a probability or share."""
    return f"{max(0.0, low):.2f} to {min(1.0, high):.2f}"


def why_facts(why: Why) -> dict[str, Any]:
    """Return an answer as plain data, with the command that repeats each branch."""
    facts = {**plain(why), "directory": str(why.directory), "causes": list(why.causes)}
    facts["commands"] = [f"fedbo why {quoted(why.directory)} --branch {number}" for number in range(1, why.branches + 1)]
    return facts
