"""The catalogue of event lines: every fact of a kind has a column."""

from __future__ import annotations

from typing import get_args, get_type_hints

from fedbo.coordinator.logged.kinds import KINDS
from fedbo.coordinator.logged.messages import REASONS, LossReason, MissReason, RefusalReason
from fedbo.coordinator.logged.table import EVENTS, LoggedEvent


def test_the_catalogue_lists_every_kind_and_every_field_is_a_column() -> None:
    assert {*REASONS} == {*get_args(LossReason), *get_args(MissReason), *get_args(RefusalReason)}
    columns = get_type_hints(LoggedEvent)
    for kind, record in KINDS.items():
        assert record.__doc__ and record._fields[0] == "time" and "agent" in record._fields, kind
        for name, hint in get_type_hints(record).items():
            column = columns[name]
            assert hint == column or {*get_args(hint), hint} & {*get_args(column)} or name == "lies", f"{kind}.{name}"
    assert {name for record in KINDS.values() for name in record._fields} | {"kind"} == {*EVENTS.names[4:]}
