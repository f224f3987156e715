"""What tests of killed and resumed runs share for the whole session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from killing import SHORT, TROUBLED, End, Forks, tables, write_study


@pytest.fixture(scope="session")
def undisturbed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The troubled study as a file, and its tables."""
    return _alone(TROUBLED, forks, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="session")
def short(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The short study as a file, and its tables."""
    return _alone(SHORT, forks, tmp_path_factory.mktemp("short"))


def _alone(study: dict[str, Any], forks: Forks, folder: Path) -> tuple[Path, dict[str, bytes]]:
    path = write_study(study, folder / "study.toml")
    assert forks("run", path, folder / "run") == End(0, "")
    return path, tables(folder / "run")
