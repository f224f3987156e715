"""What a report says, and that it says it in one file."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from synthetic_run import document, write_run

import fedbo
from fedbo.analysis import failures
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.execution.directory import new_manifest
from fedbo.figures.page.about import asked, grouped_failures
from fedbo.figures.page.page import render_page
from fedbo.figures.page.panels import LEFT, RIGHT, curve_panels
from fedbo.figures.page.timeline_drawing import draw_timeline
from fedbo.figures.page.verdict import Verdict, verdict
from fedbo.figures.style import PALE, colour_at, dashes_at, on_dark

VOID = {"meta", "link", "input", "br", "img"}


class Checked(HTMLParser):
    """Reads a page and notes what does not close, the identifiers, and every address."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.wrong, self.names, self.addresses = list[str](), list[str](), list[str](), list[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names += [given["id"] or ""] if "id" in given else []
        self.addresses += [given[name] or "" for name in ("src", "href") if name in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note nothing: it is closed."""

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "troubled", document(), troubled=True))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Result:
    study = document(agents=3, iterations=4, objective__alpha=[0.1, 0.3])
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "swept", study))


@pytest.fixture(scope="module")
def page(troubled: Result) -> str:
    return render_page([troubled])


def test_a_report_is_one_well_formed_file_that_asks_for_nothing(troubled: Result, swept: Result) -> None:
    page = render_page([troubled, swept])
    checked = Checked(page)
    assert checked.wrong == [] and checked.open == []
    assert len(checked.names) == len(set(checked.names))
    assert all(address.startswith(("data:", "#")) for address in checked.addresses)
    assert "http" not in re.sub(r'"http://www.w3.org/2000/svg"|http-equiv', "", page)
    assert render_page([troubled, swept]) == page


def test_a_report_has_the_numbers_of_the_tables(troubled: Result, page: str) -> None:
    for row in troubled.summary():
        assert str(row.final) in page and (row.difference is None or str(row.difference) in page)
    assert "best error" in page and "Stragglers, messages and crashes" in page and "ValueError: no" in page
    assert "fedbo run study.toml" in page and "alpha = 0.3" in page


def test_the_data_in_the_page_are_those_of_the_drawings(troubled: Result, page: str) -> None:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data = json.loads(found)
    drawing = draw_timeline(troubled, 0, "Together")
    assert data["timelines"]["r0-c0-t0"] == json.loads(json.dumps(drawing.data()))
    names = {layer.name for layer in drawing.layers}
    assert {"waiting", "own query", "federated query", "away", "down after a crash", "coordinator down"} <= names
    assert drawing.lost and drawing.crashed
    panels = curve_panels(troubled, 0, "r0-c0-p")
    assert [panel["title"] for panel in data["panels"].values()] == ["evaluations", "time", "communication"]
    assert {panel.key: json.loads(json.dumps(panel.data)) for panel in panels} == data["panels"]
    for panel in panels:
        low, high, first, last = panel.data["x"]
        assert (first, last) == (LEFT, RIGHT) and panel.svg in page
        ticks = re.findall(r'text-anchor: middle" x="([\d.]+)" y="[\d.]+">([\d.]+)<', panel.svg)
        assert len(ticks) > 2
        for place, value in ticks:  # Matplotlib's places are those that the script computes
            assert float(place) == pytest.approx(first + (float(value) - low) / (high - low) * (last - first), abs=0.06)


def test_lines_and_their_names_have_the_kinds_of_line_of_the_figures(troubled: Result, page: str) -> None:
    for place, label in enumerate(troubled.study.labels):
        assert f'stroke-dasharray="{dashes_at(place)}"/></svg><span class="name">{label}</span>' in page
        assert page.count(f"stroke-dasharray: {dashes_at(place).replace(' ', ',')};") == (
            0 if dashes_at(place) == "none" else 3
        )
        assert page.count(f'<g class="s{place}">') >= 3
    assert len({dashes_at(place) for place in range(4)}) == 4


def test_curves_end_where_the_summary_does(troubled: Result) -> None:
    for panel in curve_panels(troubled, 0, ""):
        for series, row in zip(panel.data["series"], troubled.summary(), strict=True):
            assert series["label"] == row.algorithm
            assert series["mean"][-1] == pytest.approx(row.final.mean, rel=1e-4)
            assert series["error"][-1] == pytest.approx(row.final.error, rel=1e-4)


def judged(result: Result) -> Verdict:
    return verdict(result, 0, result.summary())


def test_the_verdict_follows_the_interval(tmp_path: Path) -> None:
    better = judged(Result.open(write_run(tmp_path / "a", document(agents=6, iterations=30))))
    assert better.tone == "better" and better.headline.startswith("Together ends better than Alone: best error")
    alone = judged(Result.open(write_run(tmp_path / "b", document(replicates=1))))
    assert alone.tone == "open" and alone.headline.startswith("One replicate does not allow a statistical comparison")


def test_a_control_that_is_not_beaten_is_named(tmp_path: Path) -> None:
    study = document()
    study["algorithm"] = [{"name": "ts", "label": "Alone"}, {"name": "fts", "label": "Together"}, {"name": "fts_noise"}]
    result = Result.open(write_run(tmp_path / "run", study))
    assert any("clearly beat fts_noise" in line for line in judged(result).further)


def test_the_first_sentence_says_that_a_control_is_not_beaten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    better = Difference(-0.1, -0.2, -0.05)
    study = document(agents=6, iterations=30)
    study["algorithm"] = [{"name": "ts", "label": "Alone"}, {"name": "fts", "label": "Together"}, {"name": "fts_noise"}]
    result = Result.open(write_run(tmp_path / "run", study))
    monkeypatch.setattr("fedbo.figures.page.verdict.difference", lambda *_: Difference(-0.1, -0.3, 0.1))
    found = judged(result)
    assert found.headline.startswith("Together ends better than Alone, but not clearly better than fts_noise: best error")
    assert found.tone == "open"
    monkeypatch.setattr("fedbo.figures.page.verdict.difference", lambda *_: better)
    found = judged(result)
    assert found.headline.startswith("Together ends better than Alone: best error") and found.tone == "better"


def test_what_has_not_ended_is_said(tmp_path: Path) -> None:
    page = render_page([Result.open(write_run(tmp_path / "run", document(), status="interrupted"))])
    assert "This study is not complete (interrupted)" in page


def test_words_of_a_study_cannot_become_markup(tmp_path: Path) -> None:
    study = document(agents=2, iterations=2, replicates=2)
    study["study"]["description"] = "</script><script>alert(1)</script>"
    study["algorithm"][1]["label"] = "<b>bold & 'quoted'</b>"
    page = render_page([Result.open(write_run(tmp_path / "run", study))])
    assert "<script>alert" not in page and "<b>bold" not in page and "&lt;b&gt;bold" in page
    assert Checked(page).wrong == []


def test_the_same_error_at_two_points_is_one(troubled: Result) -> None:
    (found,) = grouped_failures(troubled)
    assert found.line == "ValueError: no" and found.count == failures(troubled)[0]


@pytest.mark.long
def test_the_command_writes_into_the_run_or_where_it_is_told(
    capsys: pytest.CaptureFixture[str], troubled: Result, swept: Result, tmp_path: Path
) -> None:
    assert main(["report", str(troubled.directory)]) == OK
    assert capsys.readouterr().out.strip() == str(troubled.directory / "report.html")
    both = tmp_path / "both.html"
    assert main(["report", str(troubled.directory), str(swept.directory), "--out", str(both)]) == OK
    assert "2 runs" in both.read_text() and "synthetic (troubled)" in both.read_text()


def test_wrong_inputs_are_one_line_each(capsys: pytest.CaptureFixture[str], troubled: Result, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = [str(troubled.directory), "--out", str(tmp_path / "file" / "x")]
    run = str(troubled.directory)
    wrong = {
        "is a folder; set a file": [run, "--out", str(tmp_path)],
        "choose another name": [run, "--out", str(tmp_path / "r.pdf")],
        "does not exist; create it": [run, "--out", str(tmp_path / "none" / "r.html")],
        "is passed twice": [run, f"{run}/../{troubled.directory.name}", "--out", str(tmp_path / "r.html")],
        "is required for several runs": [run, run],
    }
    for words, arguments in [
        *wrong.items(),
        *(("", each) for each in ([str(tmp_path)], [str(tmp_path / "none")], blocked, [])),
    ]:
        assert main(["report", *arguments]) == WRONG_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


def test_a_run_without_any_observation_has_a_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(agents=1, iterations=1, replicates=1), status="failed")
    result = Result.open(folder)
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "error": "ValueError: no\nmore"})
    result.__dict__["observations"], result.__dict__["events"] = result.observations.slice(0, 0), result.events.slice(0, 0)
    assert "This study is not complete" in render_page([result])


def test_what_messages_reveal_is_shown_by_lists_checks_and_reports(
    troubled: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "algorithms", "--format", "json"]) == OK
    listed = {item["name"]: item["reveals"] for item in json.loads(capsys.readouterr().out)["algorithms"]}
    assert (listed["fed_prior"], listed["ts"], listed["fts"]) == ("computable", "nothing", "draws")
    study = troubled.directory / "study.toml"
    assert main(["validate", str(study), "--format", "json"]) == OK
    revealed = json.loads(capsys.readouterr().out)["estimate"]["reveals"]
    assert set(revealed) == set(troubled.study.labels)
    assert main(["validate", str(study)]) == OK
    assert "messages reveal" in capsys.readouterr().out
    assert new_manifest(troubled.study)["reveals"] == revealed
    (label, word), *_ = revealed.items()
    result = Result(troubled.directory, troubled.study, {**troubled.manifest, "reveals": revealed})
    assert dict(asked(result))["messages reveal"].startswith(f"{label}: {word} (")


def test_the_function_writes_the_page_of_the_command(troubled: Result, swept: Result, tmp_path: Path) -> None:
    path = fedbo.report([troubled, swept.directory], out=tmp_path / "both.html")
    assert path.read_text(encoding="utf-8") == render_page([troubled, swept])
    with pytest.raises(fedbo.errors.ReportError, match="^out: is required for several runs"):
        fedbo.report([troubled, swept])


def test_a_dark_page_has_a_colour_for_every_one_of_a_light_page(troubled: Result) -> None:
    page = render_page([troubled])
    light, dark = page.split("@media screen and (prefers-color-scheme: dark)", 1)
    named = set(re.findall(r"(--[a-z-]+):", light))
    assert named == set(re.findall(r"(--[a-z-]+):", dark[: dark.index(".ranks img")])) and "--paper" in named
    assert set(re.findall(r"var\((--[a-z-]+)\)", page)) <= named
    painted = set(re.findall(r'(?:fill|stroke)="(#[0-9A-Fa-f]{6})"', page[page.index('<figure class="timeline"') :]))
    shades = dict(re.findall(r'\[fill="(#\w{6})"\] \{ fill: (#\w{6}); \}', page))
    of_series = {to_hex(colour_at(place)).upper() for place in range(12)}
    assert {colour.upper() for colour in painted} - of_series <= {colour.upper() for colour in shades}
    assert shades[PALE] == to_hex(on_dark(PALE)) and len(set(re.findall(r"rotate\((-?\d+)\)", page))) >= 3


def test_a_report_names_the_unit_of_time(tmp_path: Path) -> None:
    study = document(agents=2, iterations=2, replicates=2) | {"timing": {"unit": "min"}}
    page = render_page([Result.open(write_run(tmp_path / "run", study))])
    assert "virtual time [min]; agents by speed" in page and "time: virtual time [min];" in page
