"""What tests of killed and resumed runs share for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import TROUBLED, End, Forks, tables, write_study


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A process that has imported everything and runs studies in forks of itself."""
    made = Forks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def undisturbed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The troubled study as a file, and its tables."""
    folder = tmp_path_factory.mktemp("undisturbed")
    study = write_study(TROUBLED, folder / "study.toml")
    assert forks("run", study, folder / "run") == End(0, "")
    return study, tables(folder / "run")
