"""Tables and remarks made for a terminal, as HTML, so that a report has the same words and numbers."""

from __future__ import annotations

from markupsafe import Markup, escape
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_MANY = 12  # columns that do not fit on a page but closely
_EMPTY = {"0", "–", ""}
_CLASSES = {"green": "better", "red": "worse"}


def html_of(shown: RenderableType, full: bool = True) -> Markup:
    """Write a table, a text, or a group of them; TypeError for anything else.

    A table that is not `full` leaves out the columns in which there is nothing.
    """
    if isinstance(shown, Group):
        return Markup("\n").join(html_of(part, full) for part in shown.renderables)
    if isinstance(shown, Table):
        return _table(shown, full)
    if isinstance(shown, Text | str):
        return Markup("<p class=faint>{}</p>").format(str(shown)) if str(shown) else Markup("")
    raise TypeError(f"{type(shown).__name__}: only tables and texts can be written")


def _table(table: Table, full: bool) -> Markup:
    """Write a table with its title as caption; words go to the left, numbers to the right as in a terminal."""
    columns = [one for one in table.columns if full or not _EMPTY.issuperset(str(cell) for cell in one.cells)]
    caption = Markup("<caption>{}</caption>").format(str(table.title)) if table.title else Markup("")
    numbers = [column.justify == "right" for column in columns]
    headings = [
        Markup("<th{}>{}</th>").format(_number_class(number), str(column.header))
        for number, column in zip(numbers, columns, strict=True)
    ]
    head = Markup("<thead><tr>{}</tr></thead>").format(Markup("").join(headings)) if table.show_header else Markup("")
    lines = zip(*(column.cells for column in columns), strict=True)
    rows = [
        Markup("<tr>{}</tr>").format(Markup("").join(_cell(cell, number) for cell, number in zip(line, numbers, strict=True)))
        for line in lines
    ]
    body = Markup("").join(rows)
    dense = Markup(' class="dense"') if len(columns) > _MANY else Markup("")
    return Markup('<div class="scroll"><table{}>{}{}<tbody>{}</tbody></table></div>').format(dense, caption, head, body)


def _cell(cell: RenderableType, number: bool) -> Markup:
    marked = _CLASSES.get(str(cell.style)) if isinstance(cell, Text) else None
    words = Markup('<span class="{}">{}</span>').format(marked, str(cell)) if marked else escape(str(cell))
    return Markup("<td{}>{}</td>").format(_number_class(number), words)


def _number_class(number: bool) -> Markup:
    return Markup(' class="number"') if number else Markup("")
