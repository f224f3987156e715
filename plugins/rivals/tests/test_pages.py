"""The pages of the plug-in: the studies that they show are valid, and they name its methods."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import test_rivals

import fedbo

PAGES = sorted(test_rivals.ROOT.rglob("*.md"))
BASE = {"study": {"name": "shown"}, "objective": {"name": "quadratic", "agents": 3}, "budget": {"iterations": 2}}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_methods_that_a_page_shows_make_a_valid_study(path: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        assert fedbo.load_study({**BASE, **tomllib.loads(block)}).cells()


def test_the_pages_name_every_method() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert [name for name in test_rivals.NAMES if f"`{name}`" not in text] == []
