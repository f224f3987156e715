"""Tables and remarks for a terminal as HTML, so that a report has the same words and numbers."""

from __future__ import annotations

from markupsafe import Markup, escape
from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.records.text_table import TextTable

_MANY = 12  # columns that do not fit on a page but closely
_EMPTY = {"0", "–", ""}
_CLASSES = {"green": "better", "red": "worse"}


def html_of(shown: RenderableType, full: bool = True) -> Markup:
    """Return a table, a text, or a group of them as HTML; TypeError for any other type.

    A table that is not `full` has no empty columns.
    """
    if isinstance(shown, Group):
        return Markup("\n").join(html_of(part, full) for part in shown.renderables)
    if isinstance(shown, TextTable):
        return _table(shown, full)
    if isinstance(shown, Text | str):
        return Markup("<p class=faint>{}</p>").format(str(shown)) if str(shown) else Markup("")
    raise TypeError(f"{type(shown).__name__}: only tables and texts can be written")


def _table(table: TextTable, full: bool) -> Markup:
    """Return a table as HTML with its title as caption; words are aligned left, numbers right as in a terminal."""
    kept = [
        place
        for place in range(len(table.headings))
        if full or not place or not _EMPTY.issuperset(str(row[place]) for row in table.rows)
    ]
    caption = Markup("<caption>{}</caption>").format(table.title) if table.title else Markup("")
    headings = [
        Markup("<th{}>{}</th>").format(_number_class(place > 0 and table.numbers), table.headings[place]) for place in kept
    ]
    head = Markup("<thead><tr>{}</tr></thead>").format(Markup("").join(headings))
    rows = [
        Markup("<tr>{}</tr>").format(Markup("").join(_cell(row[place], place > 0 and table.numbers) for place in kept))
        for row in table.rows
    ]
    body = Markup("").join(rows)
    dense = Markup(' class="dense"') if len(kept) > _MANY else Markup("")
    return Markup('<div class="scroll"><table{}>{}{}<tbody>{}</tbody></table></div>').format(dense, caption, head, body)


def _cell(cell: str | Text, number: bool) -> Markup:
    marked = _CLASSES.get(str(cell.style)) if isinstance(cell, Text) else None
    words = Markup('<span class="{}">{}</span>').format(marked, str(cell)) if marked else escape(str(cell))
    return Markup("<td{}>{}</td>").format(_number_class(number), words)


def _number_class(number: bool) -> Markup:
    return Markup(' class="number"') if number else Markup("")
