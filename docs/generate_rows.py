"""The reference page of the rows that summaries of a run have in Python, from their classes."""

from __future__ import annotations

from dataclasses import fields

from generate_markdown import clause, page, table


def trouble() -> str:
    """Return the page of the rows of `fedbo.analysis.trouble`."""
    from fedbo.analysis.disruptions import Disruptions
    from fedbo.settings.ranges import meanings

    known = meanings(Disruptions)
    intro = (
        "The fields of the rows of `fedbo.analysis.trouble(result)`, and of `fedbo show RUN --trouble` with `--format json`: "
        "one row for each algorithm in each cell, with means over replicates. Times are means over targets.",
        "",
    )
    return page(
        "Rows of disruptions",
        intro,
        table(("field", "meaning"), [(f"`{each.name}`", clause(known[each.name])) for each in fields(Disruptions)]),
    )
