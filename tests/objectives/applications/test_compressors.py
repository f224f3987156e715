"""Compressors live: what they make is what the libraries read back, and their files are the same everywhere."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import zlib
from typing import Any

import numpy as np
import pytest

from fedbo.objectives.applications import compressors
from fedbo.objectives.applications.compressors import KINDS, CompressedFile, Compressors, compressor, has_zstd, written_file
from fedbo.objectives.base import LibraryMissingError
from fedbo.settings.errors import SettingError
from fedbo.testing.objective_contract import built

READ: dict[str, Any] = {"zlib": zlib.decompress, "bz2": bz2.decompress, "lzma": lzma.decompress}
# Of the first KiB of each file; the sources change with the package.
HASHES = "bdd1bbd6912004a04fe1322a51b55cca44b193a8cc2eed8113c236e32b6da856"


@pytest.mark.parametrize(
    "codec", [*READ, pytest.param("zstd", marks=pytest.mark.skipif(not has_zstd(), reason="no zstandard"))]
)
def test_a_codec_writes_what_its_library_reads_at_every_level(codec: str) -> None:
    content = written_file("text", 4096)
    for level in range(1, 10):
        made = compressor(codec, level, 12)
        written = made.compress(content)
        if codec in READ:
            assert READ[codec](written) == content
        assert len(written) < len(content) and made.memory > 0.0


def test_memory_grows_with_the_window_or_the_level_as_the_manuals_say() -> None:
    assert compressor("zlib", 6, 15).memory == 256 * 1024 == compressor("zlib", 6, 17).memory  # zconf.h: 128K + 128K
    assert compressor("bz2", 9, 10).memory == 7.6e6  # the manual of bzip2: 7600k for -9
    assert compressor("lzma", 6, 17).memory / compressor("lzma", 6, 16).memory == 2.0


def test_an_outcome_has_size_seconds_and_memory_and_its_value_is_that_of_an_evaluation() -> None:
    objective, rng = built(Compressors(part="held_out", kibibytes=8), 0), np.random.default_rng(0)
    assert isinstance(objective, CompressedFile) and objective.kind == "log"
    x = np.array([1.0, 9.0, 15.0, 13.0])  # bzip2 in one block
    outcome = objective.measure(x, rng)
    assert outcome.value == objective.evaluate(x, rng) == -len(bz2.compress(written_file("log", 8192), 9)) / 8192
    assert outcome.metrics["size"] == -outcome.value and outcome.metrics["memory"] == 7.6e6
    assert 0.0 < outcome.metrics["seconds"] < 5.0
    blocks = objective.evaluate(np.array([0.0, 6.0, 15.0, 12.0]), rng)
    assert blocks < objective.evaluate(np.array([0.0, 6.0, 15.0, 13.0]), rng)  # a block on its own knows less


def test_files_are_the_same_everywhere_and_of_every_length() -> None:
    for kind in KINDS:
        assert written_file(kind, 100) == written_file(kind, 1024)[:100] and len(written_file(kind, 60_000)) == 60_000
    assert hashlib.sha256(b"".join(written_file(kind, 1024) for kind in KINDS if kind != "sources")).hexdigest() == HASHES


def test_every_part_has_its_files_and_more_agents_than_those_are_refused() -> None:
    assert Compressors().n_agents == 8 and Compressors(part="development").agent_names == compressors.DEVELOPMENT
    assert not {*Compressors(part="held_out").agent_names} & {*compressors.DEVELOPMENT}
    with pytest.raises(SettingError, match="use 1 to 4, the files of this part"):
        Compressors(part="held_out", agents=5)


def test_zstandard_is_one_more_codec_or_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressors, "has_zstd", lambda: False)
    with pytest.raises(LibraryMissingError, match="pip install zstandard"):
        Compressors(zstd=True)
    monkeypatch.setattr(compressors, "has_zstd", lambda: True)
    assert Compressors(zstd=True).lattice.choices[0] == ("zlib", "bz2", "lzma", "zstd")
