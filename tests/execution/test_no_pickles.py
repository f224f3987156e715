"""A run's files hold no pickles, what reads them knows none, and a directory that somebody else has made runs nothing."""

from __future__ import annotations

import ast
import base64
import importlib
import pickle
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pickle_scan import contents, pickles

import fedbo
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.cli import main

ROOT = Path(__file__).resolve().parents[2]
UNSAFE = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
RUNNING = {"eval", "exec", "compile", "__import__"}

STUDY: dict[str, Any] = {
    "study": {"name": "scanned", "seed": 2},
    "objective": {"name": "python_function", "function": "turning:turns", "agents": 3, "low": [0.0], "high": [1.0]},
    "agents": {"initial": 2, "history": {"algorithm": "random", "observations": 3}},
    "budget": {"iterations": 6},
    "algorithm": [{"name": "fts", "every": 1, "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 20}],
    "evaluation": {"failure": "stop"},
}
FUNCTION = """
from pathlib import Path
def turns(x):
    if Path({broken!r}).exists():
        raise RuntimeError("turned")
    with Path({count!r}).open("a") as file:
        file.write(".")
    if Path({count!r}).stat().st_size == 25:
        Path({broken!r}).touch()
    return float(x[0])
"""


@pytest.fixture
def cut_short(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that failed in its middle: it has snapshots and tables, and if these were rare surely a log of evaluations."""
    names = {"broken": str(tmp_path / "broken"), "count": str(tmp_path / "count")}
    (tmp_path / "turning.py").write_text(FUNCTION.format(**names), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "turning", raising=False)
    with pytest.raises(fedbo.errors.RunError, match="turned"):
        fedbo.run({**STUDY, "recovery": {"events": getattr(request, "param", 4)}}, out=tmp_path / "run")
    (tmp_path / "broken").unlink()
    return tmp_path / "run"


def found(directory: Path) -> dict[str, list[int]]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    scanned = {f"{path.name}, {what}": pickles(content) for path in files for what, content in contents(path)}
    return {name: places for name, places in scanned.items() if places}


@pytest.mark.parametrize(
    ("cut_short", "expected"),
    [(4, {".core", ".agents", ".parquet"}), pytest.param(1000, {".jsonl"}, marks=pytest.mark.long)],
    indirect=["cut_short"],
)
def test_no_file_of_a_run_has_a_pickle_in_it(cut_short: Path, expected: set[str]) -> None:
    kinds = {path.suffix for path in cut_short.rglob("*") if path.is_file()}
    assert {".json", ".toml", *expected} <= kinds
    assert found(cut_short) == {}
    fedbo.resume(cut_short)
    assert found(cut_short) == {}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_scan_finds_what_it_looks_for(protocol: int, tmp_path: Path) -> None:
    """An object of ours and a plain dictionary, alone, behind other bytes, and in a column of a table."""
    for value in (np.random.default_rng(1), {"key": [1, 2, 3.0], "other": "words"}):
        data = pickle.dumps(value, protocol)
        plain = protocol < 2 and isinstance(value, dict)  # a text without a header, which makes nothing
        assert plain or pickles(data) == [0]
        if protocol >= 2:
            assert 1000 in pickles(bytes(1000) + data + b"tail")
            pq.write_table(pa.table({"column": [b"", data]}), tmp_path / "t.parquet")
            assert any(pickles(content) for _, content in contents(tmp_path / "t.parquet"))


def test_chance_is_not_taken_for_a_pickle() -> None:
    """10^6 random bytes have some 61 places that look like the header of one."""
    assert pickles(np.random.default_rng(3).bytes(1_000_000)) == []


def test_what_reads_a_run_knows_no_pickle() -> None:
    """Pickles only pass between processes of one run: the coordinator's, those of hosts, and those of their evaluations.

    What a file of NumPy's may hold of them is refused by name. That objectives survive it is part of their contract. Published
    tables are pickles of plain values, read by an unpickler that refuses every global. An agent that asks and tells is pickled
    by whoever holds it, such as Optuna, joblib, or Ray Tune, which reads its own experiment's folder by pickle.
    """
    using, loading = set(), set()
    for path in sorted((ROOT / "fedbo").rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if not re.search(rf"\b(load|{'|'.join((*UNSAFE, *RUNNING))})\b", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import) and UNSAFE & {alias.name.split(".")[0] for alias in node.names}:
                using.add(name)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE:
                using.add(name)
            elif not isinstance(node, ast.Call) or {getattr(node.func, key, "") for key in ("attr", "id")}.isdisjoint(
                {"load"} | RUNNING
            ):
                continue
            elif ast.unparse(node.func) in ("np.load", "numpy.load"):
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                if given.get("allow_pickle") != "False":
                    loading.add(name)
            elif ast.unparse(node.func) in RUNNING:
                loading.add(name)
    tables = "fedbo/objectives/tasks/complete_tables.py"
    contracts = {f"fedbo/testing/{name}_contract.py" for name in ("objective", "environment")}
    assert using == {
        "fedbo/actors/channel.py",
        "fedbo/actors/evaluation/isolated.py",
        "fedbo/objectives/typed_function.py",
        *(f"fedbo/tuning/{name}.py" for name in ("ask_tell", "ray_searcher", "search_cv")),
        *contracts,
        tables,
    }
    assert loading == {"fedbo/settings/own_modules.py"}  # code that the study names, once it is trusted


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_trap_springs_when_it_is_unpickled(tmp_path: Path) -> None:
    """The tests below would be of no worth otherwise."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


def looked_at(directory: Path) -> None:
    """Do what one does with a run that one was given; it may fail in any way, so long as nothing else happens."""
    for words in (["show"], ["show", "--trouble"]):
        with suppress(Exception):
            main([words[0], str(directory), *words[1:]])
    with suppress(Exception):
        fedbo.resume(directory)
    for name in ("observations", "events", "histories", "privacy", "traces"):
        with suppress(Exception):
            getattr(fedbo.Result.open(directory), name)


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_directory_whose_files_are_pickles_runs_nothing(
    stride: int, cut_short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file of each kind, or of some, after the other is replaced by a pickle that would make a file."""
    sprung, trap = tmp_path / "sprung", pickle.dumps(Trap(tmp_path / "sprung"))
    files = {path.suffix or path.name: path.relative_to(cut_short) for path in cut_short.rglob("*") if path.is_file()}
    files |= {name: Path(name) for name in ("manifest.json", "observations.parquet", "events.parquet")}
    for path in [*files.values()][::stride]:
        copy = shutil.copytree(cut_short, tmp_path / "copy")
        (copy / path).write_bytes(trap)
        looked_at(copy)
        shutil.rmtree(copy)
        assert not sprung.exists(), path
    capsys.readouterr()


def test_a_table_that_brings_a_type_of_its_own_runs_nothing(cut_short: Path, tmp_path: Path) -> None:
    """Arrow's own extension type of Python's was once a pickle that reading a file loaded."""
    table = fedbo.Result.open(cut_short).observations
    extension = {b"ARROW:extension:name": b"arrow.py_extension_type"}
    extension[b"ARROW:extension:metadata"] = pickle.dumps(Trap(tmp_path / "sprung"))
    fields = [field.with_metadata(extension) if field.name == "value" else field for field in table.schema]
    path = cut_short / "observations.parquet"
    pq.write_table(pa.Table.from_arrays(table.columns, schema=pa.schema(fields)), path)
    write_manifest(cut_short, {**read_manifest(cut_short), "files": {}})  # whoever forges a table can forge its sum
    assert b"py_extension_type" in base64.b64decode(pq.read_metadata(path).metadata[b"ARROW:schema"])
    assert fedbo.Result.open(cut_short).observations["value"].type in (pa.float64(), pa.binary())
    looked_at(cut_short)
    assert not (tmp_path / "sprung").exists()


def test_only_who_carries_a_study_out_imports_the_function_that_it_names(
    cut_short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module beside the run, and in the way of imports, does something when it is imported: looking at the run does not."""
    (tmp_path / "turning.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'sprung')!r}).touch()\n")
    monkeypatch.delitem(sys.modules, "turning")
    importlib.invalidate_caches()
    result = fedbo.Result.open(cut_short)
    assert len(result.observations) and len(result.events) and len(result.histories)
    assert main(["show", str(cut_short)]) == main(["show", str(cut_short), "--trouble"]) == 0
    result.plot()
    assert not (tmp_path / "sprung").exists()
    assert main(["resume", str(cut_short)]) == 2 and "'turning:turns'" in capsys.readouterr().err
    assert (tmp_path / "sprung").exists()
