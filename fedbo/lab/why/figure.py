"""The figure of an answer: the probability of a bad end over time with its jumps, and the sources of luck.

A report shows the figures and tables of the answers that are kept with a run.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.result import Choices, Result
from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel, Sheet, arrange, row_labels
from fedbo.figures.plot import View, write
from fedbo.figures.reports.html import html_of
from fedbo.figures.style import COLOURS, FAINT, INK, STYLE, rows_only, styled
from fedbo.lab.why.result import Why, answers_beside
from fedbo.lab.why.tables import why_table

_FIRST, _SECOND = COLOURS[0], COLOURS[1]


def draw_why(why: Why, path: Path | None = None, look: Choices | None = None) -> Path:
    """Draw the figure of an answer and return its path, by default in its directory."""
    return write(why_figure(why, look), path or why.directory, "why", View.of("why", 0, look or {}).look)


def why_figure(why: Why, look: Choices | None = None) -> Figure:
    """Return the figure itself."""
    panels, legend = list[FigurePanel](), list[Artist]()
    if why.moments:
        panels.append(FigurePanel("moments", partial(_draw_moments, why=why)))
        panels.append(FigurePanel("sources", partial(_draw_sources, why=why), wide=True, rows=1 + len(why.sources)))
        legend = [_mark(_FIRST, "o", "it alone anew"), _mark(_SECOND, "s", "all else anew")]
    if why.spread is not None:
        panels.append(FigurePanel("shares", partial(_draw_shares, why=why), wide=True, rows=1 + len(why.spread.shares)))
        legend += [_mark(INK, "D", "share alone"), _mark(FAINT, "v", "share with others")]
    _, label, replicate = why.run
    facts = [label, *([] if replicate is None else [f"replicate {replicate}"]), f"{why.branches} branches"]
    return arrange(Sheet(panels, legend, f"why {why.end or why.quantity}", facts), View.of("why", 0, look or {}).look)


def _mark(colour: str, marker: str, label: str) -> Artist:
    return Line2D([], [], color=colour, marker=marker, linestyle="", label=label)


def _draw_moments(axes: Axes, why: Why) -> Sequence[Artist]:
    times = [row.time for row in why.moments]
    shares = [row.bad / row.draws for row in why.moments]
    low, high = ([getattr(row, name) for row in why.moments] for name in ("low", "high"))
    axes.fill_between(times, low, high, color=_FIRST, alpha=0.16, linewidth=0)
    axes.plot([*times, why.stop], [*shares, float(why.is_bad)], color=_FIRST, marker="o", markersize=3.5)
    heights = [0.3, 0.4, 0.5]  # of the events of three jumps
    for jump in why.jumps:
        axes.axvspan(jump.start, jump.stop, color=_SECOND, alpha=0.2, linewidth=0)
        if jump.events:
            axes.axvline(jump.start, color=_SECOND, linewidth=0.8)
            late = jump.start > why.stop / 2
            words, place = jump.events[0], (-5 if late else 5, 0)
            axes.annotate(
                words,
                (jump.start, heights.pop()),
                place,
                textcoords="offset points",
                fontsize="small",
                ha="right" if late else "left",
            )
    axes.set_ylim(-0.03, 1.03)
    label_panel(axes, "When was it decided?", why.time, "probability of a bad end")
    return ()


def _draw_sources(axes: Axes, why: Why) -> Sequence[Artist]:
    for place, row in enumerate(why.sources):
        alone = (_FIRST, "o", -0.14, row.anew_bad / max(1, row.anew), row.anew_interval)
        others = (_SECOND, "s", 0.14, row.others_bad / max(1, row.others), row.others_interval)
        for colour, marker, beside, share, ends in (alone, others):
            axes.plot(ends, [place + beside] * 2, color=colour, linewidth=1.2)
            axes.plot([share], [place + beside], color=colour, marker=marker, markersize=4.5)
    _label_rows(axes, [row.source for row in why.sources], "Which luck was it?", "probability of a bad end")
    return ()


def _draw_shares(axes: Axes, why: Why) -> Sequence[Artist]:
    assert why.spread is not None
    shares = sorted(why.spread.shares, key=lambda share: -share.total)
    for place, one in enumerate(shares):
        alone = (INK, "D", -0.14, one.first, (one.first_low, one.first_high))
        together = (FAINT, "v", 0.14, one.total, (one.total_low, one.total_high))
        for colour, marker, beside, share, ends in (alone, together):
            axes.plot(ends, [place + beside] * 2, color=colour, linewidth=1.2)
            axes.plot([min(1.0, max(0.0, share))], [place + beside], color=colour, marker=marker, markersize=4.5)
    _label_rows(axes, [share.source for share in shares], "Shares of the spread", f"share of the variance of {why.quantity}")
    return ()


def _label_rows(axes: Axes, names: Sequence[str], title: str, unit: str) -> None:
    axes.set(title=title, xlabel=unit, xlim=(-0.03, 1.03), ylim=(len(names) - 0.4, -0.6))
    row_labels(axes, list(names))
    rows_only(axes)


def why_section(result: Result, moving: Mapping[RunKey, str]) -> Markup:
    """Return the section; empty without answers. `moving` has the keys of the runs through whose time the page can move."""
    parts = []
    for why in answers_beside(result.directory):
        cell, label, replicate = why.run
        key = None if replicate is None else moving.get(RunKey(cell, label, replicate))
        parts.append(_answer(why) + (Markup() if key is None else _links(why, key)))
    return Markup("\n").join(parts)


def _links(why: Why, key: str) -> Markup:
    """Return links to the moments at which jumps begin, with the agent of their most unusual event."""
    found = Markup()
    for jump in why.jumps:
        agent = re.search(r"agent (\d+)", jump.events[0]) if jump.events else None
        place = f"#{key}@{jump.start:.5g}" + (f"&agent={agent[1]}" if agent else "")
        found += Markup('<li><a href="{}">move to {}</a>: {}</li>').format(
            place, f"{jump.start:.4g}", ", ".join(jump.events[:1])
        )
    return Markup("<ul>{}</ul>").format(found) if found else found


def _answer(why: Why) -> Markup:
    with styled(STYLE):
        drawn = io.StringIO()
        why_figure(why).savefig(drawn, format="svg", metadata={"Date": None})
    picture = base64.b64encode(drawn.getvalue().encode()).decode()
    what = why.end or f"spread of {why.quantity}"
    image = '<div class="scroll"><img alt="When and by which luck: {}" src="data:image/svg+xml;base64,{}"></div>'
    return Markup("<h3>{}</h3>\n").format(what) + Markup(image).format(what, picture) + html_of(why_table(why))
