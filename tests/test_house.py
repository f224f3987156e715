"""The house itself: which room may import which, that no package is forgotten, and that a new file is found by itself."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT: dict[str, set[str]] = {
    "objectives": set(),
    "surrogates": set(),
    "algorithms": {"surrogates"},
    "actors": {"algorithms", "objectives"},
    "coordinator": {"actors", "algorithms"},
    "interface": {"objectives", "surrogates", "algorithms", "actors", "coordinator"},
}
RAY_SHELLS = {
    "actors/bench.py",
    "actors/remote.py",
    "coordinator/actor.py",
    "interface/cluster.py",
    "interface/ray_searcher.py",
    "interface/testing/carrying_out.py",
    "interface/testing/promises.py",
    "interface/workforce.py",
}
FILES = [path for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_room_imports_what_stands_above_it(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[1] for name in _imports(path) if name.startswith("fedbo.")}
    rooms = {name if name in MAY_IMPORT else "interface" for name in ours}
    assert rooms - {room} <= MAY_IMPORT[room]
    assert not {name.split(".")[0] for name in _imports(path)} & set(MAY_IMPORT), "a bare import would load a second copy"


def test_only_the_shells_import_ray() -> None:
    found = {str(path.relative_to(ROOT)) for path in FILES if any(n.split(".")[0] == "ray" for n in _imports(path))}
    assert found == RAY_SHELLS


def test_every_room_is_a_package_and_is_typed() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    rooms = {"fedbo" if room == "interface" else f"fedbo.{room}": room for room in MAY_IMPORT}
    assert dict(setup["package-dir"]) == rooms
    folders = {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in FILES}
    within = {f"fedbo.{folder}".replace(".interface", "") for folder in folders}
    assert sorted(setup["packages"]) == sorted(within)
    for package, room in rooms.items():
        assert (ROOT / room / "py.typed").exists()
        assert Path(str(importlib.import_module(package).__file__)).resolve().parent == ROOT / room
    assert all((path.parent / "__init__.py").exists() for path in FILES)
    assert not (ROOT / "fedbo").exists(), "a folder of this name would hide the package"


def test_help_does_not_wait_for_heavy_libraries() -> None:
    code = "import sys, fedbo, fedbo.cli; print([m for m in ('ray', 'sklearn', 'matplotlib', 'scipy') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_new_algorithm_is_one_new_file_that_nothing_else_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedbo.algorithms
    from fedbo.algorithms.catalog import algorithms

    (tmp_path / "coin.py").write_text(
        "from fedbo.algorithms.catalog import Entry\n"
        "from fedbo.algorithms.random import Random\n"
        "ALGORITHMS = {'coin': Entry(Random)}\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(fedbo.algorithms, "__path__", [*fedbo.algorithms.__path__, str(tmp_path)])
    algorithms.cache_clear()
    try:
        assert "coin" in algorithms()
    finally:
        algorithms.cache_clear()
        sys.modules.pop("fedbo.algorithms.coin", None)


def test_every_example_is_a_valid_study() -> None:
    from fedbo.objectives.data import DataMissing
    from fedbo.papers import is_manifest
    from fedbo.study import load_study

    studies = [path for path in sorted((ROOT / "examples").rglob("*.toml")) if not is_manifest(path)]
    assert len(studies) >= 3
    for path in studies:
        try:
            load_study(path)
        except DataMissing:
            pytest.skip(f"{path.name} needs a data set that is not here: set FEDBO_DATA to the folder that has it")
