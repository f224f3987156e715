"""Attacks on small studies: what is told is found, what is not is not, a listener changes nothing, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.cli import main
from fedbo.commands.arguments import OK, WRONG_INPUT
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError
from fedbo.study.study import load_study
from fedbo.testing.plugin_contract import check_plugin, plugins_of
from fedbo_leak import leak as leaking
from fedbo_leak.attacks import best_point, membership, observations
from fedbo_leak.leak import attack_study, resume_leak
from fedbo_leak.measuring import LeakRow, measure
from fedbo_leak.readings import AGENT, COORDINATOR, READER, evidence_of
from fedbo_leak.result import Leak
from fedbo_leak.watched import WatchedRun, watch

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def small(*names: str | dict[str, Any], replicates: int = 2, iterations: int = 4, **tables: Any) -> dict[str, Any]:
    algorithms = [{"name": name} if isinstance(name, str) else name for name in names]
    study = {
        "study": {"name": "small", "replicates": replicates, "seed": 2},
        "objective": {"name": "quadratic", "agents": 3},
        "budget": {"iterations": iterations},
        "agents": {"initial": 3},
        "algorithm": algorithms,
    }
    return {**study, **tables}


def heard(study: dict[str, Any], folder: Path) -> list[WatchedRun]:
    return [*watch(load_study(study), folder)]


def row(rows: Sequence[LeakRow], view: str, target: str) -> LeakRow:
    (found,) = (one for one in rows if one.strongest and (one.view, one.target) == (view, target))
    return found


def test_the_plug_in_keeps_the_contract_of_fedbo() -> None:
    (plugin,) = plugins_of("fedbo-leak")
    check_plugin(plugin)


def test_help_lists_its_command_and_fedbo_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == OK
    assert re.search("^  leak +Measure by attacks what messages betray.$", capsys.readouterr().out, re.MULTILINE)
    assert {"leak", "Leak"} <= {*dir(fedbo)}


def test_the_python_of_the_page_runs_and_its_answer_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    block, check = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(block, {})
    assert "observations" in capsys.readouterr().out
    assert main(["show", "runs/betrayed", "--format", "json"]) == OK
    (method,) = json.loads(capsys.readouterr().out)["methods"]
    assert (method["declared"], method["measured"]) == ("observations", "observations")
    assert "check_declaration" in check  # which test_declarations carries out
    assert main(["plot", "runs/betrayed", "--out", "leak.pdf"]) == OK and (tmp_path / "leak.pdf").is_file()


@pytest.mark.parametrize("name", ["fts", "fed_prior", "dp_fts_de", "trust_best"])
def test_a_listener_changes_no_observation(name: str, tmp_path: Path) -> None:
    result = fedbo.run(small(name, replicates=1, iterations=2), out=tmp_path / "run")
    attacked = fedbo.leak(result.directory, out=tmp_path / "leak")  # which compares each observation
    assert [one.algorithm for one in attacked.methods] == [name]


def test_a_run_that_is_not_repeated_to_the_bit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = fedbo.run(small("random", replicates=1, iterations=1), out=tmp_path / "run")
    study = load_study(small("random", replicates=1, iterations=1, study={"name": "small", "seed": 3}))
    monkeypatch.setattr(leaking, "load_study", lambda *_, **__: study)
    with pytest.raises(DirectoryError, match="cannot be repeated here to the bit"):
        fedbo.leak(result.directory, out=tmp_path / "leak")


def test_a_best_point_that_is_said_is_found_exactly_and_by_nobody_else(tmp_path: Path) -> None:
    rows = measure("share_best", heard(small({"name": "share_best", "every": 1}), tmp_path))
    best = row(rows, COORDINATOR, best_point.BEST)
    assert best.attack == "said" and best.value < 1e-12 and best.leakage == pytest.approx(1.0)
    assert "finds the best point of an agent to within 0 of the box after" in best.sentence


def test_all_that_is_pooled_is_found(tmp_path: Path) -> None:
    rows = measure("pooled", heard(small("pooled", replicates=1), tmp_path))
    assert row(rows, COORDINATOR, observations.POINTS).value == 1.0
    assert row(rows, COORDINATOR, membership.MEMBER).value == 1.0


def test_sums_of_features_tell_points_and_values_exactly(tmp_path: Path) -> None:
    study = small("fn_ucb", replicates=1)
    study = {name: table for name, table in study.items() if name != "agents"} | {"budget": {"pulls": 8}}
    (run,) = heard(study, tmp_path)
    for agent, truth in run.agents.items():
        evidence = evidence_of(run, COORDINATOR, agent)
        known = truth.until(evidence.readings[-1].step)
        found = observations.of_sums(evidence)
        assert found is not None and observations.share_found(found.points, known) == 1.0
        places = [int(np.argmin(((found.points - x) ** 2).sum(axis=1))) for x in known.x]
        once = [place for place, x in enumerate(known.x) if (known.x == x).all(axis=1).sum() == 1]
        assert np.allclose(found.numbers[places][once], known.y[once], atol=1e-6)


@pytest.mark.slow
def test_random_messages_betray_nothing(tmp_path: Path) -> None:
    """Messages of the control are draws from N(0, I). Law: t intervals of 5 runs, at 95 % for each of some 12; seed 2."""
    rows = measure("fts_noise", heard(small("fts_noise", replicates=5), tmp_path))
    assert not [one for one in rows if one.strongest and one.view == COORDINATOR and one.leakage_low > 0.05]


def test_what_agents_receive_of_one_another_is_read_by_row_and_by_sender(tmp_path: Path) -> None:
    (run,) = heard(small("fts", replicates=1), tmp_path)
    up, down = evidence_of(run, COORDINATOR, 0).readings, evidence_of(run, AGENT, 0).readings
    assert down and {reading.weights.tobytes() for reading in down} <= {reading.weights.tobytes() for reading in up}  # type: ignore[union-attr]
    assert len(evidence_of(run, READER, 0).readings) >= len(down)
    (run,) = heard(small({"name": "fts", "relay": "one"}, replicates=1), tmp_path)
    assert all(reading.weights is not None for reading in evidence_of(run, READER, 1).readings)


def test_a_silent_method_is_said_to_send_nothing(tmp_path: Path) -> None:
    found = fedbo.leak(small("random", replicates=1, iterations=1), out=tmp_path / "leak")
    assert str(found) == "random sends nothing." and not found.rows
    assert found.methods[0].is_honest


def test_an_interrupted_measurement_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, rightly = small("random", "share_best", replicates=1, iterations=1), leaking.measure
    whole = attack_study(study, out=tmp_path / "whole")

    def interrupted(label: str, runs: Any) -> Any:
        if label == "share_best":
            raise KeyboardInterrupt
        return rightly(label, runs)

    monkeypatch.setattr(leaking, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attack_study(study, out=tmp_path / "cut")
    monkeypatch.undo()
    assert repr(resume_leak(tmp_path / "cut").rows) == repr(whole.rows)
    assert repr(Leak.open(tmp_path / "cut").methods) == repr(replace(whole, directory=tmp_path / "cut").methods)


def test_what_cannot_be_heard_again_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StudyError, match="in real time, at sites or with secure noise"):
        fedbo.leak(small("random", timing={"clock": "wall"}, hosting={"kind": "packed"}), out=tmp_path / "leak")
    assert not (tmp_path / "leak").exists()
    assert main(["leak", str(tmp_path / "none.toml")]) == WRONG_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(DirectoryError, match="is not an empty directory"):
        fedbo.leak(small("random"), out=Path(__file__).parent)


def test_where_the_plug_in_is_on_the_path_and_not_installed_nothing_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages would not be heard, and every method would seem to be silent."""
    monkeypatch.setattr("fedbo_leak.watched.optional", lambda _: None)
    with pytest.raises(StudyError, match="no message would be heard: install this plug-in"):
        fedbo.leak(small("fts"))
