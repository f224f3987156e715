"""What a tuning shows of itself: its progress in evaluations, a warning of the first failure, and itself in an interpreter."""

from __future__ import annotations

import io
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tuned_functions
from rich.console import Console

import fedbo
from fedbo.actors.storage.evaluations import Query
from fedbo.analysis import failures
from fedbo.execution.notices import Evaluation, FirstFailure
from fedbo.objectives.typed_function import giving
from fedbo.tuning.progress import TuningProgress
from fedbo.tuning.tune import check_function, tuning_study


def ended(agent: int, number: int, value: float | None, stopped: str | None = None) -> Evaluation:
    error = None if value is not None else "nope"
    return Evaluation(agent, number, {"x": agent / 2}, value, error, started=0.0, finished=1.0, stopped=stopped)


def test_progress_counts_evaluations_early_stops_and_failures_and_names_the_best_site() -> None:
    told = io.StringIO()
    progress = TuningProgress(Console(file=told, force_terminal=False), 4, maximise=False)
    progress.start([])
    assert progress.words == "0 of 4 evaluations"
    progress(ended(2, 0, 4.0, "paused"))
    progress(ended(2, 1, 3.0, "paused"))
    assert progress.words == "1 of 4 evaluations, 1 paused, best 3 at site 2", "it continued from a pause, and pauses again"
    for one in (ended(2, 2, 3.0, "stopped"), ended(1, 0, 0.95), ended(0, 1, None), ended(0, 2, 2.0)):
        progress(one)
    progress.finish()
    progress.on_end()
    words = "4 of 4 evaluations, 1 failed, 1 stopped early, best 0.95 at site 1"
    assert progress.words == words
    assert told.getvalue().splitlines() == [words], "where there is no terminal the end is said once"


def test_progress_in_a_notebook_is_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    display, told, seen = pytest.importorskip("IPython.display"), io.StringIO(), list[str]()

    class Output:
        """The handle of an output, which shows what it is given."""

        def update(self, shown: Any) -> None:
            seen.append(shown._repr_html_())

    monkeypatch.setattr(display, "display", lambda shown, display_id: Output())
    progress = TuningProgress(Console(file=told, force_terminal=False, force_jupyter=True), 2, maximise=True)
    progress.start([])
    progress(ended(0, 0, 1.0))
    progress(ended(1, 0, None))
    progress.finish()
    progress.on_end()
    assert told.getvalue() == "" and [line.count("<progress") for line in seen] == [1, 1]
    assert '<progress value="2" max="2"></progress> 2 of 2 evaluations, 1 failed, best 1 at site 0' in seen[-1]


def test_the_first_failure_is_a_warning_with_its_reason_and_the_second_is_none(recwarn: pytest.WarningsRecorder) -> None:
    warn = FirstFailure()
    logged = Query(2, 0, 0, np.array([0.0, 0.5])).failed("ValueError: nope\nTraceback").error
    failed = replace(ended(2, 0, None), configuration={"model": {"C": 0.03223845}, "kernel": "poly"}, error=logged)
    with pytest.warns(fedbo.errors.EvaluationWarning) as told:
        warn(failed)
    where = "agent 2 at model.C=0.0322385, kernel='poly'"
    assert str(told[0].message) == f"an evaluation failed, and the others continue: {where}: ValueError: nope"
    assert told[0].filename == __file__, "the user's line, not one of ours"
    warn(failed)
    assert not recwarn.list


def failing(share: float) -> dict[str, Any]:
    """Make a study whose function fails for a share of its points."""
    module: Any = types.ModuleType("failing_in_part")

    def function(x: np.ndarray) -> float:
        if x[0] < share:
            raise ValueError("too small")
        return float(x[0])

    function.__module__, function.__qualname__ = module.__name__, "function"
    module.function, sys.modules[module.__name__] = function, module
    objective = {"name": "python_function", "function": function, "low": [0.0], "high": [1.0], "agents": 2}
    return {
        "study": {"name": "failing"},
        "objective": objective,
        "budget": {"iterations": 6},
        "algorithm": [{"name": "random"}],
    }


def test_a_run_in_which_all_fails_raises_and_one_in_which_some_fail_warns(tmp_path: Path) -> None:
    words = r"^\d+ of \d+ evaluations failed; first error: agent \d at x1=[\d.]+: ValueError: too small$"
    with pytest.warns(fedbo.errors.EvaluationWarning, match=words) as told:
        result = fedbo.run(failing(0.5), out=tmp_path / "some")
    assert told[0].filename == __file__
    assert 0 < failures(result)[0] < len(result.observations)
    assert f"{failures(result)[0]} failed" in repr(result)
    with pytest.raises(fedbo.errors.RunError, match=r"^(\d+) of \1 evaluations failed; .*too small; all that was") as raised:
        fedbo.run(failing(2.0), out=tmp_path / "all")
    assert fedbo.Result.open(raised.value.directory).best() == []


def test_a_run_and_an_agent_show_their_best_configuration(tmp_path: Path) -> None:
    study = {"study": {"name": "shown"}, "objective": {"name": "branin", "agents": 2}, "budget": {"iterations": 2}}
    result = fedbo.run(study | {"algorithm": [{"name": "random"}]}, out=tmp_path / "run")
    best = result.best()[0]
    for words in (
        "'shown' (complete)",
        f"best value {best['value']:.6g}",
        f"agent {best['agent']}",
        f"x1={best['configuration']['x1']:.6g}",
    ):
        assert words in repr(result)
        assert words.replace("'", "&#x27;") in result._repr_html_()
    with pytest.raises(AttributeError, match=r"'Result' object has no attribute 'best_params'; use best\(\"agent\"\)"):
        _ = result.best_params  # type: ignore[attr-defined]
    with fedbo.Agent(tmp_path / "a", {"model": {"n": (1, 4)}}, fedbo.Terms("random")) as agent:
        assert "no value yet" in repr(agent)
        agent.tell(agent.ask()[0].token, 3.0)
        assert f"1 values, 0 open, best 3 at {agent.pending() or agent.best()[0]}" in repr(agent)  # type: ignore[index]
    (tmp_path / "run" / "observations.parquet").write_bytes(b"")
    assert "is damaged" in repr(fedbo.Result(result.directory, result.study, result.manifest))


def test_a_function_that_has_another_name_than_in_the_directory_is_refused_with_both_names(tmp_path: Path) -> None:
    def accuracy(config: dict[str, Any]) -> float:
        return 1.0

    space = {"rate": (0.0, 1.0)}
    began = tuning_study(accuracy, space, 2, {})  # as in a script
    (tmp_path / "study.toml").write_text(began.to_toml())
    check_function(began, tmp_path)
    with pytest.raises(fedbo.errors.FedboError, match=r"accuracy', not 'tuned_functions:training'; "):
        check_function(tuning_study(tuned_functions.training, space, 2, {}), tmp_path)


def test_a_function_whose_file_was_changed_since_has_the_hash_of_what_is_called(tmp_path: Path) -> None:
    file, names = tmp_path / "edited.py", dict[str, Any]()
    file.write_text("\n\ndef wrong(rate):\n    return rate\n")
    exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102
    with giving("given:wrong", names["wrong"]):
        whole = tuning_study(names["wrong"], {"rate": (0.0, 1.0)}, 1, {}).code()
        file.write_text('x = 1\n\ny = ("""half a\nstatement\n')
        changed = tuning_study(names["wrong"], {"rate": (0.0, 1.0)}, 1, {}).code()
    assert len(whole) == 1 and changed == whole
