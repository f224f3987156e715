"""Captions for LaTeX: the number of replicates and agents, what intervals are, and paired tests that scipy repeats."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from synthetic_run import document, write_run

from fedbo.analysis.averages import replicate_means
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.result import Result
from fedbo.analysis.summary import holm, paired
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.figures.captions import chance_of


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Result.open(write_run(tmp_path_factory.mktemp("run") / "run", document(agents=4, iterations=3)))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Result:
    study = document(agents=4, iterations=3, objective__alpha=[0.1, 0.3, 0.5])
    return Result.open(write_run(tmp_path_factory.mktemp("run") / "swept", study))


def finals(result: Result, cell: int, label: str) -> dict[int, float]:
    found = replicate_means(by_cell_and_algorithm(result.traces)[cell, label], "iteration", np.array([np.inf]))
    return {replicate: result.metric(cell).sign * float(mean[0]) for replicate, mean in found.items()}


def test_a_caption_of_curves_has_n_the_bands_and_the_test_of_scipy(plain: Result) -> None:
    caption = plain.caption("curves")
    assert caption.startswith(
        r"\caption{synthetic. Best error against evaluations; Best error against time. $n$ = 3 replicates of"
    )
    assert r"of 4 agents; " in caption and r"Bands: $\pm$ 1 standard error over the replicates" in caption
    mine, other = (finals(plain, 0, label) for label in ("Together", "Alone"))
    p = stats.ttest_rel([mine[r] for r in sorted(mine)], [other[r] for r in sorted(other)]).pvalue
    found = re.search(
        r"Final value minus that of Alone \(.*t-tests\): Together: (\S+) \[(\S+), (\S+)\], \$p\$ = ([\d.]+)\.\}", caption
    )
    assert found is not None and float(found[4]) == pytest.approx(p, abs=0.006)
    assert plain.summary()[1].difference is not None
    assert found[1].replace("$-$", "-") == f"{plain.summary()[1].difference.mean:+.3g}"  # type: ignore[union-attr]


def test_the_tests_of_a_sweep_are_of_its_cells_and_corrected_together(swept: Result) -> None:
    caption = swept.caption()
    first = finals(swept, 0, "Together")
    raw = [stats.ttest_rel(list(finals(swept, cell, "Together").values()), list(first.values())).pvalue for cell in (1, 2)]
    shown = [float(value) for value in re.findall(r"\$p\$ = ([\d.]*\d)", caption)]
    assert shown == pytest.approx(holm(raw), rel=0.06)
    assert "minus that of alpha = 0.1 (" in caption and "corrected by Holm for 2): 0.3: " in caption
    assert r"Boxes: 95 \% Student intervals" in caption


def test_chances_are_those_of_scipy_and_one_where_nothing_differs() -> None:
    gaps = np.random.default_rng(7).normal(0.4, 1.0, 9)
    found = paired(gaps)
    assert found is not None and chance_of(found, 9) == pytest.approx(stats.ttest_1samp(gaps, 0.0).pvalue, rel=1e-9)
    same = paired(np.zeros(4))
    assert same is not None and chance_of(same, 4) == 1.0


def test_one_replicate_and_other_kinds_have_no_tests(plain: Result) -> None:
    one = plain.caption("overview", replicate=1)
    assert "$n$ = 1 replicate of 4 agents; replicate 1, " in one
    for words in (one, plain.caption("timeline"), plain.caption("trouble"), plain.caption("optima")):
        assert "Final value" not in words and "Bands" not in words and words.endswith("}")


def test_the_command_prints_the_path_as_a_comment_and_the_caption(
    plain: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figure.pdf"
    command = ["plot", str(plain.directory), "--kind", "curves", "--panels", "time", "--no-title", "--out", str(out)]
    assert main([*command, "--caption"]) == OK
    comment, caption = capsys.readouterr().out.splitlines()
    assert comment == f"% {out}" and caption == plain.caption("curves", panels=["time"]) and out.exists()
    assert "Best error against time" in caption and "evaluations;" not in caption
    assert main(["plot", str(plain.directory), "--kind", "curve", "--caption"]) == WRONG_INPUT


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex, of Debian's texlive-latex-recommended")
def test_a_caption_is_compiled(plain: Result, swept: Result, tmp_path: Path) -> None:
    body = "\n".join(rf"\begin{{figure}}{words}\end{{figure}}" for words in (plain.caption(), swept.caption()))
    (tmp_path / "a.tex").write_text(rf"\documentclass{{article}}\begin{{document}}{body}\end{{document}}", encoding="utf-8")
    subprocess.run(["pdflatex", "-halt-on-error", "a.tex"], cwd=tmp_path, check=True, capture_output=True)
