"""A plug-in of pytest, `-p tests.shares --share K/N`: run one of N shares of the test files; other processes run the others.

Each process imports and collects its own files alone. Shares take about as long, since files are dealt out by length.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OTHERS = pytest.StashKey[set[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--share", default="1/1", metavar="K/N", help="run the K-th of N shares of the test files")


def pytest_configure(config: pytest.Config) -> None:
    """Find the files of the other shares."""
    number, shares = map(int, config.getoption("--share").split("/"))
    paths = [path for name in config.getini("testpaths") for path in (ROOT / name).rglob("test_*.py")]
    paths.sort(key=lambda path: (path.stat().st_size, path))
    # Dealt there and back, so that no share has the longer one of each pair.
    dealt = [min(place % (2 * shares), 2 * shares - 1 - place % (2 * shares)) for place in range(len(paths))]
    config.stash[OTHERS] = {path for path, share in zip(paths, dealt, strict=True) if share != number - 1}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files of other shares alone."""
    return True if collection_path in config.stash[OTHERS] else None
