"""The tables of a run and their canonical order; the rooms that write them declare their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.rows import OBSERVATIONS as OBSERVATIONS
from fedbo.coordinator.journal import EVENTS as EVENTS

PHASES = ("history", "initial", "search")


def canonical(table: Any, labels: Sequence[str]) -> Any:
    """Sort observations or events into the one order in which they are stored; `labels` gives that of the algorithms.

    Observations go by cell, algorithm, replicate, agent, phase, step, query; events by cell, algorithm, replicate,
    sequence. KeyError when a row has a label or a phase that is not known.
    """
    keys = {"cell": table["cell"], "algorithm": _ranks(table["algorithm"], labels), "replicate": table["replicate"]}
    if "sequence" in table.column_names:
        keys["sequence"] = table["sequence"]
    else:
        keys |= {name: table[name] for name in ("agent", "step", "query", "t_n")}
        keys["phase"] = _ranks(table["phase"], PHASES)
    order = ("cell", "algorithm", "replicate", "agent", "phase", "step", "query", "t_n", "sequence")
    indices = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in order if name in keys])
    return table.take(indices)


def _ranks(column: Any, known: Sequence[str]) -> Any:
    ranks = pc.index_in(column, value_set=pa.array(known, pa.string()))
    if ranks.null_count:
        strange = next(name for name in pc.unique(column).to_pylist() if name not in known)
        raise KeyError(f"'{strange}' is not one of {', '.join(known)}")
    return ranks
