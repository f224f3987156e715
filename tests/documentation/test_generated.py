"""The reference pages that are generated from the code are up to date, and say what every key means."""

from __future__ import annotations

from typing import Any

import pages
import pytest
from generate import PAGES

from fedbo.settings.ranges import meanings
from fedbo.study.listing import groups


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert PAGES[name]() == pages.text_of(name), f"{name} is out of date; call make reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_leaves_no_meaning_out_and_has_no_long_cell(name: str) -> None:
    for grid in pages.grids(name):
        for row in grid.rows[1:]:
            assert row[-1] and len(row) == len(grid.rows[0]), f"{grid}: {row}"
            for title, cell in zip(grid.rows[0], row, strict=True):
                assert title == "of" or len(cell.split()) <= 15, f"{grid}: {cell}"


@pytest.mark.parametrize("group", sorted({*groups()} - {"suites"}))
def test_every_setting_says_what_it_means(group: str) -> None:
    silent = {f"{item.name}.{name}" for item in groups()[group] for name in item.settings if not item.meanings.get(name)}
    assert not silent, "write what it means as a string below its field"


class Base:
    """Has a field that two others share, and one that its heir declares anew."""

    shared: int = 1
    """What all share."""
    anew: int = 2
    """What the base says."""


class Heir(Base):
    """Says less."""

    anew: int = 3
    own: int = 4
    "What only it has."


class Stranger:
    """Has a field of the same name."""

    shared: int = 5


def test_a_meaning_is_that_of_the_field_or_its_base_or_of_the_first_field_of_this_name() -> None:
    assert meanings(Heir) == {"shared": "What all share.", "anew": "What the base says.", "own": "What only it has."}
    assert meanings(Stranger) == {"shared": "What all share."}
    made: Any = type("Made", (), {})  # has no source
    made.__module__ = "nowhere"
    assert meanings(made) == {}
