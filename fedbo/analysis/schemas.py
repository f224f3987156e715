"""The tables of a run and their canonical order; the packages that write them declare their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage.printed import PRINTED as PRINTED
from fedbo.actors.storage.rows import OBSERVATIONS as OBSERVATIONS
from fedbo.actors.storage.rows import RunKey, schema_of
from fedbo.coordinator.logged.table import EVENTS as EVENTS
from fedbo.coordinator.runtime.reports import REPORTS as REPORTS
from fedbo.settings.rooms import loaded, rooms

PHASES = ("history", "initial", "search")


def canonical(table: Any, labels: Sequence[str]) -> Any:
    """Sort a table of a run into its canonical order; `labels` is the order of the algorithms.

    All are sorted by cell, algorithm, replicate; then observations by agent, phase, step, query, prints by agent and number,
    events by sequence, releases of the privacy ledger by number, and agents' spending by agent.

    Raises:
        KeyError: a row has an unknown label or phase.
    """
    keys = {"cell": table["cell"], "algorithm": _ranks(table["algorithm"], labels), "replicate": table["replicate"]}
    if "phase" in table.column_names:
        keys |= {name: table[name] for name in ("agent", "step", "query", "t_n")}
        keys["phase"] = _ranks(table["phase"], PHASES)
    elif "number" in table.column_names and "sequence" not in table.column_names:  # the record of real time has both
        keys |= {name: table[name] for name in ("agent", "number")}
    else:
        number = next(name for name in ("sequence", "release", "agent") if name in table.column_names)
        keys[number] = table[number]
    order = ("cell", "algorithm", "replicate", "agent", "phase", "step", "query", "t_n", "number", "sequence", "release")
    indices = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in order if name in keys])
    # Nulls alone, of which most columns of events are, have no order.
    columns = [column if column.null_count == len(column) else column.take(indices) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def schema_of_room(file: str) -> Any:
    """Return the columns of a table that a room declares by the name of its file; without the room, those that name a run."""
    place = next((room.schemas[file] for room in rooms().values() if file in room.schemas), None)
    return schema_of(RunKey) if place is None else loaded(place)


def _ranks(column: Any, known: Sequence[str]) -> Any:
    ranks = pc.index_in(column, value_set=pa.array(known, pa.string()))
    if ranks.null_count:
        strange = next(name for name in pc.unique(column).to_pylist() if name not in known)
        raise KeyError(f"'{strange}' is not one of {', '.join(known)}")
    return ranks
