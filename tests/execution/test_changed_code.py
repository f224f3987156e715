"""Code that changes after a run began: it is refused, or a warning says that results mix both versions."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.execution.again import has_ended
from fedbo.execution.runner import resume_study, run_study
from fedbo.objectives.typed_function import giving
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.study.paths import DirectoryError
from fedbo.study.study import StudyError, load_study
from fedbo.tuning.tune import _same

FUNCTION = "def taste(x):\n    return -(x[0] - 0.3) ** 2\n"
METHOD = "from fedbo.algorithms.random import Random as Mine\n"
TEXT = """
[study]
name = "code"
[objective]
{objective}
[budget]
iterations = 2
[[algorithm]]
name = "{algorithm}"
"""
CALLED = 'name = "python_function"\nfunction = "{}"\nlow = [0.0]\nhigh = [1.0]'
KINDS = ("file beside", "module beside", "module on the path", "method beside")


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name a module as no other test does, and forget it in the end."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"own_{abs(hash(request.node.nodeid))}"
    request.addfinalizer(lambda: sys.modules.pop(name, None))
    return name


def written(kind: str, module: str, folder: Path) -> tuple[Path, Path]:
    """Write a study and the code that it names; return both files."""
    place, code = folder, FUNCTION
    if kind == "module on the path":
        sys.path.append(str(place := folder / "elsewhere"))
        place.mkdir()
    objective, algorithm = 'name = "branin"\nagents = 1', "random"
    if kind == "method beside":
        code, algorithm = METHOD, f"{module}.py:Mine"
    else:
        objective = CALLED.format(f"{module}{'.py' if kind == 'file beside' else ''}:taste")
    study = folder / "study.toml"
    study.write_text(TEXT.format(objective=objective, algorithm=algorithm))
    (place / f"{module}.py").write_text(code)
    return study, place / f"{module}.py"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_changed_code_is_extended_and_forked_only_where_that_is_allowed(
    kind: str, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, code = written(kind, module, tmp_path)
    study = load_study(path, trust=True)
    run = run_study(study, tmp_path / "run").directory
    assert len(read_manifest(run)["code"]) == 1 and has_ended(run, study)
    code.write_text(code.read_text() + "# another version\n")
    assert has_ended(run, study) and not has_ended(run, load_study(path, trust=True))
    longer = ["budget.iterations=3"]
    with pytest.raises(DirectoryError, match=rf"{module}(\.py)?:\w+ changed after the run started; .* --changed-code"):
        resume_study(run, longer)
    with pytest.raises(DirectoryError, match=rf"{module}(\.py)?:\w+ changed after the run"):
        fedbo.fork(run, 1.0, overrides=["exchange.mode=immediate"], out=tmp_path / "fork", trust=True)
    assert capsys.readouterr().err == ""
    result = fedbo.resume(run, overrides=longer, changed_code=True)
    assert "the results mix both versions" in capsys.readouterr().err
    (noted,) = read_manifest(run)["earlier_code"]
    assert [name.partition(":")[0].removesuffix(".py") for name in noted["changed"]] == [module]
    count = len(result.observations)
    assert len(resume_study(run, ["budget.iterations=4"]).observations) == count + 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("status", "refused"), [("interrupted", True), ("failed", False)])
def test_only_the_code_of_a_run_that_failed_may_change_without_a_question(
    status: str, refused: bool, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, code = written("file beside", module, tmp_path)
    run = run_study(load_study(path, trust=True), tmp_path / "run").directory
    write_manifest(run, read_manifest(run) | {"status": status})
    code.write_text(code.read_text() + "# mended\n")
    if refused:
        with pytest.raises(DirectoryError, match="--changed-code"):
            resume_study(run)
    else:
        assert len(resume_study(run).observations) == 5
        assert f"warning: {module}.py:taste changed after the run started" in capsys.readouterr().err


def test_a_function_that_was_handed_over_is_known_by_its_source() -> None:
    def hashes_of(function: Any, code: Any = None) -> tuple[dict[str, str], str]:
        objective = {"name": "typed_function", "function": "given:taste", "space": written_space({"a": (0.0, 1.0)})}
        tables = {"study": {"name": "s"}, "objective": objective, "budget": {"iterations": 1}}
        with giving("given:taste", function):
            study = load_study({**tables, "algorithm": [{"name": "random"}]}, trust=True)
            return study.code(), study.digest(code)

    def one(configuration: dict[str, float]) -> float:
        return configuration["a"]

    def other(configuration: dict[str, float]) -> float:
        return -configuration["a"]

    code, digest = hashes_of(one)
    assert set(code) == {"given:taste"} and hashes_of(partial(one))[1] == digest
    assert hashes_of(other)[1] != digest and hashes_of(other, code)[1] == digest
    assert hashes_of(max)[0] == {}  # which has no source


def test_a_module_beside_a_study_is_code_that_must_be_trusted_and_hides_no_other(module: str, tmp_path: Path) -> None:
    path, code = written("module beside", module, tmp_path)
    with pytest.raises(
        StudyError, match=r"names Python code .*; if you trust its author, add --trust \(trust=True in Python\)$"
    ):
        load_study(path)
    with pytest.raises(StudyError, match="names Python code .*; if you trust its author, add trust=True$"):
        fedbo.load_study(path)
    assert module not in sys.modules
    (tmp_path / "json.py").write_text(FUNCTION)
    path.write_text(path.read_text().replace(f"{module}:taste", "json:loads"))
    with pytest.raises(StudyError, match="there is another module 'json' .*; rename the file"):
        load_study(path, trust=True)
    code.unlink()
    path.write_text(path.read_text().replace("json:loads", f"{module}:taste"))
    with pytest.raises(StudyError, match=f"put {module}.py beside the study, or its folder in PYTHONPATH"):
        load_study(path, trust=True)


def test_a_finished_tuning_is_opened_with_a_warning_where_the_function_has_changed(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, code = written("file beside", module, tmp_path)
    study = load_study(path, trust=True)
    run = run_study(study, tmp_path / "run").directory
    _same(study, run)
    assert capsys.readouterr().err == ""
    code.write_text(code.read_text() + "# another version\n")
    _same(load_study(path, trust=True), run)
    assert "its results come from the earlier version" in capsys.readouterr().err
    assert not _same(load_study(path, ["budget.iterations=9"], trust=True), run)
