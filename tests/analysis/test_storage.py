"""Runs on storage that pyarrow reaches: read from their address, and nothing is written there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fedbo
from fedbo.analysis.result import Result
from fedbo.cli import main
from fedbo.study.paths import DirectoryError, address_of

STUDY = {
    "study": {"name": "far"},
    "objective": {"name": "branin", "agents": 2},
    "budget": {"iterations": 1},
    "algorithm": [{"name": "random"}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedbo.run(STUDY, out=tmp_path_factory.mktemp("storage") / "run").directory


def test_an_address_survives_being_a_path() -> None:
    for address in ("s3://bucket/a/b", "gs://bucket/a", "abfss://box@host/a", "hdfs://host:9000/a", "file:///tmp/a"):
        assert address_of(address) == address_of(Path(address)) == address
    for path in ("runs/a", "/tmp/s3:/a", "C:/a", "a:b"):
        assert address_of(path) is None


@pytest.mark.long
def test_a_run_is_shown_and_drawn_from_its_address(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, address = sorted(run.iterdir()), run.as_uri()
    assert Result.open(address).observations == Result.open(run).observations
    assert main(["show", address]) == 0
    assert f"results: {address}\n" in capsys.readouterr().out
    assert main(["plot", address, "--out", str(tmp_path / "figure.png")]) == 0 and (tmp_path / "figure.png").is_file()
    capsys.readouterr()
    assert main(["plot", address]) == 2
    assert capsys.readouterr().err == f"'{address}': cannot be written to; set a local path with --out\n"
    assert sorted(run.iterdir()) == before


def test_what_writes_to_a_run_or_goes_on_with_it_refuses_an_address(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = str(run / "study.toml")
    for words in (["run", study, "--out"], ["resume"], ["replay"]):
        assert main([*words, "s3://bucket/run"]) == 2
        assert "'s3://bucket/run': only `fedbo show` and `fedbo plot` read runs on remote storage" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nowhere://bucket/run", "Unrecognized filesystem type.*; use an address such as s3://bucket/folder"),
        ("file:///no/such/folder", "'file:///no/such/folder': cannot be reached"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_line(address: str, why: str) -> None:
    with pytest.raises(DirectoryError, match=why) as error:
        Result.open(address)
    assert "\n" not in str(error.value)


def test_a_run_on_storage_that_is_damaged_or_has_not_ended_is_one_line(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "damaged")
    path = tmp_path / "damaged" / "study.toml"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DirectoryError, match=r"file:///.*/damaged': study.toml is damaged .*; copy it there again"):
        Result.open((tmp_path / "damaged").as_uri())
    (tmp_path / "begun" / "parts").mkdir(parents=True)
    with pytest.raises(DirectoryError, match=r"file:///.*/begun': has not ended"):
        Result.open((tmp_path / "begun").as_uri())
