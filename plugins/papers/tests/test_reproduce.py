"""Reproducing a paper: the page, what is run again and what is not, verdicts, and what is said when something is wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from fedbo.actors.storage.rows import RunKey
from fedbo.algorithms.base import ORIGINS
from fedbo.algorithms.catalog import algorithms
from fedbo.analysis.averages import mean_and_error
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference, difference
from fedbo.cli import main
from fedbo.commands.arguments import FAILED, INTERRUPTED, OK, WRONG_INPUT
from fedbo.objectives.catalog import federations
from fedbo.objectives.datasets import data
from fedbo.objectives.datasets.inventory import DataFile, DataSet
from fedbo.settings import rooms
from fedbo.settings.errors import _IN_PLUGINS
from fedbo.study.document import read, to_toml
from fedbo.study.study import StudyError, load_study
from fedbo.testing.plugin_contract import check_plugin, plugins_of
from fedbo_papers.command import _summary
from fedbo_papers.decision_time import Times, measure
from fedbo_papers.manifest import TestTable, load_manifest
from fedbo_papers.page import interval
from fedbo_papers.plot import paper_figure
from fedbo_papers.reproduction import ReproductionRequest, reproduce, without_folders
from fedbo_papers.statements import FEDERATED_ORIGINS, FigureData, judge, verdict
from plugins.conftest import forget

SHIPPED = Path(__file__).resolve().parents[3] / "examples" / "papers"

ALONE = {"name": "random", "label": "Alone"}
TOGETHER = {"name": "fts", "label": "M = 5", "features": 5, "every": 0, "own": {"surrogate": "features", "features": 20}}
BOWLS: dict[str, Any] = {
    "study": {"name": "bowls", "replicates": 3},
    "objective": {"name": "quadratic", "agents": 4},
    "agents": {"targets": [0, 2], "history": {"algorithm": "random", "observations": 5, "initial": 0}},
    "budget": {"iterations": 4},
    "algorithm": [ALONE, TOGETHER, {**TOGETHER, "label": "M = 10", "features": 10}],
    "exchange": {"mode": "barrier"},
}
LINES: dict[str, Any] = {
    "study": {"name": "lines", "replicates": 3},
    "objective": {"name": "gp_synthetic", "agents": 3, "points": 50},
    "agents": {"targets": [0], "initial": 1},
    "budget": {"iterations": 3},
    "algorithm": [ALONE, {"name": "random", "label": "Twice", "queries": 2}],
}
SIZES: dict[str, Any] = {**BOWLS, "sweep": {"objective.agents": [3, 5]}}
MANIFEST: dict[str, Any] = {
    "paper": {"title": "On <small> studies", "source": "Nobody, 2020"},
    "figure": [
        {
            "id": "bowls",
            "title": "Fig. 1: messages",
            "study": "bowls.toml",
            "kind": "messages",
            "statement": "Longer messages are better.",
            "quick": ["study.replicates=2", "agents.targets=[0]"],
            "series": {"Together": ["M = 5", "M = 10"]},
            "levels": ["Alone"],
            "published": [
                {"algorithm": "M = 5", "at": 4, "value": -0.5},
                {"algorithm": "M = 5", "at": 90, "value": -0.5},
                {"algorithm": "M = 5", "at": "mean", "value": -0.5},
            ],
            "test": [
                {"says": "five are fewer than ten", "claim": "shorter", "of": "M = 5", "than": "M = 10"},
                {"says": "both are alike", "claim": "alike", "of": ["M = 5", "M = 10"], "than": "Alone", "margin": 9.0},
            ],
        },
        {
            "id": "lines",
            "title": "Fig. 2: lines",
            "study": "lines.toml",
            "regret": True,
            "timed": True,
            "quick": ["study.replicates=2"],
            "test": [
                {"says": "two are no worse", "claim": "not_worse", "of": "Twice", "than": "Alone", "at": "mean", "margin": 2.0},
                {"says": "another world", "claim": "better", "of": "Twice", "than": "Alone", "than_in": "bowls", "at": 99},
            ],
        },
    ],
}

PLAIN = {"id": "plain", "title": "Plain", "study": "lines.toml"}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a manifest and its studies into a folder of papers, and give the folder."""

    def written(manifest: dict[str, Any] = MANIFEST, **studies: dict[str, Any]) -> Path:
        folder = tmp_path / "papers"
        folder.mkdir(exist_ok=True)
        for name, study in {"bowls": BOWLS, "lines": LINES, "sizes": SIZES, **studies}.items():
            (folder / f"{name}.toml").write_text(to_toml(study), encoding="utf-8")
        (folder / "tiny.toml").write_text(_manifest(manifest), encoding="utf-8")
        return folder

    return written


def _manifest(manifest: dict[str, Any]) -> str:
    """Write nested lists of tables, for which studies have no use, in one line each."""
    blocks = [to_toml({"paper": manifest["paper"]})] if "paper" in manifest else []
    for figure in manifest["figure"]:
        lists = {key: [dict(one) for one in value] for key, value in figure.items() if key in ("test", "published")}
        blocks.append(to_toml({"figure": [{**figure, **lists}]}))
    return "\n".join(blocks)


def figure(**changes: Any) -> dict[str, Any]:
    """Give a manifest of one figure."""
    return {**MANIFEST, "figure": [{"id": "one", "title": "One", "study": "lines.toml", **changes}]}


def run(folder: Path, *arguments: str, code: int = OK) -> None:
    assert main(["reproduce", "tiny", "--papers", str(folder), "--out", str(folder.parent / "out"), *arguments]) == code


def complaint(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> list[str]:
    run(folder, "--quiet", *arguments, code=WRONG_INPUT)
    out, err = capsys.readouterr()
    assert out == "" and not (folder.parent / "out").exists()
    return [line.replace(f"{folder}/", "") for line in err.splitlines()]


def started(out: Path) -> dict[str, tuple[str, int]]:
    """Say when each study began and how often it was gone on with."""
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted(out.glob("studies/*/manifest.json"))}
    return {name: (manifest["started"], manifest["resumed"]) for name, manifest in found.items()}


@pytest.mark.long
def test_a_page_has_figures_numbers_statements_and_commands_and_nothing_of_this_machine(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path
) -> None:
    run(write(), "--quiet")
    shown = capsys.readouterr().out
    assert "five are fewer than ten" in shown and f"page: {tmp_path / 'out' / 'index.html'}" in shown
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2 and "On &lt;small&gt; studies" in page
    for word in (
        "Longer messages are better.",
        "M = 10",
        "published",
        "fedbo run papers/bowls.toml",
        "numpy",
        "the runs end at t = 4",
    ):
        assert word in page
    assert "bowls has another seed, objective or targets" in page
    assert str(tmp_path) not in page and "http" not in page
    assert re.findall(r'class="verdict ([a-z-]+)"', page)[:4] == ["holds", "holds", "holds", "inconclusive"]
    for name in ("bowls", "lines"):
        assert imread(tmp_path / "out" / "figures" / f"{name}.png").shape[1] > 800


def test_numbers_are_those_of_the_results_and_intervals_are_paired(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path
) -> None:
    folder = write()
    run(folder, "--quiet", "--only", "bowls", "--format", "json")
    told = json.loads(capsys.readouterr().out)
    (of_figure,) = told["figures"]
    result = Result.open(tmp_path / "out" / of_figure["results"])
    rows = {row.algorithm: row for row in result.summary()}
    ours = {row["algorithm"]: row for row in of_figure["numbers"]}
    assert list(ours) == ["Alone", "M = 5", "M = 10"] and [row["floats"] for row in ours.values()] == [0, 5, 10]
    share = {label: row.federated for label, row in rows.items()}
    assert [row["federated"] for row in ours.values()] == pytest.approx([4 * share[label] for label in ours])
    gap = rows["M = 10"].difference
    assert gap is not None and ours["M = 10"]["minus_first"] == pytest.approx([gap.mean, gap.low, gap.high])
    assert ours["M = 5"]["final"][0] == pytest.approx(rows["M = 5"].final.mean)
    assert ours["M = 5"]["final"][2] - ours["M = 5"]["final"][0] == pytest.approx(
        4.302652730 * (rows["M = 5"].final.error or 0)
    )
    published = of_figure["published"]
    assert published[0]["difference"][0] == pytest.approx(rows["M = 5"].final.mean + 0.5)
    assert [row["reason"] for row in published] == [None, "the runs end at t = 4", None]
    (axes,) = paper_figure(FigureData(load_manifest(folder / "tiny.toml").figure[0], result.study, result.study, result)).axes
    (points,) = axes.containers
    assert list(points.lines[0].get_xdata()) == [5.0, 10.0] and points.get_label() == "Together"
    native = [ours[label]["final"][0] for label in ("M = 5", "M = 10")]
    assert list(points.lines[0].get_ydata()) == pytest.approx(native)
    assert axes.get_xlabel() == "8-byte numbers in each agent's message" and "after 4 iterations" in axes.get_ylabel()


@pytest.mark.long
def test_only_those_agents_count_that_the_figure_names(write: Write, tmp_path: Path) -> None:
    folder = write(figure(study="bowls.toml", agents=[2]))
    (made,) = list(reproduce(ReproductionRequest(folder / "tiny.toml", tmp_path / "out"), _quiet, lambda: None))
    (outcome,) = made.outcomes
    assert outcome.data is not None and outcome.data.result is not None
    result = outcome.data.result
    own = [trace for trace in result.traces if trace.agent == 2]
    mine, other = ([t for t in own if t.algorithm == label] for label in ("M = 5", "Alone"))
    assert outcome.algorithms[1].gap == difference(mine, other, result.metric())
    means = np.array([[trace.best[-1]] for trace in mine])
    assert outcome.algorithms[1].final.mean == pytest.approx(result.metric().native(float(mean_and_error(means)[0][0])))


def _quiet(line: str) -> None:
    pass


@pytest.mark.long
def test_what_was_run_is_not_run_again_and_a_changed_study_is(write: Write, tmp_path: Path) -> None:
    folder, out = write(figure(timed=True)), tmp_path / "out"
    run(folder, "--quiet")
    before, times = started(out), {path: path.stat().st_mtime_ns for path in out.glob("times/*.json")}
    run(folder, "--quiet")
    assert started(out) == before and len(before) == 1 and len(times) == 1
    assert {path: path.stat().st_mtime_ns for path in out.glob("times/*.json")} == times
    write(figure(), lines={**LINES, "study": {"name": "lines", "replicates": 2, "seed": 5}})
    run(folder, "--quiet", "--dark")
    assert imread(next(out.glob("figures/*.png")))[..., :3].mean() < 0.2
    assert len(started(out)) == 2 and before.items() < started(out).items()


@pytest.mark.long
def test_a_quick_run_says_so_and_compares_with_published_numbers_only_what_can_be(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path
) -> None:
    run(write(), "--quiet", "--quick", "--only", "bowls", "--format", "json")
    (of_figure,) = json.loads(capsys.readouterr().out)["figures"]
    assert {row["reason"] for row in of_figure["published"]} == {"quick run of a smaller study", "the runs end at t = 4"}
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert (
        "The 3 published numbers have no counterpart in these runs (quick run of a smaller study; the runs end at t = 4)"
        in page
    )
    assert "This is a quick run" in page and "--set &#39;agents.targets=[0]&#39;" in page
    manifest = MANIFEST["figure"][0] | {"quick": ["study.replicates=2", "budget.iterations=3"]}
    write({**MANIFEST, "figure": [{**manifest, "published": [{"algorithm": "M = 5", "at": 3, "value": -0.5}]}]})
    run(tmp_path / "papers", "--quiet", "--quick", "--format", "json")
    (row,) = json.loads(capsys.readouterr().out)["figures"][0]["published"]
    assert row["reason"] is None and row["difference"] is not None


@pytest.mark.long
def test_what_was_interrupted_is_gone_on_with(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write(), tmp_path / "out"

    class Impatient:
        """A display under which somebody presses Ctrl-C in the second study."""

        begun = 0

        def note(self, words: str) -> None:
            pass

        def start(self, rows: Any) -> None:
            Impatient.begun += 1

        def update(self, run: RunKey, done: int, total: int, best: float | None) -> None:
            if Impatient.begun == 2 and run.algorithm == "Twice":
                raise KeyboardInterrupt

        def finish(self) -> None:
            pass

    monkeypatch.setattr("fedbo.execution.progress.progress_for", lambda console: Impatient())
    run(folder, code=INTERRUPTED)
    assert f"interrupted; partial results are in {out}; run the same command again to continue" in capsys.readouterr().err
    facts = json.loads((out / "summary.json").read_text())
    assert [one["id"] for one in facts["figures"]] == ["bowls"] and facts["pending"] == ["lines"]
    before = started(out)
    monkeypatch.undo()
    run(folder, "--quiet")
    after = started(out)
    assert [resumed for _, resumed in after.values()] == [0, 1]
    assert {name: begun for name, (begun, _) in after.items()} == {name: begun for name, (begun, _) in before.items()}
    assert json.loads((out / "summary.json").read_text())["pending"] == []


@pytest.mark.long
def test_a_page_shows_the_figures_that_are_there_and_those_that_are_not_also_when_one_is_asked_for(
    write: Write, tmp_path: Path
) -> None:
    three = {
        **MANIFEST,
        "figure": [PLAIN, figure(id="lines", timed=True)["figure"][0], figure(id="never", study="bowls.toml")["figure"][0]],
    }
    folder = write(three)
    for one in ("lines", "plain"):
        run(folder, "--quiet", "--only", one)
    facts = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [one["id"] for one in facts["figures"]] == ["plain", "lines"] and facts["pending"] == ["never"]
    assert len(started(tmp_path / "out")) == 1, "both are about the same study"
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 2 and "not run yet" in page


def test_a_figure_without_its_plug_in_is_left_out_and_the_rest_is_there(
    capsys: pytest.CaptureFixture[str], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_IN_PLUGINS["algorithm"], "fedbo-imagined", "imagined")
    figures = [{"id": "ours", "title": "Ours", "study": "ours.toml"}, PLAIN]
    run(write({**MANIFEST, "figure": figures}, ours={**LINES, "algorithm": [{"name": "imagined"}]}), "--quick")
    told = capsys.readouterr()
    assert "skipped" in told.out and "algorithm 'imagined' is in the plug-in fedbo-imagined, which is not installed" in told.err


def test_a_figure_without_its_data_is_left_out_and_the_rest_is_there(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = DataFile("LandmineData.mat", "0" * 64, 1, "http://127.0.0.1:9/nothing")
    monkeypatch.setitem(data.DATA_SETS, "landmine", DataSet("landmine", (nowhere,), "", ""))
    monkeypatch.delenv("FEDBO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mines = {**LINES, "objective": {"name": "landmine"}}
    first = {"id": "mines", "title": "Mines", "study": "mines.toml"}
    run(write({**MANIFEST, "figure": [first, PLAIN]}, mines=mines), "--quiet")
    assert "skipped" in capsys.readouterr().out
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "the data set &#39;landmine&#39; is not on this machine" in page and str(tmp_path) not in page
    assert page.count("data:image/png") == 1


def test_a_study_that_fails_is_left_out_and_told_by_the_exit_code(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path
) -> None:
    function = {"name": "python_function", "function": "operator:index", "low": [0.0], "high": [1.0], "agents": 1}
    study = {**LINES, "objective": function, "evaluation": {"failure": "stop"}, "algorithm": [ALONE]}
    first = {"id": "broken", "title": "Broken", "study": "broken.toml"}
    run(write({**MANIFEST, "figure": [first, PLAIN]}, broken=study), "--quiet", code=FAILED)
    assert "the study failed: EvaluationError" in capsys.readouterr().out
    assert "the study failed: EvaluationError" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def claim(kind: str, **more: Any) -> list[dict[str, Any]]:
    """Give the only test of a figure."""
    return [{"says": "so", "claim": kind, "of": "Twice", **more}]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"kin": "curves"}, ", kin: no such key; did you mean 'kind'?"),
        ({"kind": "curve"}, ", kind: must be 'curves', 'messages' or 'decision_time'"),
        ({"algorithms": ["Twce"]}, ", algorithms: no algorithm 'Twce'; did you mean 'Twice'? available: Alone, Twice"),
        ({"agents": [1]}, ", agents: agent 1 is not a target of lines.toml"),
        ({"cell": 1}, ", cell = 1: lines.toml has 1 cells; set a number from 0 to 0"),
        ({"kind": "messages"}, ": series must be set for kind = 'messages', and for no other kind"),
        ({"kind": "decision_time"},
         ", kind = 'decision_time': lines.toml has one cell; sweep the number of agents, for example objective.agents"),
        ({"test": claim("beter", than="Alone")},
         ", test 1 claim: must be 'better', 'not_worse', 'alike', 'shorter', 'faster', 'steady' or 'grows'"),
        ({"test": claim("better")}, ", test 1: claim = 'better' requires than"),
        ({"test": claim("alike", than="Alone")},
         ", test 1: claim = 'alike' requires margin, the smallest relevant difference; set it above 0"),
        ({"test": claim("better", than="Alone", than_in="on")},
         ", than_in: no figure 'on'; did you mean 'one'? available: one"),
        ({"test": claim("faster", than="Alone")},
         ": test 1, claim = 'faster': decision times are not measured; set timed = true"),
    ],
)  # fmt: skip
def test_a_wrong_manifest_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], write: Write, changes: dict[str, Any], line: str
) -> None:
    assert complaint(capsys, write(figure(**changes))) == [f"tiny.toml: figure one{line}"]


def test_a_study_that_is_not_there_is_told_in_one_line(capsys: pytest.CaptureFixture[str], write: Write) -> None:
    near = "that folder contains: bowls.toml, lines.toml, sizes.toml, tiny.toml"
    assert complaint(capsys, write(figure(study="line.toml"))) == [f"line.toml: no such file; {near}"]


def test_wrong_arguments_are_told_in_one_line(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write()
    (line,) = complaint(capsys, folder, "--only", "lins,bowls")
    assert line.startswith("--only: no figure 'lins'; did you mean 'lines'? available: bowls, lines")
    assert complaint(capsys, write(figure(quick=["budget.iteration=2"])), "--quick") == [
        "tiny.toml: figure one, quick: [budget] iteration = 2: no such key; did you mean 'iterations'?"
    ]
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "tiny"]) == WRONG_INPUT
    assert "no paper 'tiny'; available: fts" in capsys.readouterr().err  # those that come with the package
    assert main(["reproduce", "tiny", "--papers", "nowhere"]) == WRONG_INPUT
    assert "nowhere: no such folder" in capsys.readouterr().err
    (tmp_path / "afile").touch()
    assert main(["reproduce", "x", "--papers", "afile/x"]) == WRONG_INPUT
    assert "afile/x: no such folder, so there is no paper 'x'" in capsys.readouterr().err
    assert main(["reproduce", "tny", "--papers", str(folder)]) == WRONG_INPUT
    assert "no paper 'tny'; did you mean 'tiny'? available: tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((0.17872, 0.16, 0.19744), "0.179 [0.160, 0.197]"),
        ((0.0008335, 8.8e-06, 0.0016582), "0.00083 [0.00001, 0.00166]"),
        ((212.0, 100.0, 324.0), "212 [100, 324]"),
        ((0.5, 0.5, 0.5), "0.5000 [0.5000, 0.5000]"),
        ((0.17872, -math.inf, math.inf), "0.1787"),
    ],
)
def test_a_mean_is_written_as_finely_as_its_interval_allows(found: tuple[float, float, float], words: str) -> None:
    assert interval(Difference(*found)) == words


def test_two_figures_of_one_name_are_refused(capsys: pytest.CaptureFixture[str], write: Write) -> None:
    twice = {**MANIFEST, "figure": [MANIFEST["figure"][1]] * 2}
    assert "[[figure]] id = 'lines': is used twice; choose another id" in complaint(capsys, write(twice))[0]


@pytest.mark.parametrize(
    ("claim", "gain", "margin", "expected"),
    [
        ("better", (0.1, 0.3), 0.0, "holds"),
        ("better", (-0.1, 0.3), 0.0, "inconclusive"),
        ("better", (-0.3, -0.1), 0.0, "does not hold"),
        ("better", (0.1, 0.3), 0.5, "does not hold"),  # a gain that is too small to count
        ("not_worse", (-0.1, 0.3), 0.2, "holds"),
        ("not_worse", (-0.3, 0.3), 0.2, "inconclusive"),
        ("not_worse", (-0.4, -0.3), 0.2, "does not hold"),
        ("alike", (-0.1, 0.1), 0.2, "holds"),
        ("alike", (-0.1, 0.3), 0.2, "inconclusive"),
        ("alike", (0.25, 0.3), 0.2, "does not hold"),
        ("alike", (0.0, 0.0), 0.2, "inconclusive"),  # replicates that are all the same have no scatter
        ("better", (0.0, 0.0), 0.0, "inconclusive"),
        ("better", (math.nan, math.nan), 0.0, "inconclusive"),
    ],
)
def test_a_verdict_needs_the_whole_interval(claim: str, gain: tuple[float, float], margin: float, expected: str) -> None:
    assert verdict(claim, Difference(sum(gain) / 2, *gain), margin) == expected


def test_statements_about_decision_times_are_judged_by_ratios(write: Write) -> None:
    folder = write(figure(study="sizes.toml", kind="decision_time"))
    study = load_study(folder / "sizes.toml")
    slow, fast = (np.outer([1.0, 1.1, 0.9], np.full(4, speed)) for speed in (0.1, 0.01))
    times = Times(
        (2, 4), {0: {"Alone": fast, "M = 5": fast, "M = 10": slow}, 1: {"Alone": fast, "M = 5": 3 * fast, "M = 10": slow}}
    )
    shown = FigureData(load_manifest(folder / "tiny.toml").figure[0], study, study, None, times)

    def said(claim: str, of: str, margin: float | None = None, **than: str) -> tuple[str, str]:
        found = judge(TestTable.model_validate({"says": "so", "claim": claim, "of": of, "margin": margin, **than}), shown, {})
        return found.verdict, found.measured

    assert said("faster", "Alone", than="M = 10") == ("holds", "× 0.10 [0.10, 0.10]")
    assert said("faster", "Alone", 20.0, than="M = 10")[0] == "does not hold"
    assert said("grows", "M = 5") == ("holds", "× 3.00 [3.00, 3.00]")
    assert said("grows", "M = 10")[0] == "does not hold" and said("steady", "M = 10")[0] == "holds"
    assert said("steady", "M = 5")[0] == "does not hold" and said("steady", "M = 5", 4.0)[0] == "holds"
    axes = paper_figure(shown).axes[0]
    assert axes.get_xlabel() == "number N of other agents" and "seconds" in axes.get_ylabel()


def test_decision_times_are_measured_once_for_every_algorithm_in_every_cell(write: Write, tmp_path: Path) -> None:
    study, file, steps = load_study(write() / "sizes.toml"), tmp_path / "times.json", list[tuple[int, int]]()
    times = measure(study, file, lambda done, total: steps.append((done, total)))
    assert times.others == (2, 4) and steps[-1] == (6, 6)
    assert all(found.shape == (3, 4) and (found >= 0).all() for cell in times.seconds.values() for found in cell.values())
    again = measure(study, file)
    assert all(np.array_equal(times.seconds[c][label], again.seconds[c][label]) for c in (0, 1) for label in study.labels)


def test_what_is_private_has_no_decision_times(write: Write, tmp_path: Path) -> None:
    private = {**BOWLS, "algorithm": [{"name": "dp_fts"}], "agents": {"targets": [0, 2]}}
    study = load_study(write(private=private) / "private.toml")
    with pytest.raises(StudyError, match="private algorithms cannot be measured"):
        measure(study, tmp_path / "times.json")


def test_the_folders_of_this_machine_are_taken_out_of_a_text() -> None:
    assert (
        without_folders("OSError: '/home/me/x y.dat' in /a/b/c.txt, 3/4 and n/a")
        == "OSError: '…/x y.dat' in …/c.txt, 3/4 and n/a"
    )


@pytest.mark.parametrize(
    "path", [path for path in sorted(SHIPPED.glob("*.toml")) if "paper" in read(path)], ids=lambda path: path.stem
)
def test_every_study_of_a_shipped_manifest_is_valid_in_both_sizes(path: Path) -> None:
    lacking = set[str]()
    for one in load_manifest(path).figure:
        study = read(path.parent / one.study)
        named = {table["name"] for table in study["algorithm"]} - {*algorithms()} | {study["objective"]["name"]} - {
            *federations()
        }
        if named:
            lacking |= named
            continue
        try:
            for overrides in ((), one.quick):
                loaded = load_study(path.parent / one.study, overrides)
                assert {label for _, label in one.labels} <= {*loaded.labels}
                assert {*one.agents} <= {*loaded.targets} and one.cell < len(loaded.titles())
        except (data.DataMissingError, data.DataDamagedError):
            lacking.add(study["objective"]["name"])
    if lacking:
        pytest.skip(f"not here: {', '.join(sorted(lacking))}; set FEDBO_DATA to the folder that has the data sets")


def test_the_statements_of_a_paper_are_words_at_the_left() -> None:
    outcome = SimpleNamespace(figure=SimpleNamespace(id="fig1"), missing="no data", statements=())
    paper = SimpleNamespace(paper=SimpleNamespace(title="A paper"))
    made = SimpleNamespace(outcomes=[outcome], request=SimpleNamespace(only=()), manifest=paper)
    table = _summary(made)  # type: ignore[arg-type]
    assert isinstance(table, TextTable) and table.title == "A paper"
    assert table.markdown().splitlines()[3:] == ["| --- | --- | --- | --- |", "| fig1 | no data | skipped |  |"]
    assert r"\begin{tabular}{llll}" in table.latex()


def test_what_counts_as_federated_is_named_by_the_closed_set() -> None:
    assert set(FEDERATED_ORIGINS) <= ORIGINS


def test_help_lists_the_command_and_without_the_plug_in_the_error_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--help"]) == OK
    assert re.search("^  reproduce +Reproduce the figures", capsys.readouterr().out, re.MULTILINE)
    check_plugin(*plugins_of("fedbo-papers"))
    monkeypatch.setattr(rooms, "_are_declared", lambda: False)
    forget()
    assert main(["reproduce", "fts"]) == WRONG_INPUT
    assert "command 'reproduce' is in the plug-in fedbo-papers, which is not installed" in capsys.readouterr().err
    monkeypatch.undo()
    forget()
