"""What `fedbo watch` says of a run from its files."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import document, write_run

from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.commands.watch.run_watch import study_state
from fedbo.execution.runner import run_study
from fedbo.objectives.outcome import Outcome
from fedbo.study.study import load_study

STUDY = {
    "study": {"name": "watched", "seed": 2, "replicates": 2},
    "objective": {"name": "python_function", "function": "test_watch:slow", "low": [0.0], "high": [1.0], "agents": 2},
    "budget": {"iterations": 6},
    "recovery": {"events": 4},
    "algorithm": [{"name": "random"}],
}


def slow(x: np.ndarray) -> float:
    """Take a moment, and fail where a test wants to look at what is left."""
    if x[0] > 0.9:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the second one is not waited for
    return float(x[0])


def test_a_run_that_has_ended_is_as_its_summary(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(agents=3, iterations=2))
    state = study_state(folder)
    summary = Result.open(folder).summary()
    assert [(row.algorithm, row.ended, row.share, row.best) for row in state.rows] == [
        (row.algorithm, 3, 1.0, row.final.mean) for row in summary
    ]


def test_a_run_that_goes_on_is_read_from_its_parts(tmp_path: Path) -> None:
    study = load_study({**STUDY, "objective": {**STUDY["objective"], "function": "test_watch:slow"}}, trust=True)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "run")
    folder = tmp_path / "run"
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "status": "running"})
    (row,) = study_state(folder).rows
    assert 0 < row.evaluations < 2 * 2 * 9 and 0 < row.share < 1 and row.ended < 2
    assert row.best is not None and 0 < row.best <= 0.9


def test_evaluations_after_the_last_snapshot_are_in_the_log(tmp_path: Path) -> None:
    from fedbo.actors.storage.evaluation_log import EvaluationLog
    from fedbo.actors.storage.evaluations import EvaluationRecord

    folder = write_run(tmp_path / "run", document(agents=2, iterations=2, replicates=1))
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "status": "running"})
    log = EvaluationLog(RunFolder.of(folder / "parts", RunKey(0, "Alone", 0)), range(2), None)
    log.append([EvaluationRecord(1, 2, [0.5, 0.5], Outcome(-0.25), started=time.time())])
    log.close()
    row = study_state(folder).rows[0]
    assert (row.evaluations, row.best, row.metric) == (3, 0.25, "error")


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(agents=2, iterations=1))
    assert main(["watch", str(folder)]) == OK
    assert "synthetic: complete" in capsys.readouterr().out
    assert main(["watch", str(folder), "--format", "json"]) == OK
    assert json.loads(capsys.readouterr().out)["rows"][0]["algorithm"] == "Alone"
    assert main(["watch", str(tmp_path)]) == WRONG_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 1
