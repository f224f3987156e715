"""Every table of measured numbers has a command beside it that exists, or says how it was measured once."""

from __future__ import annotations

import re

import pages
import pytest
from test_commands import check, commands

MEASURED_ONCE = r"[Mm]easured once"
REFERENCE = {"key", "setting", "argument", "claim", "model", "family", "part"}  # tables of these define, and measure nothing
SOURCE = r"(fedbo (run|reproduce|tabulate|show)|make|python|pytest) \S|benchmarks/\w+\.py|(examples|tests)/[\w/]+"


def _measured(grid: pages.Grid) -> bool:
    cells = " ".join(cell for row in grid.rows[1:] for cell in row)
    decimals = re.search(r"\d\.\d|(?<!\d)\.\d", re.sub(r"`[^`]*`|\]\([^)]*\)", "", cells))
    return bool(decimals) and not ({"setting", "key", "default"} & set(grid.rows[0])) and grid.rows[0][0] not in REFERENCE


def sources(section: str) -> list[str]:
    """List what a section names as the source of its numbers: commands, benchmarks, studies and tests."""
    found = re.findall(r"<!-- numbers: (.*?) -->", section)
    for code in re.findall(r"`([^`]+)`", section):
        code = " ".join(code.split())
        if re.match(SOURCE, code):
            found.append(code)
    return found


GENERATED = "docs/reference/"  # from the code: it defines, and measures nothing
PROSE = [name for name in pages.NAMES if name != "CONTRIBUTING.md" and not name.startswith(GENERATED)]
TABLES = [grid for name in PROSE for grid in pages.grids(name) if _measured(grid)]


@pytest.mark.parametrize("grid", TABLES, ids=str)
def test_a_table_of_measured_numbers_says_where_they_come_from(grid: pages.Grid) -> None:
    named = sources(grid.section)
    once = re.search(MEASURED_ONCE, grid.section)
    assert named or once, f"{grid}: name the command that gives these numbers, or say that they were measured once, and how"


@pytest.mark.parametrize("name", pages.NAMES)
def test_blocks_of_numbers_are_closed_and_their_commands_exist(name: str) -> None:
    text = pages.text_of(name)
    begun = re.findall(r"^<!-- numbers: (.*) -->$", text, re.MULTILINE)
    assert len(begun) == text.count("<!-- end of numbers -->")
    for command in begun:
        known = [words for words in commands(command) if re.match(r"(fedbo|make|pytest|(\S*/)?python\S*)$", words[0])]
        assert known, f"{name}: '{command}' is no command of ours"
        for words in known:
            check(words)


def test_there_are_tables_to_look_at() -> None:
    assert len(TABLES) > 3
