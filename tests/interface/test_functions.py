"""The functions with the names of commands, and the logger `fedbo`."""

from __future__ import annotations

import inspect
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.cli import main
from fedbo.settings.logs import LOGGER

STUDY: dict[str, Any] = {
    "study": {"name": "doors", "seed": 3, "replicates": 2},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 12},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("doors")
    fedbo.run(STUDY, out=folder / "one")
    fedbo.run(STUDY, out=folder / "two", overrides={"timing.evaluation.mean": 2.0})
    return [folder / "one", folder / "two"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_function_that_has_the_name_of_a_command_has_its_arguments_in_the_signature() -> None:
    for name in ("bench", "compare", "fit", "fork", "replay", "report", "run", "twin", "validate", "why", "worth"):
        function = getattr(fedbo, name)
        assert not [one for one in inspect.signature(function).parameters.values() if one.kind is one.VAR_KEYWORD], name
        assert function.__name__ == name and function.__doc__


def test_a_validation_is_that_of_the_command(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    found, facts = fedbo.validate(STUDY), printed(capsys, "validate", str(runs[0] / "study.toml"))["estimate"]
    assert (found.cost.evaluations, found.cost.runs, found.warnings) == (facts["evaluations"], facts["runs"], {})
    assert found.reveals == facts["reveals"] and found.study.document()["objective"]["agents"] == 3
    endless = fedbo.validate(STUDY | {"fault": [{"kind": "crash", "rate": 50.0, "restart": 1.0}]})
    assert list(endless.warnings) == ["endless"]
    with pytest.raises(fedbo.errors.StudyError, match="no such key"):
        fedbo.validate(STUDY, overrides=["budget.iteration=3"])


def test_runs_are_compared_and_repeated_as_by_the_command(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = fedbo.compare([fedbo.Result.open(runs[0]), str(runs[1])])
    assert [row["duration"] for row in printed(capsys, "compare", *map(str, runs))["runs"]] == [row.duration for row in rows]
    assert fedbo.replay(runs[0], verify=True).same
    with pytest.raises(fedbo.errors.ArgumentError, match="must be a list of results or of run directories"):
        fedbo.compare(str(runs[0]))


class Kept(logging.Handler):
    """Keeps the words of records."""

    def __init__(self) -> None:
        super().__init__()
        self.words = list[tuple[str, str]]()

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append((record.levelname, record.getMessage()))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, level = Kept(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield handler
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def test_progress_is_recorded_whether_it_is_printed_or_not(
    tmp_path: Path, kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    fedbo.run(STUDY, out=tmp_path / "quiet")
    assert [words.partition(",")[0] for _, words in kept.words] == ["random: 100%"]
    assert capsys.readouterr().err == ""
    fedbo.run(STUDY, out=tmp_path / "loud", progress=True)
    assert len(kept.words) == 2 and kept.words[1][0] == "INFO"
    assert capsys.readouterr().err == f"{kept.words[1][1]}\n"


def test_a_handler_on_the_stream_where_a_line_is_printed_does_not_print_it_again(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logging.StreamHandler(stream)
    LOGGER.addHandler(handler)
    try:
        fedbo.run(STUDY, out=tmp_path / "once", progress=True)
        with pytest.warns(fedbo.errors.EvaluationWarning):
            fedbo.run(failing(), out=tmp_path / "failing", overrides={"study.replicates": 1})
    finally:
        LOGGER.removeHandler(handler)
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()] == ["random: 100%"] * 2  # one for each run
    assert [level for level, _ in kept.words] == ["INFO", "INFO", "WARNING"]
    assert "evaluations failed; first error" in kept.words[-1][1]


def failing() -> dict[str, Any]:
    return {
        **STUDY,
        "objective": {"name": "python_function", "function": f"{__name__}:often", "names": ["a"], "low": [0.0], "high": [1.0]},
    }


def often(point: Any) -> float:
    """Fail for half of the points."""
    if point[0] < 0.5:
        raise ValueError("too small")
    return float(point[0])


def test_nothing_is_printed_where_logging_was_not_set_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedbo.run(STUDY, out=tmp_path / "run")
    assert capsys.readouterr() == ("", "")
