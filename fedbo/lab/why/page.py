"""The section of a report about the answers of `fedbo why` that are kept with a run."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping

from markupsafe import Markup

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.result import Result
from fedbo.figures.reports.html import html_of
from fedbo.figures.style import STYLE, styled
from fedbo.lab.why.figure import why_figure
from fedbo.lab.why.result import Why, answers_beside
from fedbo.lab.why.tables import why_table


def why_section(result: Result, moving: Mapping[RunKey, str]) -> Markup:
    """Return the section; empty without answers. `moving` has the keys of the runs through whose time the page can move."""
    parts = []
    for why in answers_beside(result.directory):
        cell, label, replicate = why.run
        key = None if replicate is None else moving.get(RunKey(cell, label, replicate))
        parts.append(_answer(why) + (Markup() if key is None else _links(why, key)))
    return Markup("\n").join(parts)


def _links(why: Why, key: str) -> Markup:
    """Return links to the moments at which jumps begin, with the agent of their most unusual event."""
    found = Markup()
    for jump in why.jumps:
        agent = re.search(r"agent (\d+)", jump.events[0]) if jump.events else None
        place = f"#{key}@{jump.start:.5g}" + (f"&agent={agent[1]}" if agent else "")
        found += Markup('<li><a href="{}">move to {}</a>: {}</li>').format(
            place, f"{jump.start:.4g}", ", ".join(jump.events[:1])
        )
    return Markup("<ul>{}</ul>").format(found) if found else found


def _answer(why: Why) -> Markup:
    with styled(STYLE | {"svg.fonttype": "none", "svg.hashsalt": "fedbo"}):
        drawn = io.StringIO()
        why_figure(why).savefig(drawn, format="svg", metadata={"Date": None})
    picture = base64.b64encode(drawn.getvalue().encode()).decode()
    what = why.end or f"spread of {why.quantity}"
    image = '<div class="scroll"><img alt="When and by which luck: {}" src="data:image/svg+xml;base64,{}"></div>'
    return Markup("<h3>{}</h3>\n").format(what) + Markup(image).format(what, picture) + html_of(why_table(why))
