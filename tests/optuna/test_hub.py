"""The package for the registry of OptunaHub: its layout, and its example with the package as the hub loads it."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

optuna = pytest.importorskip("optuna", reason="the sampler needs Optuna: pip install optuna")

PACKAGE = Path(__file__).resolve().parents[2] / "plugins" / "optunahub" / "package" / "samplers" / "fedbo"


def loaded(package: str) -> Any:
    """Load a package of the folder, as `optunahub.load_module` does of the registry's."""
    assert PACKAGE.as_posix().endswith(package)
    spec = importlib.util.spec_from_file_location("hub_package", PACKAGE / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_of_the_package_finds_a_good_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    monkeypatch.setitem(sys.modules, "optunahub", SimpleNamespace(load_module=loaded))
    found = runpy.run_path(str(PACKAGE / "example.py"))["study"]
    assert len(found.trials) == 20 and found.best_value < 0.5 and str(found.best_params) in capsys.readouterr().out


def test_the_package_has_what_the_registry_asks_for() -> None:
    assert {path.name for path in PACKAGE.iterdir()} >= {
        "LICENSE",
        "README.md",
        "__init__.py",
        "example.py",
        "requirements.txt",
    }
    _, front, page = (PACKAGE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.strip().splitlines())
    assert fields.keys() == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert "sampler" in fields["tags"]
    assert fields["license"] == "MIT License" == (PACKAGE / "LICENSE").read_text(encoding="utf-8").splitlines()[0]
    assert all(f"## {title}\n" in page for title in ("Abstract", "APIs", "Installation", "Example"))
