"""Regret on the mean of all agents' functions in numbers: one row for each algorithm in each cell, with its communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fedbo.results.regret import RegretTrace

SCALAR = 8  # bytes


@dataclass(frozen=True, slots=True)
class RegretRow:
    """What one algorithm in one cell lost; all are means over replicates.

    `rounds` are the evaluations of each agent; `mean` is R / M with its standard `deviation` over replicates (None with one),
    `total` is R, and `last` the regret of the last evaluation, a mean over the M agents. `rounds_up` are the messages that each
    agent sent, `scalars_up` and `scalars_down` the numbers of eight bytes that it sent and was given.
    """

    cell: int
    algorithm: str
    replicates: int
    agents: int
    rounds: float
    mean: float
    deviation: float | None
    total: float
    last: float
    rounds_up: float
    scalars_up: float
    scalars_down: float


def regret_row(found: Sequence[RegretTrace], events: Any) -> RegretRow:
    """Sum one algorithm in one cell up; `events` are its events."""
    by_replicate: dict[int, list[RegretTrace]] = {}
    for trace in found:
        by_replicate.setdefault(trace.replicate, []).append(trace)
    totals = np.array([sum(trace.total for trace in group) for group in by_replicate.values()])
    counts = np.array([len(group) for group in by_replicate.values()])
    means, lives = totals / counts, len(found)
    sent, given = (events.filter(pc.equal(events["kind"], kind)) for kind in ("sent", "delivered"))
    return RegretRow(
        cell=found[0].cell,
        algorithm=found[0].algorithm,
        replicates=len(by_replicate),
        agents=int(counts.max()),
        rounds=float(np.mean([trace.rounds for trace in found])),
        mean=float(means.mean()),
        deviation=float(means.std(ddof=1)) if len(means) > 1 else None,
        total=float(totals.mean()),
        last=float(np.mean([trace.instant[-1] for trace in found])),
        rounds_up=len(sent) / lives,
        scalars_up=(pc.sum(sent["bytes"]).as_py() or 0) / SCALAR / lives,
        scalars_down=(pc.sum(given["bytes"]).as_py() or 0) / SCALAR / lives,
    )
