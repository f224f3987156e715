"""The documentation site: the Markdown pages of the repository as they stand, and the reference from the docstrings.

`make site` builds it with Sphinx and MyST into build/site; a link that leads nowhere is an error.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from fedbo.study.schema import schema

project = "fedbo"
author = "the authors of fedbo"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "plugins/**/*.md",
    "docs/*.md",
    "docs/**/*.md",
    "benchmarks/results/*.md",
]
exclude_patterns = [".*", "build", "dist", "runs", "*.egg-info", "tests", "plugins/optunahub/package"]

myst_heading_anchors = 4  # as GitHub makes them
html_theme = "furo"
html_title = "fedbo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"  # docstrings have Markdown's single backquotes

FIELD = re.compile(r"(\w+( `[^`]*`)?(, )?)+: ")  # of a docstring, such as "x `(n, d)`: points"

CONTENTS = {
    "Begin": ("docs/index", "docs/questions", "docs/trouble", "docs/coming_from"),
    "Tutorials": (
        "docs/tutorials/first_study",
        "docs/tutorials/stragglers",
        "docs/tutorials/private",
        "docs/tutorials/several_sites",
        "docs/tutorials/three_hospitals",
        "docs/tutorials/cluster",
        "docs/tutorials/own_method",
        "docs/tutorials/time_limit",
        "docs/tutorials/why",
    ),
    "Guides": (
        "docs/studies",
        "docs/metrics",
        "docs/objectives",
        "docs/algorithms/index",
        "docs/results",
        "docs/report",
        "docs/methods",
        "docs/disruptions",
        "docs/what-if",
        "docs/early-stopping",
        "docs/privacy",
        "docs/tuning",
        "docs/sites",
        "docs/cluster",
        "docs/submit",
        "docs/plugins",
        "plugins/rivals/README",
        "plugins/hunt/README",
        "plugins/leak/README",
        "plugins/papers/README",
        "plugins/tables/README",
        "plugins/optunahub/README",
    ),
    "Algorithms": ("docs/algorithms/*", "plugins/rivals/docs/*"),
    "Reference": ("docs/cli", "docs/reference/*", "docs/reference", "docs/glossary", "docs/stability", "CHANGELOG"),
    "Measurements": ("benchmarks/results/*",),
    "Explanation": ("docs/performance",),
    "Development": ("CONTRIBUTING", "docs/architecture", "docs/decisions/README", "docs/decisions/*"),
}


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Put the table of contents at the end of the first page, so that the README itself need not have it."""
    if name == root_doc:
        for caption, pages in CONTENTS.items():
            lines = [":hidden:", ":glob:", f":caption: {caption}", *pages]
            source[0] += "\n\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def list_fields(app: Any, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Turn paragraphs of a docstring that have one field a line, "name: meaning", into lists."""
    paragraphs = [paragraph.split("\n") for paragraph in "\n".join(lines).split("\n\n")]
    for paragraph in paragraphs:
        if FIELD.match(paragraph[0]):
            paragraph[:] = [f"* {line}" if FIELD.match(line) else f"  {line.strip()}" for line in paragraph]
    lines[:] = "\n\n".join("\n".join(paragraph) for paragraph in paragraphs).split("\n")


def finish(app: Any, error: Exception | None) -> None:
    """Let the first page be the site's index, and publish the schema of study files."""
    if error is None and app.builder.name == "html":
        built = Path(app.outdir)
        shutil.copyfile(built / f"{root_doc}.html", built / "index.html")
        (built / "study.schema.json").write_text(json.dumps(schema(), indent=1), encoding="utf-8")


def setup(app: Any) -> None:
    """Connect what is above."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", list_fields)
    app.connect("build-finished", finish)
