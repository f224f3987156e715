"""Every TOML block of the pages is a valid study, alone or merged into a small one with the fragments above it."""

from __future__ import annotations

import importlib
import math
import sys
import tomllib
from pathlib import Path
from typing import Any

import pages
import pytest

import fedbo
from fedbo.objectives.datasets.data import DataMissingError

BASE: dict[str, Any] = {
    "study": {"name": "fragment"},
    "objective": {"name": "quadratic", "agents": 6},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "ts", "label": "TS alone"}, {"name": "fts", "every": 1}],
    "fault": [{"kind": "loss"}],
}
REQUIRED = {"study", "objective", "budget", "algorithm"}
SHOWN = [block for block in pages.blocks("toml") if "project" not in tomllib.loads(block.text)]  # pyproject.toml is none


def merged(base: dict[str, Any], fragment: dict[str, Any]) -> dict[str, Any]:
    """Put the tables of a fragment in the place of the base's; `[[fault]]` and `[[group]]` are appended."""
    result = {**base, **fragment}
    for key in ("fault", "group"):
        if key in base and key in fragment:
            result[key] = base[key] + fragment[key]
    return result


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder for the modules that the page shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _write_modules(page: str, folder: Path) -> None:
    for block in pages.blocks("python"):
        first = block.text.partition("\n")[0]
        if block.page == page and first.startswith("# ") and first.endswith(".py"):
            (folder / first[2:]).write_text(block.text, encoding="utf-8")
            sys.modules.pop(first[2:-3], None)
    importlib.invalidate_caches()


@pytest.mark.parametrize("number", range(len(SHOWN)), ids=[str(block) for block in SHOWN])
def test_a_study_or_a_part_of_one_that_a_page_shows_is_valid(number: int, surroundings: Path) -> None:
    block = SHOWN[number]
    if block.marked("not checked"):
        pytest.skip(block.comment)
    _write_modules(block.page, surroundings)
    document = tomllib.loads(block.text)
    if not document.keys() >= REQUIRED:
        above = BASE
        for other in SHOWN[:number]:
            if other.page == block.page and not tomllib.loads(other.text).keys() & (REQUIRED | {"sweep"}):
                above = merged(above, tomllib.loads(other.text))
        document = merged(above, document)
    for one in _one_key_at_a_time(document):
        try:
            study = fedbo.load_study(one, trust=True)
        except DataMissingError as error:
            pytest.skip(str(error))
        assert study.cells()
        fedbo.load_study(study.document(), trust=True)


def _one_key_at_a_time(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Sweep each key alone where all of them together make many combinations, each of which would be checked."""
    swept: dict[str, Any] = {}
    tables = [((), document.get("sweep", {}))]
    while tables:
        above, table = tables.pop()
        for key, value in table.items():
            if isinstance(value, dict):
                tables.append(((*above, key), value))
            else:
                swept[".".join((*above, key))] = value
    if math.prod(map(len, swept.values())) <= 16:
        return [document]
    return [{**document, "sweep": {key: values}} for key, values in swept.items()]


def test_few_blocks_are_not_checked() -> None:
    left_out = [str(block) for block in SHOWN if block.marked("not checked")]
    assert len(left_out) <= 3, left_out
