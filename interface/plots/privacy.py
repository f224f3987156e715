"""The figure of privacy: epsilon spent, utility against epsilon, clipped messages, and signal to noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbo.plots.style import FAINT, INK, colours, decades, remark
from fedbo.results.privacy_summary import Ledger, ledgers

if TYPE_CHECKING:
    from fedbo.results.result import Result

STYLES = {"epsilon": "-", "pld": (0, (5, 1.5)), "rdp": (0, (2, 1.5)), "moments": (0, (1, 2))}


def draw_privacy(figure: Figure, result: Result, cell: int) -> None:
    """Draw the page for one cell."""
    found = ledgers(result.privacy, cell)
    boxes = ((0.06, 0.545), (0.56, 0.545), (0.06, 0.075), (0.56, 0.075))
    panels = [figure.add_axes((x, y, 0.42, 0.325)) for x, y in boxes]
    shades = colours(result)
    _epsilon(panels[0], result, found, shades)
    _utility(panels[1], result, cell, shades)
    _by_release(panels[2], "Messages that were clipped", "share, %", {k: 100 * v.clipped for k, v in found.items()}, shades)
    noisy = {label: ledger.signal for label, ledger in found.items() if np.isfinite(ledger.signal).all()}
    _by_release(panels[3], "Signal to noise", "norm of the sum over that of its noise", noisy, shades)
    if noisy:
        panels[3].set_yscale("log")
    remark(panels[3], "the sum itself is private: for whoever studies the method")


def _epsilon(axes: Axes, result: Result, found: Mapping[str, Ledger], shades: Mapping[str, str]) -> None:
    axes.set_title("Privacy spent")
    axes.set_xlabel("release")
    axes.set_ylabel(f"epsilon at delta = {(result.study.privacy.deltas or (np.nan,))[0]:.3g}")
    for label, ledger in found.items():
        for by, style in STYLES.items():
            values = ledger.epsilon[by]
            if len(values) and np.isfinite(values).all():
                axes.plot(np.arange(1, len(values) + 1), values, linestyle=style, color=shades[label],
                          linewidth=2.0 if by == "epsilon" else 1.0)  # fmt: skip
    for by, style in STYLES.items():
        axes.plot([], [], linestyle=style, color=INK, linewidth=1.2, label="tightest" if by == "epsilon" else by)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")


def _utility(axes: Axes, result: Result, cell: int, shades: Mapping[str, str]) -> None:
    """Draw final values against epsilon; those of algorithms that are not private as levels."""
    metric = result.metric(cell)
    axes.set_title("What it gives for what it costs")
    axes.set_xlabel("epsilon in the end, by the tightest accountant")
    axes.set_ylabel(f"{metric.name} in the end ± se")
    spent = {row.algorithm: row.epsilon[0] for row in result.spending() if row.cell == cell}
    points = {label: spent[label] for label in spent if 0 < spent[label] < float("inf")}
    for row in result.summary():
        if row.cell != cell:
            continue
        label, mean, shade = row.algorithm, row.final.mean, shades[row.algorithm]
        if label in points:
            axes.errorbar([points[label]], [mean], yerr=row.final.error, fmt="o", color=shade, capsize=3, markersize=6)
            axes.annotate(label, (points[label], mean), (7, 5), textcoords="offset points", fontsize=8.5, color=shade)
            continue
        axes.axhline(mean, color=shade, linewidth=1.2, linestyle="--")
        axes.text(0.99, mean, label, transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=8.5, color=shade)
    if points:
        decades(axes, 0.7 * min(points.values()), 1.8 * max(points.values()))


def _by_release(axes: Axes, title: str, unit: str, values: Mapping[str, np.ndarray], shades: Mapping[str, str]) -> None:
    axes.set_title(title)
    axes.set_xlabel("release")
    axes.set_ylabel(unit)
    for label, mine in values.items():
        axes.plot(np.arange(1, len(mine) + 1), mine, color=shades[label], linewidth=1.6, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not values:
        axes.text(0.5, 0.5, "no algorithm adds noise", transform=axes.transAxes, ha="center", color=FAINT)
    else:
        axes.legend(loc="best", fontsize=8.5)
