"""The statistics over many runs, as text tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.records.text_table import TextTable
from fedbo.reports.tables import table_of


def statistics_table(table: TextTable) -> RenderableType:
    """Write a table with what is to be known of it below; final values with a line for each method, so that its name fits."""
    headings, rows = table.headings, table.rows
    if table.name == "finals":
        (_, *headings), *rows = zip(*[table.headings, *table.rows], strict=True)
        headings = ["algorithm", *headings]
    return Group(table_of("", headings, rows), Text("\n".join([table.caption, *table.remarks]), style="dim"))
