"""A table in words: the one form from which every report is printed, and written as CSV, LaTeX and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic

_PRINTED = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_LATEX = _PRINTED | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "<": "$<$",
}


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table: the name of its file, its caption, its headings, its rows in words, and further remarks.

    A cell may be anything that `str` writes, such as a text of Rich with its colours.
    """

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    remarks: Sequence[str] = ()

    def csv(self) -> str:
        """Write the headings and the rows."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(
            map(spreadsheet_cell, map(str, row)) for row in [self.headings, *self.rows]
        )
        return written.getvalue()

    def latex(self) -> str:
        """Write a `table` with a `tabular`, with rules of the package booktabs."""
        lines = [_latex_row(self.headings), r"\midrule", *(_latex_row(row) for row in self.rows)]
        columns = "l" + "r" * (len(self.headings) - 1)
        head = [r"\begin{table}", r"\centering", rf"\caption{{{latex(self.caption)}}}", rf"\label{{tab:{self.name}}}"]
        body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join([*head, *body, ""])

    def markdown(self) -> str:
        """Write a table as GitHub and most other readers of Markdown know it."""
        rule = ["---", *["---:"] * (len(self.headings) - 1)]
        lines = [[_markdown(str(cell)) for cell in row] for row in (self.headings, *self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))

    def write(self, folder: Path) -> list[Path]:
        """Write both forms into a folder, and give their paths."""
        paths = [folder / f"{self.name}.csv", folder / f"{self.name}.tex"]
        for path, text in zip(paths, (self.csv(), self.latex()), strict=True):
            atomic.write_text(path, text)
        return paths


def spreadsheet_cell(words: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: one that begins like it and is no number gets a quote."""
    try:
        float(words)
    except ValueError:
        return f"'{words}" if words.startswith(("=", "+", "-", "@", "\t", "\r")) else words
    return words


def latex(words: str) -> str:
    """Write words so that LaTeX prints them as they are."""
    return "".join(_LATEX.get(letter, letter) for letter in words)


def _markdown(words: str) -> str:
    return " ".join(words.replace("|", "\\|").split())


def _latex_row(cells: Sequence[Any]) -> str:
    return " & ".join(latex(str(cell)) for cell in cells) + r" \\"
