"""The style of each cell of a sweep: its colour and kind of line, and the legends that explain them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbo.plots.style import COLOURS, FAINT, INK

if TYPE_CHECKING:
    from fedbo.results.result import Result

NAME_KEYS = ("mode", "model", "kind", "name")  # what a table of settings is called by, which needs no key
MAX_SHADES = 8  # more values than this, and numbers get a continuous map
STYLES = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))

# Without its last, yellow part, which is hard to see on white.
SHADES = LinearSegmentedColormap.from_list("shades", colormaps["viridis"]([step / 20 * 0.9 for step in range(21)]))


@dataclass(frozen=True, slots=True)
class CellStyles:
    """The styles of cells: keyword arguments of lines and a short title for each, and the swept `keys`.

    `handles` are the entries of one legend for each key, `bar` is a bar of colours instead of the first.
    """

    lines: Mapping[int, Mapping[str, Any]]
    titles: Mapping[int, str]
    keys: Sequence[str]
    handles: Sequence[tuple[str, Sequence[Artist]]] = ()
    bar: ScalarMappable | None = None


def cell_styles(result: Result, cells: Sequence[int]) -> CellStyles:
    """Choose the styles of some cells.

    The values of one swept key are colours: shades where they are numbers. Where two keys are swept, the one with fewer
    values, at most four, chooses the style of the line. With more keys every cell has a shade of its own.
    """
    values = {cell: dict(result.manifest["cells"][cell]) for cell in cells}
    keys = [key for key in values[cells[0]] if len({_word(values[cell][key]) for cell in cells}) > 1]
    titles = {cell: " · ".join(_word(values[cell][key]) for key in keys) or str(cell) for cell in cells}
    counts = {key: len({_word(values[cell][key]) for cell in cells}) for key in keys}
    styled = min(reversed(keys), key=counts.__getitem__) if len(keys) == 2 else None
    if len(keys) == 2 and styled is not None and counts[styled] <= len(STYLES):
        coloured = next(key for key in keys if key != styled)
        return _styles(values, coloured, styled, titles)
    if len(keys) == 1:
        return _styles(values, keys[0], None, titles)
    shades = _sampled(len(cells))
    lines = {cell: {"color": shade} for cell, shade in zip(cells, shades, strict=True)}
    return CellStyles(lines, titles, keys, [_legend(" · ".join(keys), [(lines[cell], titles[cell]) for cell in cells])])


def explain(figure: Figure, chosen: CellStyles, others: Sequence[tuple[str, Sequence[Artist]]]) -> None:
    """Say in the head of a figure, where no curve is, what means what: legends side by side, and a bar of colours.

    `others` are the entries of more legends. What does not fit into half of the width is left to the rows of cells below.
    """
    right = 0.985
    for key, handles in reversed([*chosen.handles, *others]):
        options: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (right, 0.99), "ncols": math.ceil(len(handles) / 3)}
        legend = figure.legend(handles=list(handles), title=key, alignment="left", fontsize=9, labelspacing=0.35, **options)
        legend.get_title().set(color=FAINT, fontsize=9)
        place = legend.get_window_extent()
        if place.width > (right - 0.5) * figure.bbox.width or place.y0 < 0.89 * figure.bbox.height:
            legend.remove()
            figure.text(right - 0.01, 0.975, f"{key}: colours as below", ha="right", va="center", fontsize=9, color=FAINT)
            place = figure.texts[-1].get_window_extent()
        right -= place.width / figure.bbox.width + 0.005
    if chosen.bar is not None:
        inset = figure.add_axes((right - 0.22, 0.935, 0.2, 0.012))
        figure.colorbar(chosen.bar, cax=inset, orientation="horizontal")
        inset.set_title(chosen.keys[0], fontsize=9, fontweight="normal", pad=5, loc="left", color=FAINT)
        inset.tick_params(labelsize=8.5, length=2)
        inset.grid(visible=False)


def _styles(
    values: Mapping[int, Mapping[str, Any]], coloured: str, styled: str | None, titles: Mapping[int, str]
) -> CellStyles:
    found = {_word(chosen[coloured]): chosen[coloured] for chosen in values.values()}
    shade, bar = _shades(found)
    lines: dict[int, dict[str, Any]] = {cell: {"color": shade[_word(chosen[coloured])]} for cell, chosen in values.items()}
    handles = [] if bar else [_legend(coloured, [({"color": colour}, word) for word, colour in shade.items()])]
    if styled is not None:
        words = list(dict.fromkeys(_word(chosen[styled]) for chosen in values.values()))
        style = dict(zip(words, STYLES, strict=False))
        for cell, chosen in values.items():
            lines[cell]["linestyle"] = style[_word(chosen[styled])]
        handles.append(_legend(styled, [({"color": INK, "linestyle": style[word]}, word) for word in words]))
    keys = [key for key in next(iter(values.values())) if key in (coloured, styled)]
    return CellStyles(lines, titles, keys, handles, bar)


def _legend(key: str, entries: Sequence[tuple[Mapping[str, Any], str]]) -> tuple[str, Sequence[Artist]]:
    return key, [Line2D([], [], linewidth=2, label=word, **options) for options, word in entries]


def _shades(found: Mapping[str, Any]) -> tuple[dict[str, str], ScalarMappable | None]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found.values())
    if not numbers:
        chosen = COLOURS if len(found) <= len(COLOURS) else _sampled(len(found))
        return dict(zip(found, chosen, strict=False)), None
    ordered = sorted(found, key=found.__getitem__)
    if len(found) <= MAX_SHADES:
        rank = dict(zip(ordered, _sampled(len(found)), strict=True))
        return {word: rank[word] for word in found}, None
    low, high = float(found[ordered[0]]), float(found[ordered[-1]])
    norm = LogNorm(low, high) if low > 0 and high >= 20 * low else Normalize(low, high)
    bar = ScalarMappable(norm, SHADES)
    return {word: to_hex(SHADES(float(norm(float(value))))) for word, value in found.items()}, bar


def _sampled(count: int, shades: Colormap = SHADES) -> list[str]:
    return [to_hex(shades(place / max(1, count - 1))) for place in range(count)]


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(_word(item) if key in NAME_KEYS else f"{key} {_word(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
