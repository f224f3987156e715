"""The figure of a fit: how many evaluations last longer, as measured and as the fitted families say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel, Look, Sheet, arrange
from fedbo.figures.plot import write
from fedbo.figures.style import INK, style_at
from fedbo.lab.twins.families import FAMILIES, CensoredTimes
from fedbo.lab.twins.fitting import FittedWorld
from fedbo.lab.twins.measurements import Measurements
from fedbo.lab.twins.survival import survival


def draw_durations(measured: Measurements, world: FittedWorld, folder: Path, source: str, dark: bool = False) -> Path:
    """Draw the durations of evaluations and the families fitted to them into a folder; return the path."""
    times, _ = measured.columns()
    assert times.agents is not None
    speed = np.array([world.evaluation.factors.get(agent, 1.0) for agent in times.agents.tolist()])
    draw = partial(_draw, times=times._replace(values=times.values / speed), world=world, unit=measured.unit)
    panel = FigurePanel("durations", draw, wide=True)
    cut = int(np.count_nonzero(~times.ended))
    facts = [
        f"{len(times.values)} evaluations",
        f"{cut} had not ended",
        *(["divided by the speed of their agents"] if world.evaluation.factors else []),
    ]
    look = Look(dark=dark)
    return write(arrange(Sheet([panel], (), f"durations of {source}", facts), look), folder, "durations", look)


def _draw(axes: Axes, times: CensoredTimes, world: FittedWorld, unit: str) -> Sequence[Artist]:
    ordered, ended, _, after = (one[0] for one in survival(times.values[None], times.ended[None]))
    shown = [axes.step([0.0, *ordered], [1.0, *after], where="post", color=INK, label="measured (Kaplan-Meier)")[0]]
    if not ended.all():
        marks = axes.plot(ordered[~ended], after[~ended], "|", color=INK, markersize=9, label="cut short")
        shown += marks
    at = np.linspace(0.0, float(ordered[-1]), 400)[1:]
    for place, one in enumerate(world.evaluation.tried):
        law = FAMILIES[one.model].law(np.array([[*one.settings.values()]]))
        style = {name: value for name, value in style_at(place).items() if name in ("color", "linestyle")}
        shown += axes.plot(at, law.sf(at[None])[0], label=f"{one.model}, p = {one.p:.2g}", **style)
    axes.set_yscale("log")
    axes.set_ylim(max(0.5 / len(ordered), 1e-4), 1.2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    label_panel(axes, "", f"duration of an evaluation{unit}", "share that lasts longer")
    return shown
