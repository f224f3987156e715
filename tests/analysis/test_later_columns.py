"""Columns that a table lacks because they were added later: they are null wherever the table is read."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedbo
from fedbo.actors.storage.rows import read_table, write_table
from fedbo.analysis import schemas
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.execution.replay import replay
from fedbo.privacy.ledger import PRIVACY, SPENT

ROOT = Path(__file__).parents[2]
SCHEMAS = {
    "observations": schemas.OBSERVATIONS,
    "histories": schemas.OBSERVATIONS,
    "events": schemas.EVENTS,
    "privacy": PRIVACY,
    "spent": SPENT,
    "printed": schemas.PRINTED,
    "reports": schemas.REPORTS,
}
FILES = {"spent": "privacy_agents"}  # whose file has another name
# What reads tables that need not be ours, or compares two as they are.
AS_THEY_ARE = {"fedbo/tuning/evaluated.py", "fedbo/execution/replay.py"}

STUDY: dict[str, Any] = {
    "study": {"name": "later", "seed": 1},
    "objective": {"name": "quadratic", "agents": 2},
    "agents": {"initial": 1, "history": {"algorithm": "random", "observations": 2, "initial": 1}},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "fts", "p": 0.5, "every": 1, "features": 10}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("later") / "run"
    fedbo.run(fedbo.load_study(STUDY), out=directory)
    return directory


def _older(path: Path, schema: pa.Schema, further: bool) -> None:
    """Write a table without its nullable columns, and with one that no schema names."""
    table = pq.read_table(path) if path.exists() else schema.empty_table()
    table = table.drop_columns([field.name for field in schema if field.nullable])
    write_table(table.append_column("loss", pa.array([1.5] * len(table), pa.float64())) if further else table, path)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_table_of_a_result_has_the_columns_that_were_added_later_as_nulls(run: Path, tmp_path: Path, name: str) -> None:
    for path in run.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    _older(tmp_path / f"{FILES.get(name, name)}.parquet", SCHEMAS[name], name == "observations")
    write_manifest(tmp_path, {key: value for key, value in read_manifest(run).items() if key != "files"})
    before, now = (getattr(fedbo.Result.open(folder), name) for folder in (run, tmp_path))
    assert now.select(SCHEMAS[name].names).schema.equals(SCHEMAS[name]) and len(now) == len(before)
    for field in SCHEMAS[name]:
        same = now[field.name].null_count == len(now) if field.nullable else now[field.name].equals(before[field.name])
        assert same or now[field.name].null_count == 0, field.name
    assert ("loss" in now.column_names) == (name == "observations"), "the metrics of a study stand behind the others"


def test_a_run_whose_table_lacks_a_column_is_verified_by_the_others(run: Path, tmp_path: Path) -> None:
    fedbo.run(fedbo.load_study(STUDY), out=tmp_path / "run")
    path = tmp_path / "run" / "observations.parquet"
    write_manifest(path.parent, {key: value for key, value in read_manifest(path.parent).items() if key != "files"})
    write_table(read_table(path).drop_columns(["note"]), path)
    assert replay(path.parent, verify=True).difference is None
    write_table(read_table(path).drop_columns(["value"]).slice(1), path)
    assert "observations differ first in row 0" in str(replay(path.parent, verify=True).difference)


def test_no_code_reads_a_table_of_a_run_without_its_schema() -> None:
    found = set[str]()
    for file in (ROOT / "fedbo").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "fedbo.actors.storage.rows import" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "read_table":
                    if len(node.args) < 2 and not node.keywords:
                        found.add(str(file.relative_to(ROOT)))
    assert found == AS_THEY_ARE
