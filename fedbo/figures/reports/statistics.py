"""The statistics over many runs, as text tables."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.analysis.records.text_table import TextTable


def statistics_table(table: TextTable) -> RenderableType:
    """Write a table with what is to be known of it below; final values with a line for each method, so that its name fits."""
    shown = table
    if table.name == "finals":
        (_, *headings), *rows = zip(*[table.headings, *table.rows], strict=True)
        shown = replace(table, headings=["algorithm", *headings], rows=rows)
    return Group(shown, Text("\n".join([table.caption, *table.remarks]), style="dim"))
