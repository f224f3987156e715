"""A diagram of critical differences, and performance profiles, over many runs; and the section of a report that shows them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.figures.reports.html import html_of
from fedbo.figures.reports.views import statistics_table
from fedbo.figures.style import FAINT, INK, STYLE, colour_at, darken, decades, style_at, styled
from fedbo.lab.benchmarking.significance import Overview, Ranking, overview
from fedbo.lab.benchmarking.tasks import CostToLevel, factors_of


def draw_overview(found: Overview, dark: bool = False) -> Figure:
    """Return the figure: mean ranks with bars over methods not shown to differ, and a profile for each axis of cost."""
    with styled(STYLE):
        count = len(found.ranking.labels)
        figure = Figure(figsize=(13, 2.3 + 0.26 * count + 3.7), layout="constrained")
        costs = [one for one in found.costs if one.axis != "bytes"]
        grid = figure.add_gridspec(2, len(costs), height_ratios=(2.0 + 0.26 * count, 4.0))
        draw_ranks(figure.add_subplot(grid[0, :]), found.ranking)
        for place, one in enumerate(costs):
            draw_profile(figure.add_subplot(grid[1, place]), one, costs)
        figure.legend(*figure.axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=min(count, 7))
        return darken(figure) if dark else figure


def draw_ranks(axes: Axes, found: Ranking) -> None:
    """Draw mean ranks on a line, the best on the left, as in Demsar 2006, figure 1."""
    order, count = found.order, len(found.labels)
    left = order[: (count + 1) // 2]
    lines = (count + 1) // 2
    shift = 0.26 * len(found.groups) + 0.5
    for place in order:
        best = place in left
        level = order.index(place) if best else count - 1 - order.index(place)
        y, end = -shift - 0.55 * level, 1 - 0.03 * (count - 1) if best else count + 0.03 * (count - 1)
        axes.plot([found.mean[place]] * 2 + [end], [0, y, y], color=colour_at(place), linewidth=1.5)
        words = f"{found.labels[place]}  {found.mean[place]:.2f}" if best else f"{found.mean[place]:.2f}  {found.labels[place]}"
        axes.text(end, y, f"{words} " if best else f" {words}", ha="right" if best else "left", va="center", fontsize=10.5)
    for number, group in enumerate(found.groups):
        ranks = [found.mean[place] for place in group]
        y = -0.3 - 0.26 * number
        axes.plot([min(ranks) - 0.02, max(ranks) + 0.02], [y, y], color=INK, linewidth=4, solid_capstyle="butt")
    axes.plot([1, count], [0, 0], color=INK, linewidth=1.2)
    for rank in range(1, count + 1):
        axes.plot([rank, rank], [0, 0.12], color=INK, linewidth=1.2)
        axes.text(rank, 0.2, str(rank), ha="center", va="bottom", fontsize=10, color=FAINT)
    shown = min(found.critical, count - 1)
    axes.plot([1, 1 + shown], [0.95, 0.95], color=FAINT, linewidth=1.5, marker="|", markersize=8)
    longer = "" if shown == found.critical else ", longer than the axis"
    axes.text(1, 1.1, f"critical difference {found.critical:.2f}{longer}", fontsize=9.5, color=FAINT, va="bottom")
    axes.set(xlim=(1 - 0.32 * (count - 1), count + 0.32 * (count - 1)), ylim=(-shift - 0.55 * (lines - 1) - 0.4, 1.75))
    axes.set_title(f"Mean ranks over {found.tasks} task{'s' * (found.tasks > 1)}: bars join methods not shown to differ")
    axes.set_axis_off()


def draw_profile(axes: Axes, found: CostToLevel, all_of_them: Sequence[CostToLevel]) -> None:
    """Draw the share of problems that each method solved within a factor of the least cost."""
    factors = factors_of(all_of_them)
    shares = found.profile(factors)
    for place, label in enumerate(found.labels):
        axes.plot(factors, shares[:, place], drawstyle="steps-post", label=label, **style_at(place))
    decades(axes, 1.0, float(factors[-1]))
    axes.set(ylim=(-0.02, 1.04), xlabel=f"{found.axis}, as a multiple of the best method's")
    axes.set_title(f"Performance profile: {found.axis}")
    if found is all_of_them[0]:
        axes.set_ylabel("share that reached the level")


def statistics_section(results: Sequence[Result]) -> Markup:
    """Compare the methods of several runs over their tasks, if they are comparable; empty for one run."""
    if len(results) < 2:
        return Markup()
    try:
        found = overview(results)
    except ResultError as error:
        return Markup("<p class=faint>{}.</p>").format(str(error))
    with styled(STYLE):
        drawn = io.StringIO()
        draw_overview(found).savefig(drawn, format="svg", metadata={"Date": None})
    picture = base64.b64encode(drawn.getvalue().encode()).decode()
    image = '<div class="scroll ranks"><img alt="Mean ranks and performance profiles" src="data:image/svg+xml;base64,{}"></div>'
    figure = Markup(image).format(picture)
    return Markup("\n").join([figure, *(html_of(statistics_table(table)) for table in found.tables())])
