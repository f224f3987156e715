"""Draw the picture of the README from the present code: one panel for each of the three uses.

python docs/draw_uses.py [--runs FOLDER]

It runs the studies of the README, the first one with fewer agents, and tunes five sites in real time: a minute or two.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import fedbo
from fedbo.figures.style import STYLE, save, style_at, styled

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL: dict[str, Any] = {
    "objective": {"name": "quadratic", "agents": 10, "spread": 0.1},
    "exchange": {"mode": "buffered", "k": 3},
    "cluster": {"worker": [{"name": "own", "count": 2}, {"name": "spot", "count": 4}]},
}


def study_of(name: str) -> dict[str, Any]:
    """Return the study `NAME.toml` of the README."""
    found = re.search(rf"```toml\n# {name}\.toml\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"README.md shows no {name}.toml"
    return tomllib.loads(found[1])


def ran(study: dict[str, Any], folder: Path) -> fedbo.Result:
    """Run a study, or read the run that is in its folder."""
    return fedbo.Result.open(folder) if folder.exists() else fedbo.run(study, out=folder)


def tuned(folder: Path) -> fedbo.Result:
    """Tune the five sites of the README, as its example says, or read the run that is in the folder."""
    if folder.exists():
        return fedbo.Result.open(folder)
    code = re.search(r"<!-- example: five sites -->\n```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    known: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code[1].replace("parallel=2)", f"parallel=2, out={str(folder)!r})"), "README.md", "exec"), known)
    result: fedbo.Result = known["result"]
    return result


def draw_runs(axes: Axes, result: fedbo.Result, title: str, kind: str, **options: Any) -> None:
    """Draw one panel of a figure of `fedbo plot`, with its legend below the axes."""
    result.plot(kind=kind, ax=axes, title=False, **options)
    legend = axes.get_legend()
    assert legend is not None
    words = [" ".join(text.get_text().removeprefix("exchange = ").split()) for text in legend.get_texts()]
    axes.legend(legend.legend_handles, words, fontsize="small", loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=2)
    axes.set_title(title)


def draw_sites(axes: Axes, result: fedbo.Result) -> None:
    """Draw the best value so far of each site against its evaluations."""
    for agent in range(5):
        rows = sorted((row for row in result.trials() if row["agent"] == agent), key=lambda row: row["finished"])
        best = np.maximum.accumulate([row["value"] for row in rows])
        axes.step(np.arange(1, len(best) + 1), best, where="post", label=f"site {agent}", **style_at(agent))
    axes.set(
        title="Five sites tuned together", xlabel="evaluations of a site", ylabel="best accuracy so far (higher is better)"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=3)


def draw(folder: Path) -> Figure:
    """Run the three studies and draw a panel of each."""
    figure = Figure(figsize=(12, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    spot = ran(study_of("thousand") | SMALL, folder / "cluster")
    draw_runs(left, spot, "A cluster with preemptions", "timeline")
    modes = ran(study_of("stragglers"), folder / "stragglers")
    draw_runs(middle, modes, "Error under four exchange modes", "sweep", panels=["time"])
    draw_sites(right, tuned(folder / "tuned"))
    return figure


def main() -> None:
    """Write docs/images/uses.png."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="the folder of the runs, which are kept, and read if they are there")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing, styled(STYLE | {"font.size": 11}):
        save(draw(chosen.runs or Path(passing)), ROOT / "docs" / "images" / "uses.png", dpi=133)


if __name__ == "__main__":
    main()
