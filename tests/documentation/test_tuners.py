"""The table of what one does with other tuners: both of its columns run from top to bottom, as they stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest
from test_python_shown import Signatures

PAGE = "docs/coming_from.md"
(GRID,) = [grid for grid in pages.grids(PAGE) if grid.rows[0][-1] == "fedbo" and len(grid.rows[0]) == 3]
SETUP = next(block.text for block in pages.blocks("python") if block.page == PAGE)


def lines(column: int) -> Iterator[str]:
    """Yield the code of a column, without commands of a shell."""
    for row in GRID.rows[1:]:
        yield from (code for code in re.findall(r"`([^`]+)`", row[column]) if not code.startswith(("fedbo ", "optuna-")))


def test_what_the_table_calls_takes_what_it_is_given() -> None:
    assert len(GRID.rows) == 17
    found = Signatures({})
    found.visit(ast.parse("\n".join([SETUP, *lines(2)])))
    assert found.calls > 12


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session", "undrawn")
@pytest.mark.filterwarnings("ignore")  # Ray Tune's and Optuna's own
@pytest.mark.parametrize("column", [1, 2], ids=["theirs", "ours"])
def test_a_column_runs(column: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    known: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SETUP, PAGE, "exec"), known)
    for code in lines(column):
        exec(compile(code, code, "exec"), known)
    assert known["search"].best_score_ > 0.9 and len(known["grid"]) == 4
    assert (tmp_path / ("theirs.csv" if column == 1 else "ours.csv")).is_file()
