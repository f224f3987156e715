"""A file that is edited between two runs of one process: the new code runs, the manifest holds its hash, and replays agree."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.analysis.result import Result
from fedbo.cli import main
from fedbo.execution.jobs import runs
from fedbo.settings import trust
from fedbo.settings.trust import ChangedCodeError
from fedbo.study.environment.models import members_in

Study = dict[str, Any]
FUNCTION = "def f(x, agent):\n    return VERSION + float(x[0])\n"
CALLED = {"name": "python_function", "names": ["a"], "low": [0.0], "high": [1.0], "agents": 2}
FRAME = "from dataclasses import dataclass\n@dataclass(frozen=True)\n"
MODULE = {
    "a function": FUNCTION,
    "a function given": FUNCTION,
    "a cost": f"{FUNCTION.replace('VERSION', '0')}\ndef cost(x):\n    return VERSION + float(x[0])\n",
    "an objective": "from fedbo.objectives.functions import Quadratic\n"
    f"{FRAME}class Mine(Quadratic):\n    dimensions: int = VERSION\n    agents: int = 2\n",
    "a method": f"from fedbo.algorithms.random import Random\n{FRAME}class Mine(Random):\n    queries: int = VERSION\n",
    "a schedule": "def p(t):\n    return 1.0 / VERSION\n",
    "a duration": f"from fedbo.settings.durations import Constant\n{FRAME}class Mine(Constant):\n    mean: float = VERSION\n",
    "an exchange": "from fedbo.coordinator.kernel.exchange import Deadline\n"
    f"{FRAME}class Mine(Deadline):\n    length: float = VERSION\n",
    "a latency": f"from fedbo.settings.durations import Constant\n{FRAME}class Mine(Constant):\n    mean: float = VERSION\n",
    "an absence": "from fedbo.coordinator.environment.availability import Bernoulli\n"
    f"{FRAME}class Mine(Bernoulli):\n    probability: float = 0.5\n    absence: float = VERSION\n",
    "times of absence": "from fedbo.coordinator.environment.availability import Markov\n"
    f"{FRAME}class Mine(Markov):\n    present: float = 1.0\n    absent: float = VERSION\n",
    "a history": f"from fedbo.algorithms.random import Random\n{FRAME}class Mine(Random):\n    queries: int = VERSION\n",
}
MODELS = {  # table and key
    "a duration": ("timing", "evaluation"),
    "a latency": ("timing", "latency"),
    "an absence": ("availability", ""),
    "times of absence": ("availability", ""),
}
MODULE |= {f"{kind} of a group": MODULE[kind] for kind in MODELS}
FEDERATED = {"name": "fts", "every": 1, "features": 10}


def study_of(kind: str, file: Path, name: str) -> Study:
    """Return a study that names the code of a file, each kind in one form."""
    study: Study = {
        "study": {"name": "edited"},
        "objective": {"name": "quadratic", "agents": 2},
        "agents": {"initial": 2},
        "budget": {"iterations": 3},
        "algorithm": [{"name": "random"}],
    }
    match kind:
        case "a function":
            study["objective"] = {**CALLED, "function": f"{file}:f"}
        case "a function given":
            study["objective"] = {**CALLED, "function": sys.modules[file.stem].f if file.stem in sys.modules else None}
        case "a cost":
            study["objective"] = {**CALLED, "function": f"{file}:f", "cost": f"{file}:cost"}
            study["timing"] = {"evaluation": {"model": "cost"}}
        case "an objective":
            study["objective"] = {"name": f"{file}:Mine"}
        case "a method":
            study["algorithm"] = [{"name": f"{file}:Mine"}]
        case "a schedule":
            study["algorithm"] = [{"name": "fts", "every": 1, "p": f"{file.stem}:p", "features": 10}]
        case "a history":
            study["agents"]["history"] = {"algorithm": f"{file}:Mine", "observations": 6}
            study["algorithm"] = [FEDERATED]
        case "a latency" | "an absence" | "times of absence" | "a duration":
            (table, key), model = MODELS[kind], {"model": f"{file}:Mine"}
            study |= {"timing": {"evaluation": {"model": "constant", "mean": 1.0}}, "algorithm": [FEDERATED]}
            study[table] = {**study.get(table, {}), key: model} if key else model
        case _ if kind.endswith(" of a group"):
            table, key = MODELS[kind.removesuffix(" of a group")]
            study |= {"timing": {"evaluation": {"model": "constant", "mean": 1.0}}, "algorithm": [FEDERATED]}
            study["group"] = [{"name": "own", "agents": [1], key or table: {"model": f"{file}:Mine"}}]
        case "an exchange":
            study |= {"exchange": {"mode": f"{file}:Mine"}, "timing": {"evaluation": {"model": "constant", "mean": 1.0}}}
            study["algorithm"] = [FEDERATED]
    return study


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a file for a module, in a folder of the path of imports; its name is that of no other test."""
    name = f"edited_{tmp_path.name.replace('-', '_')}"
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield tmp_path / f"{name}.py"
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def rows(result: Result) -> list[dict[str, Any]]:
    columns = [name for name in result.observations.column_names if name not in ("seconds",)]
    return result.observations.select(columns).to_pylist() + result.events.to_pylist()


def check_replays(result: Result, capsys: Any, forks: Any) -> None:
    """Check that a run is what its study and the present files give, in this process and in one that has imported none."""
    assert main(["replay", str(result.directory), "--verify", "--trust"]) == 0
    assert "no difference" in capsys.readouterr().out
    if not any(".py:" in place for place in result.manifest["code"]):
        return  # a module of the path of this process
    end = forks("replay", result.directory, "--verify", "--trust")
    assert end.code == 0 and end.said == "", end.said


@pytest.mark.parametrize("kind", MODULE)
def test_an_edited_file_is_read_again_and_hashed_as_it_ran(
    kind: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], forks: Any, undrawn: None
) -> None:
    """Two versions of the same length in the same second, which Python's own caches of modules do not distinguish."""
    seen = []
    for version in "2", "3":
        file.write_text(MODULE[kind].replace("VERSION", version), encoding="utf-8")
        if kind == "a function given" and version == "2":
            __import__(file.stem)  # the user's own import, which Python does not repeat
        result = fedbo.run(study_of(kind, file, "Mine"), out=tmp_path / version)
        seen.append(rows(result))
        assert set(result.manifest["code"].values()) == {hashlib.sha256(file.read_bytes()).hexdigest()}
    assert seen[0] != seen[1]
    check_replays(result, capsys, forks)


def test_an_edited_objective_is_measured_again(file: Path) -> None:
    """So that a group that takes its share of agents by a measure has those of the new version."""
    text = "from dataclasses import replace\nimport numpy as np\nfrom fedbo.objectives.functions import Quadratic\n" + FRAME
    text += "class Mine(Quadratic):\n    def objective(self, agent, *rngs):\n"
    text += "        return replace(super().objective(agent, *rngs), centre=np.array([0.5, float(agent == VERSION)]))\n"
    for version in 2, 3:
        file.write_text(text.replace("VERSION", str(version)), encoding="utf-8")
        group = {"name": "far", "share": 0.25, "by": "x2", "speed": {"factors": [2.0]}}
        study = study_of("", file, "") | {"objective": {"name": f"{file}:Mine", "agents": 4}, "group": [group]}
        assert members_in(fedbo.load_study(study, trust=True), 0) == {"far": (version,)}


def test_a_checked_study_runs_the_code_of_the_moment(file: Path, tmp_path: Path, undrawn: None) -> None:
    file.write_text(FUNCTION.replace("VERSION", "2"), encoding="utf-8")
    study = fedbo.load_study(study_of("a function", file, "f"), trust=True)
    file.write_text(FUNCTION.replace("VERSION", "3"), encoding="utf-8")
    result = fedbo.run(study, out=tmp_path / "run")
    assert min(result.observations["value"].to_pylist()) >= 3.0
    assert [*result.manifest["code"].values()] == [hashlib.sha256(file.read_bytes()).hexdigest()]


HELPERS: dict[str, tuple[str, str, str]] = {  # a file beside, what it holds, and how it is imported
    "a module": ("_helper.py", "VALUE = VERSION\n", "from NAME_helper import VALUE"),
    "a package": ("_helper/__init__.py", "from .inner import VALUE\n", "from NAME_helper import VALUE"),
    "when it is called": ("_helper.py", "VALUE = VERSION\n", "def later(): import NAME_helper; return NAME_helper.VALUE"),
}


@pytest.mark.parametrize("how", HELPERS)
def test_what_an_edited_file_imports_from_its_folder_is_read_again_and_hashed(
    how: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], forks: Any, undrawn: None
) -> None:
    path, text, line = HELPERS[how]
    beside = tmp_path / f"{file.stem}{path}"
    beside.parent.mkdir(exist_ok=True)
    value = "later()" if "later" in line else "VALUE"
    file.write_text(line.replace("NAME", file.stem) + f"\ndef f(x):\n    return float({value})\n", encoding="utf-8")
    hashes = set()
    for version in "2", "3":
        beside.write_text(text.replace("VERSION", version), encoding="utf-8")
        if how == "a package":
            (beside.parent / "inner.py").write_text(f"VALUE = {version}\n", encoding="utf-8")
        result = fedbo.run(study_of("a function", file, "f"), out=tmp_path / version)
        hashes |= set(result.manifest["code"].values())
        assert set(result.observations["value"].to_pylist()) == {float(version)}
    assert len(hashes) == 2
    check_replays(result, capsys, forks)


HERE = {"timing": {"clock": "virtual"}, "hosting": {"kind": "inline"}, "evaluation": {"resources": []}}  # without Ray


@pytest.mark.parametrize("study", [HERE, pytest.param({}, marks=[pytest.mark.long, pytest.mark.ray])])
def test_a_function_that_is_tuned_is_that_of_its_edited_file(study: Study, file: Path, tmp_path: Path, undrawn: None) -> None:
    """Although it is still the object of the first import that is passed each time."""
    text = "def f(config):\n    return VERSION + config['a']\n"
    file.write_text(text.replace("VERSION", "10"), encoding="utf-8")
    function = __import__(file.stem).f
    for version in 10, 20, 30:
        file.write_text(text.replace("VERSION", str(version)), encoding="utf-8")
        out = tmp_path / str(version)
        result = fedbo.tune(function, {"a": (0.0, 1.0)}, iterations=2, initial=1, algorithm="random", study=study, out=out)
        assert version <= min(result.observations["value"].to_pylist()) <= version + 1
        assert [*result.manifest["code"].values()] == [hashlib.sha256(file.read_bytes()).hexdigest()]


def test_an_edited_callback_is_read_again(file: Path, tmp_path: Path, undrawn: None) -> None:
    for version in "2", "3":
        file.write_text(
            f"from pathlib import Path\ndef seen(evaluation):\n    Path(r'{tmp_path}/{version}.seen').touch()\n",
            encoding="utf-8",
        )
        fedbo.run(study_of("", file, ""), out=tmp_path / version, callbacks=[f"{file}:seen"])
        assert (tmp_path / f"{version}.seen").exists()


def test_a_process_that_starts_later_refuses_code_that_was_edited_meanwhile(file: Path, tmp_path: Path) -> None:
    """As a host that replaces a lost one would do; a process that has read the code before the edit goes on with that."""
    file.write_text(FUNCTION.replace("VERSION", "2"), encoding="utf-8")
    study = fedbo.load_study(study_of("a function", file, "f"), trust=True)
    code = runs(study, tmp_path)[0].task.code
    assert [*code] == [f"{file}:f"]
    file.write_text(FUNCTION.replace("VERSION", "3"), encoding="utf-8")
    trust.admit_same(code)
    assert sys.modules[file.stem].f([0.0], 0) == 2.0
    del sys.modules[file.stem]
    with pytest.raises(ChangedCodeError, match=f"{file.stem}.py:f' changed after the run started; restore it, or run"):
        trust.admit_same(code)
    file.write_text(FUNCTION.replace("VERSION", "2"), encoding="utf-8")
    trust.admit_same(code)


def test_an_edit_during_a_run_changes_nothing_in_it(file: Path, tmp_path: Path, undrawn: None) -> None:
    """A later replicate calls the same code; a new process that would read the other code ends the run."""

    def changing(evaluation: Any) -> None:
        file.write_text(FUNCTION.replace("VERSION", "9"), encoding="utf-8")

    study = study_of("a function", file, "f") | {"study": {"name": "edited", "replicates": 2}}
    file.write_text(FUNCTION.replace("VERSION", "2"), encoding="utf-8")
    begun = hashlib.sha256(file.read_bytes()).hexdigest()
    result = fedbo.run(study, out=tmp_path / "inline", callbacks=[changing])
    assert 2 <= max(result.observations["value"].to_pylist()) < 3 and [*result.manifest["code"].values()] == [begun]
    file.write_text(FUNCTION.replace("VERSION", "2"), encoding="utf-8")
    with pytest.raises(
        fedbo.errors.RunError, match=f"{file.stem}.py:f' changed after the run started; restore it, or run the study again"
    ):
        fedbo.run(study | {"hosting": {"isolate": True}}, out=tmp_path / "isolated", callbacks=[changing])


@pytest.mark.parametrize("cached", [True, False])
def test_a_module_that_the_user_imported_is_read_again_whatever_its_cache_says(
    cached: bool, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edited within a second to the same length, or without a cache, Python would not see a difference."""
    monkeypatch.setattr(sys, "dont_write_bytecode", not cached)
    file.write_text(FUNCTION.replace("VERSION", "1"))
    importlib.invalidate_caches()
    importlib.import_module(file.stem)
    times = file.stat()
    file.write_text(FUNCTION.replace("VERSION", "5"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    result = fedbo.run(fedbo.load_study(study_of("a function", file, file.stem), trust=True), out=tmp_path / "run")
    assert min(result.observations["value"].to_pylist()) >= 5.0
    assert result.manifest["code"][f"{file}:f"] == hashlib.sha256(file.read_bytes()).hexdigest()
