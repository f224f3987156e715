"""The record of a run in real time is kept in the order in which things happened, by which it is replayed."""

from __future__ import annotations

import pyarrow as pa

from fedbo.analysis.schemas import canonical
from fedbo.coordinator.runtime.event_log import MOMENTS


def test_a_record_stays_in_the_order_of_its_events() -> None:
    rows = [("fts", sequence, float(sequence), number, agent) for sequence, number, agent in
            ((0, 0, -1), (1, -1, 1), (2, 1, -1), (3, -1, 0), (4, 2, -1))]  # fmt: skip
    columns = {
        "cell": [0] * 5, "algorithm": [row[0] for row in rows], "replicate": [0] * 5, "sequence": [row[1] for row in rows],
        "time": [row[2] for row in rows], "number": [row[3] for row in rows], "agent": [row[4] for row in rows],
        "lease": [1] * 5,
    }  # fmt: skip
    record = pa.table({field.name: pa.array(columns[field.name], field.type) for field in MOMENTS}, schema=MOMENTS)
    shuffled = record.take(pa.array([3, 0, 4, 2, 1]))
    assert canonical(shuffled, ("fts",)).equals(record)
