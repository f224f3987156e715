"""The messages that the coordinator refused, in a line for each algorithm of which it refused most."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.compute as pc

_NO_FAULT = ("duplicate", "given_up")  # a copy, and what never arrived


def refusals(events: Any) -> list[str]:
    """Return a line for each algorithm of which the coordinator refused at least half of the messages."""
    rows = events.filter(pc.field("kind") == "rejected").select(["algorithm", "reason", "message"]).to_pylist()
    refused = [row for row in rows if row["reason"] not in _NO_FAULT]
    if not refused:
        return []
    arrived = events.filter(pc.field("kind") == "arrived")["algorithm"]
    counts = {item["values"]: item["counts"] for item in pc.value_counts(arrived).to_pylist()}
    lines = []
    for label, count in Counter(row["algorithm"] for row in refused).items():
        if count < (taken := counts.get(label, 0)):
            continue
        reasons = Counter(row["message"] or row["reason"].replace("_", " ") for row in refused if row["algorithm"] == label)
        how_many = f"{count} of {count + taken}" if taken else f"all {count}"
        lines.append(
            f"{how_many} messages of '{label}' were refused: {reasons.most_common(1)[0][0]}; fedbo show --trouble counts them"
        )
    return lines
