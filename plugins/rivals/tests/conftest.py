"""Declares the entry points of this plug-in for its tests where it is not installed, as its `pyproject.toml` names them."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedbo.algorithms import catalog
from fedbo.settings import plugins

ROOT = Path(__file__).resolve().parents[1]


def forget() -> None:
    """Let the catalogue look for plug-ins again."""
    plugins.declared.cache_clear()
    catalog.catalogue.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def rivals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the plug-in for one module, unless `pip install --no-deps --editable plugins/rivals` has done so."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if any(each.name == project["name"] for each in importlib.metadata.distributions()):
        yield
        return
    info = tmp_path_factory.mktemp("installed") / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    for group, names in project["entry-points"].items():
        lines = "".join(f"{name} = {place}\n" for name, place in names.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(info.parent))
        patch.syspath_prepend(str(ROOT))
        forget()
        yield
    forget()
