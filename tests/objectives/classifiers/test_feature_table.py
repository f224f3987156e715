"""Tables of features are kept in the cache: made once, made anew when damaged, and no loss where they cannot be kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedbo.objectives.classifiers.uci_har import FeatureTable, kept


def small_table() -> FeatureTable:
    return FeatureTable(np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 0, 1]), np.array([1, 1, 2, 2]))


def refuse() -> FeatureTable:
    raise AssertionError("the table should have been read")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path / "own"))
    return tmp_path / "cache" / "fedbo" / "features"


def test_a_table_is_made_once_and_read_afterwards(own_cache: Path) -> None:
    first, second = kept("small", small_table), kept("small", refuse)
    assert [path.name for path in own_cache.iterdir()] == ["small.npz"]
    assert all(np.array_equal(getattr(first, name), array) for name, array in vars(second).items())
    x, label = second.of(2)
    assert x.tolist() == [[6, 7, 8], [9, 10, 11]] and label.tolist() == [0, 1]


@pytest.mark.parametrize(
    "harm", [lambda b: b"", lambda b: b[:-30], lambda b: b[:100], lambda b: b"no zip", lambda b: flipped(b)]
)
def test_a_damaged_table_is_made_anew(own_cache: Path, harm: Callable[[bytes], bytes]) -> None:
    kept("small", small_table)
    path = own_cache / "small.npz"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(AssertionError, match="should have been read"):
        kept("small", refuse)
    kept("small", small_table)
    assert np.array_equal(kept("small", refuse).features, small_table().features)


def flipped(content: bytes) -> bytes:
    """Change one bit of the number 7."""
    at = content.index(np.float32(7.0).tobytes())
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_cache_that_cannot_be_written_costs_a_warning_and_no_result(own_cache: Path) -> None:
    own_cache.parent.mkdir(parents=True)
    own_cache.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="the features small could not be stored at .*every process will compute them"):
        assert kept("small", small_table).of(1)[1].tolist() == [0, 1]
