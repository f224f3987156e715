"""The figure of privacy: epsilon spent, utility against epsilon, clipped messages, and signal to noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedbo.figures.cells import cell_styles, short
from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel
from fedbo.figures.style import FAINT, INK, LINES, decades, entries, mark_at, styles
from fedbo.privacy.summary import Ledger, ledgers, spending

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

ACCOUNTS = {"epsilon": LINES[0], "pld": LINES[1], "rdp": LINES[2], "moments": LINES[3]}


@dataclass(frozen=True, slots=True)
class PrivateSeries:
    """One algorithm in one cell: its name and style in the figure, and its ledger, None if it makes no release."""

    cell: int
    algorithm: str
    name: str
    style: Mapping[str, Any]
    ledger: Ledger | None


def privacy_panels(result: Result, cells: Sequence[int]) -> tuple[list[FigurePanel], list[Artist]]:
    """Return the panels of some cells together, and their legend entries."""
    series = _series(result, cells)
    noisy = [one for one in series if one.ledger is not None and np.isfinite(one.ledger.signal).all()]
    draws: dict[str, Any] = {
        "epsilon": partial(_epsilon, result=result),
        "utility": partial(_utility, result=result),
        "clipped": partial(
            _by_release, title="Messages that were clipped", unit="share, %", of=lambda ledger: 100 * ledger.clipped
        ),
        "signal": _signal,
    }
    shown = {name: noisy if name == "signal" else series for name in draws}
    panels = [FigurePanel(name, partial(draw, series=shown[name])) for name, draw in draws.items()]
    return panels, entries({one.name: one.style for one in series})


def _series(result: Result, cells: Sequence[int]) -> list[PrivateSeries]:
    """List the series: each algorithm of one cell; of several cells, the private ones in each, and the others once."""
    known, there = styles(result), {(trace.cell, trace.algorithm) for trace in result.traces}
    books = {cell: ledgers(result.privacy, cell) for cell in cells}
    found = list[PrivateSeries]()
    chosen = cell_styles(result, cells) if len(cells) > 1 else None
    private = [label for label in result.study.labels if any(label in book for book in books.values())]
    for label in result.study.labels:
        for cell in cells if chosen is None or label in private else cells[:1]:
            if (cell, label) not in there:
                continue
            name, style = label, known[label]
            if chosen is not None and label in private:
                name = f"{label}, {' · '.join(map(short, chosen.keys))} = {chosen.titles[cell]}"
                style = {**chosen.lines[cell], **({"linestyle": known[label]["linestyle"]} if len(private) > 1 else {})}
            style = {**style, "marker": mark_at(len(found))}
            found.append(PrivateSeries(cell, label, name, style, books[cell].get(label)))
    return found


def _epsilon(axes: Axes, series: Sequence[PrivateSeries], result: Result) -> Sequence[Artist]:
    label_panel(axes, "Privacy spent", "release", f"epsilon at delta = {(result.study.privacy.deltas or (np.nan,))[0]:.3g}")
    drawn = set[str]()
    for one in series:
        for by, kind in ACCOUNTS.items():
            values = one.ledger.epsilon[by] if one.ledger is not None else np.zeros(0)
            if len(values) and np.isfinite(values).all():
                drawn.add(by)
                wide = 2.0 if by == "epsilon" else 1.0
                axes.plot(np.arange(1, len(values) + 1), values, linestyle=kind, color=one.style["color"], linewidth=wide)
    axes.set_ylim(bottom=0)
    names = {by: "tightest" if by == "epsilon" else by for by in ACCOUNTS if by in drawn}
    return [Line2D([], [], linestyle=ACCOUNTS[by], color=INK, linewidth=1.2, label=name) for by, name in names.items()]


def _utility(axes: Axes, series: Sequence[PrivateSeries], result: Result) -> Sequence[Artist]:
    """Draw final values against epsilon; those of algorithms that are not private as levels."""
    metric = result.metric(series[0].cell)
    label_panel(axes, "Performance against privacy", "final epsilon, by the tightest accountant")
    axes.set_ylabel(f"final best {metric.name} ± se")
    spent = {(row.cell, row.algorithm): row.epsilon[0] for row in spending(result)}
    final = {(row.cell, row.algorithm): row.final for row in result.summary()}
    placed = list[float]()
    for one in series:
        end, epsilon = final[one.cell, one.algorithm], spent.get((one.cell, one.algorithm), 0.0)
        if 0 < epsilon < float("inf"):
            placed.append(epsilon)
            mark = {"color": one.style["color"], "marker": one.style["marker"], "markersize": 6}
            axes.errorbar([epsilon], [end.mean], yerr=end.error, capsize=3, linestyle="none", **mark)
        else:
            axes.axhline(end.mean, color=one.style["color"], linewidth=1.2, linestyle=one.style["linestyle"])
    if placed:
        decades(axes, 0.7 * min(placed), 1.4 * max(placed))
    return ()


def _signal(axes: Axes, series: Sequence[PrivateSeries]) -> Sequence[Artist]:
    _by_release(axes, series, "Signal to noise (itself private)", "norm of the sum / norm of its noise", lambda one: one.signal)
    if series:
        axes.set_yscale("log")
    else:
        axes.text(0.5, 0.5, "no algorithm adds noise", transform=axes.transAxes, ha="center", color=FAINT)
    return ()


def _by_release(axes: Axes, series: Sequence[PrivateSeries], title: str, unit: str, of: Any) -> Sequence[Artist]:
    label_panel(axes, title, "release", unit)
    for one in series:
        if one.ledger is not None:
            values = of(one.ledger)
            axes.plot(np.arange(1, len(values) + 1), values, **one.style)
    if unit.endswith("%"):
        axes.set_ylim(-3, 103)
    return ()
