"""The tables that agents write: each column is declared once."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import pyarrow as pa

from fedbo.actors.storage.rows import OBSERVATIONS, Batch, Row, schema_of


class Heat(NamedTuple):
    degrees: Annotated[float, pa.float32()]
    remark: Annotated[str | None, pa.string()]


def test_a_field_that_is_annotated_with_its_arrow_type_is_a_column() -> None:
    expected = pa.schema([pa.field("degrees", pa.float32(), nullable=False), pa.field("remark", pa.string())])
    assert schema_of(Heat).equals(expected)


def test_a_batch_has_the_columns_of_a_row() -> None:
    assert Batch.COLUMNS == Row.COLUMNS == tuple(OBSERVATIONS.names[3:])
