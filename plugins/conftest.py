"""Declares the entry points of each plug-in for its tests where it is not installed, as its `pyproject.toml` names them."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedbo
from fedbo import errors
from fedbo.algorithms import catalog
from fedbo.cli import _command
from fedbo.commands import help
from fedbo.settings import plugins, rooms

HERE = Path(__file__).resolve().parent


def forget() -> None:
    """Let fedbo look for plug-ins again."""
    for found in (plugins.declared, catalog.catalogue, rooms.rooms, rooms.plugin_rooms, help.commands, help._made, _command):
        found.cache_clear()
    fedbo._places.cache_clear()
    errors._places.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the plug-in of a module of tests, unless `pip install --no-deps --editable plugins/NAME` has done so."""
    root = HERE / request.path.relative_to(HERE).parts[0]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if any(each.name == project["name"] for each in importlib.metadata.distributions()):
        yield
        return
    info = tmp_path_factory.mktemp("installed") / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    lines = [f"[{group}]\n{_entries(names)}" for group, names in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(info.parent))
        patch.syspath_prepend(str(root))
        forget()
        yield
    forget()


def _entries(names: dict[str, str]) -> str:
    return "".join(f"{name} = {place}\n" for name, place in names.items())
