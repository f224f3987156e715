"""The style of each cell of a sweep: its colour and line style, and the legend entries that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize, to_hex

from fedbo.figures.style import COLOURS, INK, LINES, entries, style_at

if TYPE_CHECKING:
    from fedbo.analysis.result import Result
    from fedbo.study.study import Study

NAME_KEYS = ("mode", "model", "kind", "name")  # keys whose values name a table of settings, and are shown alone
MAX_ENTRIES = 8  # of a legend for one key
MAX_SHADES = 8  # more values than this, and numbers get a continuous map

# Without its last, yellow part, which is hard to see on white.
SHADES = LinearSegmentedColormap.from_list("shades", colormaps["viridis"]([step / 20 * 0.85 for step in range(21)]))


@dataclass(frozen=True, slots=True)
class CellStyles:
    """The styles of cells: keyword arguments of lines and a short title for each, and the swept `keys`.

    `handles` are the entries of their legend, which shows only some of many cells.
    """

    lines: Mapping[int, Mapping[str, Any]]
    titles: Mapping[int, str]
    keys: Sequence[str]
    handles: Sequence[Artist] = ()


def cell_styles(result: Result, cells: Sequence[int]) -> CellStyles:
    """Return the styles of some cells.

    Colours encode the values of one swept key: shades if they are numbers. With two swept keys, the one with fewer values, at
    most four, sets the line style. With more keys every cell has a separate shade. Lines and markers differ too, so that cells
    can be distinguished in grey.
    """
    values = {cell: dict(result.manifest["cells"][cell]) for cell in cells}
    keys = [key for key in values[cells[0]] if len({_word(values[cell][key]) for cell in cells}) > 1]
    titles = {cell: " · ".join(_word(values[cell][key]) for key in keys) or str(cell) for cell in cells}
    counts = {key: len({_word(values[cell][key]) for cell in cells}) for key in keys}
    styled = min(reversed(keys), key=counts.__getitem__) if len(keys) == 2 else None
    if len(keys) == 2 and styled is not None and counts[styled] <= len(LINES):
        coloured = next(key for key in keys if key != styled)
        return _styles(values, coloured, styled, titles)
    if len(keys) == 1:
        return _styles(values, keys[0], None, titles)
    shades = _sampled(len(cells))
    lines = {cell: {**style_at(place), "color": shades[place]} for place, cell in enumerate(cells)}
    return CellStyles(
        lines,
        titles,
        keys,
        _legend([(lines[cell], ", ".join(f"{short(key)} = {_word(values[cell][key])}" for key in keys)) for cell in cells]),
    )


def _styles(
    values: Mapping[int, Mapping[str, Any]], coloured: str, styled: str | None, titles: Mapping[int, str]
) -> CellStyles:
    found = {_word(chosen[coloured]): chosen[coloured] for chosen in values.values()}
    of_value: dict[str, dict[str, Any]] = {}
    for place, (word, colour) in enumerate(_shades(found).items()):
        # Where styles are for the other key, markers tell values apart in grey.
        marked = {**style_at(place * len(LINES)), "linestyle": "-"} if styled is not None else style_at(place)
        of_value[word] = {**marked, "color": colour}
    lines = {cell: dict(of_value[_word(chosen[coloured])]) for cell, chosen in values.items()}
    handles = _legend([(options, f"{short(coloured)} = {word}") for word, options in of_value.items()])
    if styled is not None:
        words = list(dict.fromkeys(_word(chosen[styled]) for chosen in values.values()))
        style = dict(zip(words, LINES, strict=False))
        for cell, chosen in values.items():
            lines[cell]["linestyle"] = style[_word(chosen[styled])]
        handles += _legend([({"color": INK, "linestyle": style[word]}, f"{short(styled)} = {word}") for word in words])
    keys = [key for key in next(iter(values.values())) if key in (coloured, styled)]
    return CellStyles(lines, titles, keys, handles)


def is_swept(study: Study, key: str) -> bool:
    """Return whether a sweep sets a key, a table that has it, or a part of it: the study itself has only its default."""
    return any(key.startswith(f"{one}.") or f"{one}.".startswith(f"{key}.") for one in study.sweep)


def short(key: str) -> str:
    """Return the last part of a dotted key, for short labels."""
    return key.rsplit(".", 1)[-1]


def _legend(lines: Sequence[tuple[Mapping[str, Any], str]]) -> list[Artist]:
    """Return the legend entries of lines with their options; of too many lines, evenly chosen ones."""
    places = np.unique(np.linspace(0, len(lines) - 1, min(len(lines), MAX_ENTRIES)).round().astype(int))
    return entries({lines[place][1]: lines[place][0] for place in places})


def _shades(found: Mapping[str, Any]) -> dict[str, str]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found.values())
    if not numbers:
        chosen = COLOURS if len(found) <= len(COLOURS) else _sampled(len(found))
        return dict(zip(found, chosen, strict=False))
    ordered = sorted(found, key=found.__getitem__)
    if len(found) <= MAX_SHADES:
        rank = dict(zip(ordered, _sampled(len(found)), strict=True))
        return {word: rank[word] for word in found}
    low, high = float(found[ordered[0]]), float(found[ordered[-1]])
    norm = LogNorm(low, high) if low > 0 and high >= 20 * low else Normalize(low, high)
    return {word: to_hex(SHADES(float(norm(float(found[word]))))) for word in ordered}


def _sampled(count: int, shades: Colormap = SHADES) -> list[str]:
    return [to_hex(shades(place / max(1, count - 1))) for place in range(count)]


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(_word(item) if key in NAME_KEYS else f"{key} {_word(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
