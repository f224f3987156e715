"""The table of all methods: cells are continued, scores and leakages are means over federations, and the page is Markdown."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from fedbo.algorithms.reveals import Reveals
from fedbo.cli import main as main_of_fedbo
from fedbo_leak.attacks import best_point
from fedbo_leak.listed import measured_column
from fedbo_leak.measuring import LeakRow
from fedbo_leak.publish import BEGIN, END, publish, words_of
from fedbo_leak.readings import COORDINATOR
from fedbo_leak.result import MethodRow
from fedbo_leak.table import (
    FEDERATIONS,
    Cell,
    draw,
    gains,
    leakage,
    lines_of,
    main,
    measured_words,
    scores,
    sending,
    study_of,
)


def cell(federation: str, name: str, best: float, value: float) -> Cell:
    row = LeakRow(
        name, COORDINATOR, best_point.BEST, "said", 0.1, 0.05, 0.15, 0.3, 0.3, value, value, value, 5, 20, 4.0, strongest=True
    )  # fmt: skip
    return Cell(federation, MethodRow(name, "draws", "draws", math.nan, best, 5), [row], 1.0)


FOUND = [
    cell("a", "fts", 1.0, 0.2),
    cell("a", "gp_ei", 3.0, 0.0),
    cell("b", "fts", 5.0, 0.4),
    cell("b", "gp_ei", 1.0, 0.0),
]


def test_scores_and_leakages_are_means_over_federations() -> None:
    assert scores(FOUND) == {"fts": {"a": 0.0, "b": 100.0}, "gp_ei": {"a": 100.0, "b": 0.0}}
    assert gains(FOUND)["fts"] == (0.0, pytest.approx(12.7062 * 100.0, rel=1e-4))  # t of one degree of freedom
    mean, half = leakage(FOUND, "fts", COORDINATOR, best_point.BEST)
    assert mean == pytest.approx(0.3) and half == pytest.approx(12.7062 * 0.1, rel=1e-4)
    assert math.isnan(leakage(FOUND, "z", COORDINATOR, best_point.BEST)[0])
    assert lines_of(FOUND)[2].startswith("| `fts` | draws | draws | 0.30 ± 1.27 |")


def test_the_most_that_is_clear_in_any_federation_is_measured() -> None:
    assert measured_words(FOUND) == {"fts": "draws", "gp_ei": "nothing"}
    assert measured_words(FOUND[:1])["fts"] == "draws" and measured_words([cell("a", "fts", 1.0, 0.01)])["fts"] == "nothing"
    assert measured_words([cell("a", "dp_fts", 1.0, 0.4)])["dp_fts"] == "noisy sums"  # which epsilon bounds


def test_what_is_published_is_a_page_a_figure_and_words(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    publish([*FOUND, cell("branin", "fts", 1.0, 0.5)], tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "2 methods in 0 federations (none), 5 seeds each, ten decisions; 1 of them in `branin`" in text
    assert "| `fts` | draws | draws | 0.37 ±" in text and (tmp_path / "leakage.png").is_file()
    publish(FOUND, tmp_path)
    assert page.read_text(encoding="utf-8").count("| `fts` |") == 1
    assert json.loads(words_of(FOUND))["methods"] == {"fts": "draws", "gp_ei": "nothing"}


def test_fedbo_list_shows_what_was_measured_beside_what_is_declared_and_never_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of_fedbo(["list", "algorithms", "--format", "json"]) == 0
    listed = {item["name"]: item for item in json.loads(capsys.readouterr().out)["algorithms"]}
    group, heading, words = measured_column()
    assert (group, heading) == ("algorithms", "measured") and {"random", "gp_ei"} <= {*words} <= {*listed}
    for name, word in words.items():
        assert listed[name]["measured"] == word and not Reveals(word).exceeds(Reveals(listed[name]["reveals"])), name
    assert main_of_fedbo(["list", "algorithms"]) == 0
    assert re.search(r"messages reveal +measured", capsys.readouterr().out)


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
    draw(FOUND[:1], tmp_path / "one.png")
