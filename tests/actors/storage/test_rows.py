"""The tables that agents write: each column is declared once, and documented as it is declared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow as pa

from fedbo.actors.storage.rows import OBSERVATIONS, Batch, Row, schema_of

ROOT = Path(__file__).resolve().parents[3]
WRITTEN = {"double": "float64", "list<item: double not null>": "list of float64"}


class Heat(NamedTuple):
    degrees: Annotated[float, pa.float32()]
    remark: Annotated[str | None, pa.string()]


def test_a_field_that_is_annotated_with_its_arrow_type_is_a_column() -> None:
    expected = pa.schema([pa.field("degrees", pa.float32(), nullable=False), pa.field("remark", pa.string())])
    assert schema_of(Heat).equals(expected)


def test_a_batch_has_the_columns_of_a_row() -> None:
    assert Batch.COLUMNS == Row.COLUMNS == tuple(OBSERVATIONS.names[3:])


def test_the_columns_of_observations_are_documented_as_they_are_declared() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = page.split("## `observations.parquet`")[1].split("\n## ")[0]
    documented = []
    for names, kind in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.MULTILINE):
        documented += [(name, kind) for name in re.findall(r"`(\w+)`", names)]
    declared = [
        (field.name, WRITTEN.get(str(field.type), str(field.type)) + (", nullable" if field.nullable else ""))
        for field in OBSERVATIONS
    ]
    assert documented == declared
