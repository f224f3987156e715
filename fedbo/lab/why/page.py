"""The section of a report about the answers of `fedbo why` that are kept with a run."""

from __future__ import annotations

import base64
import io

from markupsafe import Markup
from matplotlib import rc_context

from fedbo.analysis.result import Result
from fedbo.figures.page.rich_html import html_of
from fedbo.figures.style import STYLE
from fedbo.lab.why.figure import why_figure
from fedbo.lab.why.result import Why, answers_beside
from fedbo.lab.why.tables import why_table


def why_section(result: Result) -> Markup:
    """Return the section; empty without answers."""
    return Markup("\n").join(_answer(why) for why in answers_beside(result.directory))


def _answer(why: Why) -> Markup:
    with rc_context(STYLE | {"svg.fonttype": "none", "svg.hashsalt": "fedbo"}):
        drawn = io.StringIO()
        why_figure(why).savefig(drawn, format="svg", metadata={"Date": None})
    picture = base64.b64encode(drawn.getvalue().encode()).decode()
    what = why.end or f"spread of {why.quantity}"
    image = '<div class="scroll"><img alt="When and by which luck: {}" src="data:image/svg+xml;base64,{}"></div>'
    return Markup("<h3>{}</h3>\n").format(what) + Markup(image).format(what, picture) + html_of(why_table(why))
