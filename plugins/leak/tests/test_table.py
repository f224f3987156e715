"""The table of all methods: cells are continued, scores and leakages are means over federations, and the page is Markdown."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path

import pytest

from fedbo.study.document import StudyError
from fedbo_leak.attacks import best_point
from fedbo_leak.listening import Heard
from fedbo_leak.measuring import LeakRow
from fedbo_leak.readings import COORDINATOR
from fedbo_leak.result import MethodRow
from fedbo_leak.table import FEDERATIONS, Cell, draw, leakage, lines_of, main, scores, sending, study_of


def cell(federation: str, name: str, best: float, value: float) -> Cell:
    row = LeakRow(
        name, COORDINATOR, best_point.BEST, "said", 0.1, 0.05, 0.15, 0.3, 0.3, value, value, value, 5, 20, 4.0, strongest=True
    )  # fmt: skip
    return Cell(federation, MethodRow(name, "draws", "draws", math.nan, best, 5), [row], 1.0)


def test_scores_and_leakages_are_means_over_federations() -> None:
    found = [cell("a", "x", 1.0, 0.2), cell("a", "y", 3.0, 0.0), cell("b", "x", 5.0, 0.4), cell("b", "y", 1.0, 0.0)]
    assert scores(found) == {"x": 50.0, "y": 50.0}
    mean, half = leakage(found, "x", COORDINATOR, best_point.BEST)
    assert mean == pytest.approx(0.3) and half == pytest.approx(12.7062 * 0.1, rel=1e-4)  # t of one degree of freedom
    assert math.isnan(leakage(found, "z", COORDINATOR, best_point.BEST)[0])
    assert lines_of(found)[2].startswith("| `x` | draws | draws | 0.30 ± 1.27 |")


@pytest.mark.slow
def test_every_method_has_a_study_in_every_federation() -> None:
    assert {"fts", "dp_fts_de", "fed_pne", "admm_consensus", "fts_noise"} <= {*sending()}
    for federation in FEDERATIONS:
        for name in sending():
            assert study_of(federation, name, 2, 4).labels == (name,)


@pytest.mark.slow
def test_cells_are_kept_and_the_table_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ["--short", "--out", str(tmp_path), "--methods", "random", "share_best"]
    main(known)
    first = (tmp_path / "cells.jsonl").read_text()
    printed = capsys.readouterr().out
    assert "| `share_best` | observations | observations |" in printed and (tmp_path / "leakage.png").is_file()
    main(known)
    assert (tmp_path / "cells.jsonl").read_text() == first and capsys.readouterr().out == printed
    draw([cell("a", "x", 1.0, 0.2)], tmp_path / "one.png")


def test_nothing_is_measured_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo_leak.watched.listening", lambda: nullcontext(Heard([], [], [])))
    with pytest.raises(StudyError, match="no message can be heard, since fedbo-leak is not installed"):
        main(["--short", "--methods", "share_best", "--out", str(tmp_path)])
