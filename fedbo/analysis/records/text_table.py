"""A table as text: the common form for printed reports, CSV, LaTeX and Markdown."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fedbo.actors.storage import atomic

_GAP, _EDGES = 3, 2  # places between two columns on a terminal, and at the two ends of a line
_PRINTED = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_PAGE = 40  # rows of a table that certainly fit on a page: LaTeX ends with an error where one is much longer
_LATEX = _PRINTED | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "\n": " ",
}


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table: the name of its file, its caption, its headings, its rows as text, further remarks, and a title.

    Columns after the first hold `numbers`, which are aligned right, or else words.

    A cell is a string or a coloured text of Rich. A terminal shows the title and the table; columns that do not fit beside the
    others follow below, again with the first column. Other output has unlimited width.
    """

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    remarks: Sequence[str] = ()
    title: str = ""
    numbers: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width if console.is_terminal else sys.maxsize
        for number, places in enumerate(self._parts(width)):
            title = self.title if not number else None
            table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
            for place in places:
                table.add_column(self.headings[place], justify="right" if place and self.numbers else "left", overflow="fold")
            for row in self.rows:
                table.add_row(*(row[place] for place in places))
            needed = _EDGES + sum(size + _GAP for size in self._widths())
            whole = options if console.is_terminal else options.update(width=max(options.max_width, needed))
            yield from console.render(table, whole)

    def _widths(self) -> list[int]:
        return [max(cell_len(str(cell)) for cell in column) for column in zip(self.headings, *self.rows, strict=True)]

    def _parts(self, width: int) -> list[list[int]]:
        """Split the columns into as few parts as fit; the first column is in each."""
        first, *widths = self._widths()
        parts, used = [[0]], _EDGES + first
        for place, size in enumerate(widths, 1):
            if used + _GAP + size > width and len(parts[-1]) > 1:
                parts.append([0])
                used = _EDGES + first
            parts[-1].append(place)
            used += _GAP + size
        return parts

    def csv(self) -> str:
        """Write the headings and the rows."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(
            map(spreadsheet_cell, map(str, row)) for row in [self.headings, *self.rows]
        )
        return written.getvalue()

    def latex(self) -> str:
        """Return a `table` with rules of the package booktabs, or a `longtable` where the rows need more than a page."""
        headings, rows = _latex_row(self.headings), [_latex_row(row) for row in self.rows]
        columns = "l" + ("r" if self.numbers else "l") * (len(self.headings) - 1)
        caption, label = rf"\caption{{{latex(self.caption)}}}", rf"\label{{tab:{self.name}}}"
        if len(rows) > _PAGE:
            head = [r"\toprule", headings, r"\midrule"]
            begin = [rf"\begin{{longtable}}{{{columns}}}", rf"{caption}{label} \\", *head, r"\endfirsthead", *head, r"\endhead"]
            return "\n".join([*begin, *rows, r"\bottomrule", r"\end{longtable}", ""])
        begin = [r"\begin{table}", r"\centering", caption, label, rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        return "\n".join([*begin, headings, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def markdown(self) -> str:
        """Write a table as GitHub and most other readers of Markdown know it."""
        rule = ["---", *["---:" if self.numbers else "---"] * (len(self.headings) - 1)]
        lines = [[" ".join(str(cell).replace("|", "\\|").split()) for cell in row] for row in (self.headings, *self.rows)]
        title = f"**{self.title}**\n\n" if self.title else ""
        return title + "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))

    def write(self, folder: Path) -> list[Path]:
        """Write both forms into a folder, and return their paths."""
        paths = [folder / f"{self.name}.csv", folder / f"{self.name}.tex"]
        for path, text in zip(paths, (self.csv(), self.latex()), strict=True):
            atomic.write_text(path, text)
        return paths


def spreadsheet_cell(words: str) -> str:
    """Return a cell that no spreadsheet evaluates: text that looks like a formula and is no number gets a quote."""
    try:
        float(words)
    except ValueError:
        return f"'{words}" if words.startswith(("=", "+", "-", "@", "\t", "\r")) else words
    return words


def latex(words: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in words)


def _latex_row(cells: Sequence[Any]) -> str:
    return " & ".join(latex(str(cell)) for cell in cells) + r" \\"
