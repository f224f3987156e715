"""Figures of the search space, as in Optuna: every trial, and the relation of parameters to the value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedbo.analysis.finished_run import configurations, own_metric
from fedbo.analysis.traces import Array
from fedbo.analysis.trials import FAILED, FORGOTTEN, PAUSED
from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel, PlotError, row_labels
from fedbo.figures.style import FAINT, INK, mark_at, rows_only, styles

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

FEWEST = 10  # trials from which importances are computed
LINES = 300  # of parallel coordinates: more cannot be told apart
PANELS = 12  # slices that are drawn unless others are asked for
FADING = colormaps["viridis"].reversed()  # the late and the good are dark
_BARS = "#2C6AA0"
_WITHOUT_VALUE = (FAILED, FORGOTTEN, PAUSED)


@dataclass(frozen=True, slots=True)
class ParameterColumn:
    """The values of one parameter `(n,)`; numbers of `words` if it is categorical, NaN where it is inactive."""

    name: str
    values: Array
    log: bool
    words: tuple[str, ...] | None

    @property
    def shares(self) -> Array:
        """Return the values scaled to the range from the least (0) to the largest (1)."""
        scaled = np.log(self.values) if self.log else self.values
        low, high = np.nanmin(scaled), np.nanmax(scaled)
        return np.asarray((scaled - low) / (high - low or 1.0))


@dataclass(frozen=True, slots=True)
class SearchTrials:
    """The trials of one cell in the order of their ends: `value (n,)` in native units, NaN without one."""

    parameters: Sequence[ParameterColumn]
    value: Array
    algorithm: Sequence[str]
    replicate: Sequence[int]
    agent: Array
    name: str
    sign: int

    @property
    def good(self) -> Array:
        """Return the mask of trials with a value."""
        return np.isfinite(self.value)

    @property
    def whose(self) -> str:
        """Return the methods, and how many agents and replicates are drawn together."""
        counts = (len(np.unique(self.agent)), "agent"), (len(set(self.replicate)), "replicate")
        several = [f"{count} {word}s" for count, word in counts if count > 1]
        return ", ".join(dict.fromkeys(self.algorithm)) + f" ({' and '.join(several)} together)" * bool(several)


def search_panels(result: Result, cell: int, kind: str) -> tuple[list[FigurePanel], list[Artist]]:
    """Return the panels of a kind of figure, and their common legend entries."""
    found = _trials(result, cell)
    if not found.good.any():
        raise PlotError(f"no figure '{kind}' of cell {cell}: no evaluation has a value; see fedbo show --trouble")
    if kind == "history":
        return [FigurePanel("history", partial(_history, found=found, known=styles(result)), wide=True)], []
    if kind == "importance":
        panel = FigurePanel("importance", partial(_importance, found=found), wide=True, rows=len(found.parameters))
        return [panel], [Patch(color=_BARS, label=found.whose)]
    whose = Line2D([], [], linestyle="none", label=found.whose)
    if kind == "parallel":
        count = int(found.good.sum())
        few = f"; {LINES} of {count:,} trials, evenly by value" if count > LINES else ""
        whose.set_label(f"{found.whose}{few}")
        return [FigurePanel("parallel", partial(_parallel, found=found), wide=True)], [
            *_ends("worst value", "best value"),
            whose,
        ]
    panels = [
        FigurePanel(one.name, partial(_slice, found=found, column=one), shown=place < PANELS)
        for place, one in enumerate(found.parameters)
    ]
    return panels, [*_ends("first trial", "last trial"), whose]


def _trials(result: Result, cell: int) -> SearchTrials:
    table = result.trials().to_arrow()
    rows = [number for number, each in enumerate(table["cell"].to_pylist()) if each == cell]
    rows.sort(key=table["finished"].to_pylist().__getitem__)
    table = table.take(rows)
    known = configurations(result, cell)
    parameters = [_column(name, table, _logarithmic(result, cell, name)) for name in known.names]
    value = np.array([np.nan if each is None else each for each in table["value"].to_pylist()], dtype=np.float64)
    status = table["status"].to_pylist()
    value[[each in _WITHOUT_VALUE for each in status]] = np.nan
    metric = own_metric(result, cell)
    who = {name: table[name].to_pylist() for name in ("algorithm", "replicate", "agent")}
    # What never changes, such as a constant of a typed space, has nothing to show.
    varied = [one for one in parameters if len(np.unique(one.values[np.isfinite(one.values)])) > 1] or parameters[:1]
    return SearchTrials(
        varied,
        value,
        who["algorithm"],
        replicate=who["replicate"],
        agent=np.array(who["agent"]),
        name=metric.name,
        sign=metric.sign,
    )


def _column(name: str, table: Any, log: bool) -> ParameterColumn:
    taken = f"param_{name}"
    values = table[taken if taken in table.column_names else name].to_pylist()
    if all(each is None or (isinstance(each, int | float) and not isinstance(each, bool)) for each in values):
        return ParameterColumn(
            name, np.array([np.nan if each is None else each for each in values], dtype=np.float64), log, None
        )
    words = tuple(dict.fromkeys(str(each) for each in values if each is not None))
    codes = [np.nan if each is None else float(words.index(str(each))) for each in values]
    return ParameterColumn(name, np.array(codes), False, words)


def _logarithmic(result: Result, cell: int, name: str) -> bool:
    space = configurations(result, cell).space
    if space is not None:
        return any(one.log for one in space.parameters if one.name == name)
    found = result.manifest["parameters"]
    own = found[cell] if found and isinstance(found[0], list) else found
    return any(one.get("log", False) for one in own if one["name"] == name)


def _history(axes: Axes, found: SearchTrials, known: Any) -> Sequence[Artist]:
    """Draw every trial of the first replicate in the order of their ends, and the best value so far of each algorithm."""
    first = min(found.replicate)
    mine = np.array([replicate == first for replicate in found.replicate])
    best = np.fmin if found.sign < 0 else np.fmax
    handles: list[Artist] = []
    for label in dict.fromkeys(found.algorithm):
        own = mine & np.array([name == label for name in found.algorithm])
        value = found.value[own]
        if not np.isfinite(value).any():
            continue
        number, shade = np.arange(1, len(value) + 1), known[label]["color"]
        mark = mark_at(list(known).index(label))
        axes.plot(number, value, linestyle="none", marker=mark, color=shade, markersize=3.5, alpha=0.45, markeredgewidth=0)
        style = {"color": shade, "linestyle": known[label]["linestyle"]}
        axes.plot(number, best.accumulate(value), drawstyle="steps-post", **style)
        handles.append(Line2D([], [], marker=mark, markersize=3.5, label=label, **style))
        failed = number[~np.isfinite(value)]
        axes.plot(failed, [0.0] * len(failed), "|", color=shade, transform=axes.get_xaxis_transform(), clip_on=False)
    label_panel(
        axes, f"Every trial, and the best so far (replicate {first})", "evaluations of all agents, in order of completion"
    )
    axes.set_ylabel(found.name)
    if not found.good[mine].all():
        handles.append(Line2D([], [], linestyle="none", marker="|", color=INK, label="failed"))
    return handles


def _slice(axes: Axes, found: SearchTrials, column: ParameterColumn) -> Sequence[Artist]:
    """Draw the value of each trial over one parameter, late trials darker."""
    keep = found.good & np.isfinite(column.values)
    order = np.arange(len(keep))[keep]
    axes.scatter(column.values[keep], found.value[keep], c=order, cmap=FADING, s=14, linewidths=0, alpha=0.8)
    axes.set(xlabel=column.name, ylabel=found.name)
    if column.log:
        axes.set_xscale("log")
    if column.words is not None:
        axes.set_xticks(range(len(column.words)), column.words)
    return ()


def _ends(first: str, last: str) -> list[Artist]:
    shades = ((first, FADING(0.0)), (last, FADING(1.0)))
    return [Line2D([], [], linestyle="none", marker="o", color=shade, markersize=6, label=word) for word, shade in shades]


def _parallel(axes: Axes, found: SearchTrials) -> Sequence[Artist]:
    """Draw a line for each of up to `LINES` trials through all parameters, and last its value; better ones darker, on top."""
    columns = [*found.parameters, ParameterColumn(found.name, found.value, False, None)]
    keep = found.good
    shares = np.column_stack([np.nan_to_num(one.shares, nan=-0.12) for one in columns])[keep]
    rank = np.argsort(np.argsort(found.sign * found.value[keep])) / max(1, int(keep.sum()) - 1)
    order = np.argsort(rank)
    if len(order) > LINES:
        order = order[np.linspace(0, len(order) - 1, LINES).round().astype(int)]
    paths = [np.column_stack([np.arange(len(columns)), row]) for row in shares[order]]
    axes.add_collection(LineCollection(paths, colors=FADING(rank[order]), linewidths=0.8, alpha=0.7))
    axes.set(xlim=(-0.15, len(columns) - 0.85), ylim=(-0.16, 1.06))
    for place, one in enumerate(columns):
        axes.axvline(place, color=FAINT, linewidth=0.8, zorder=3)
        for share, word in _marks(one):
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
            options: dict[str, Any] = {"ha": "left", "va": "center", "fontsize": "x-small", "bbox": box, "zorder": 4}
            axes.annotate(word, (place, share), (2, 0), textcoords="offset points", **options)
    if any(np.isnan(one.values[keep]).any() for one in found.parameters):
        axes.set_xlabel("below the axes: parameters that are not active")
    axes.set_xticks(range(len(columns)), [one.name for one in columns], rotation=25 if len(columns) > 4 else 0)
    axes.set_yticks([])
    axes.set_title(f"Trials by parameter and {found.name}")
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    return ()


def _marks(one: ParameterColumn) -> list[tuple[float, str]]:
    """Return labels for the ends of an axis, or for each of its categories."""
    if one.words is not None:
        return [(place / max(1, len(one.words) - 1), word) for place, word in enumerate(one.words)]
    return [(0.0, f"{np.nanmin(one.values):.3g}"), (1.0, f"{np.nanmax(one.values):.3g}")]


def _importance(axes: Axes, found: SearchTrials) -> Sequence[Artist]:
    """Draw each parameter's share of the total permutation importance in a random forest for the value."""
    shares, errors, explained = importances(found)
    order = np.argsort(-shares, kind="stable")
    axes.barh(range(len(order)), shares[order], xerr=errors[order], height=0.6, color=_BARS, ecolor=INK, capsize=2)
    axes.set_ylim(len(order) - 0.4, -0.6)
    row_labels(axes, [found.parameters[place].name for place in order])
    rows_only(axes)
    axes.set_xlim(left=0)
    axes.set_title("Importance of parameters")
    axes.set_xlabel(f"share of the importance ± deviation; the forest explains {100 * explained:.0f} % of unseen trials")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    return ()


def importances(found: SearchTrials) -> tuple[Array, Array, float]:
    """Return each parameter's share of the permutation importance, its deviation over shuffles, and the out-of-bag R^2.

    The forest is fitted to the values minus each agent's mean, since agents' levels are independent of the parameters. An
    inactive parameter counts as a value below all others.

    Raises:
        PlotError: there are too few trials.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    keep = found.good
    if keep.sum() < FEWEST:
        raise PlotError(
            f"figure 'importance': requires at least {FEWEST} evaluations with a value, got {int(keep.sum())}; run more"
        )
    x = np.column_stack([np.nan_to_num(one.shares, nan=-1.0) for one in found.parameters])[keep]
    y = found.value[keep].copy()
    for agent in np.unique(found.agent[keep]):
        own = found.agent[keep] == agent
        y[own] -= y[own].mean()
    forest = RandomForestRegressor(100, min_samples_leaf=2, oob_score=True, bootstrap=True, random_state=0).fit(x, y)
    made = permutation_importance(forest, x, y, n_repeats=10, random_state=0)
    mean = np.maximum(made.importances_mean, 0.0)
    total = float(mean.sum()) or 1.0
    return mean / total, made.importances_std / total, max(0.0, float(forest.oob_score_))
