"""The table of events as it was up to format 2, where `step` and `detail` meant what `kind` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

PACKED = pa.schema(
    [
        *((name, kind) for name, kind in (("cell", pa.int32()), ("algorithm", pa.string()), ("replicate", pa.int32()))),
        *((name, kind) for name, kind in (("sequence", pa.int64()), ("time", pa.float64()), ("kind", pa.string()))),
        *((name, kind) for name, kind in (("agent", pa.int32()), ("step", pa.int32()), ("bytes", pa.int64()))),
        ("detail", pa.string()),
    ]
)
_REFUSALS = {
    "forged": "sent by agent {agent} in the name of agent {claimed_agent}",
    "unknown_agent": "there is no agent {agent}",
    "undeclared": "this algorithm declares no messages",
    "malformed": "{message}",
    "stale": "stale: {staleness} rounds old, the bound is {bound}",
    "unusable": "the algorithm cannot use it: {message}",
    "not_sampled": "not sampled: this agent was not asked",
    "superseded": "a newer message of this agent is held",
    "budget_spent": "the privacy budget is spent",
    "given_up": "given up after {attempts} transmissions",
}


def packed(events: pa.Table) -> pa.Table:
    """Return a table of events of today as an earlier version wrote it."""
    return pa.Table.from_pylist([_row(event) for event in events.to_pylist()], schema=PACKED)


def _row(event: Mapping[str, Any]) -> dict[str, Any]:
    numbers = (event[name] for name in ("step", "answer", "round", "worker"))
    number = next((one for one in numbers if one is not None), 0)  # a class of workers was told by its name, too
    kept = {name: event[name] for name in PACKED.names if name != "detail"}
    return {**kept, "step": number, "bytes": event["bytes"] or 0, "detail": _detail(event)}


def _detail(event: Mapping[str, Any]) -> str:
    """Return the text of an event, by the formats with which it was written."""
    lost = event["reason"] if event["fault"] is None else f"fault {event['fault']}"
    copied = f"copy of agent {event['copied_agent']}, step {event['copied_step']}"
    crashed = "for good" if event["permanent"] else event["state"] or "unplanned"
    copy = "this message has already taken effect" if event["answer"] is None else "the agent has had this answer"
    refused = f"duplicate: {copy}" if event["reason"] == "duplicate" else _REFUSALS.get(event["reason"] or "", "")
    shares = "{answering} of {cohort} give shares, {needed} are needed".format(**event)
    missed = "the agent had ended" if event["attempts"] is None else f"given up after {event['attempts']} transmissions"
    return {
        "started": "again" if event["again"] else "",
        "sent": "again" if event["again"] else "",
        "failed": event["message"],
        "rung": "{query} {fidelity} {verdict}".format(**event),
        "promoted": "{query} {fidelity}".format(**event),
        "crashed": crashed,
        "slowed": f"{event['factor'] or 0.0:g} times",
        "placed": "{query} {worker} {queued_at!r}".format(**event),
        "released": "{query} {worker}".format(**event),
        "preempted": "{query} {worker}".format(**event),
        "workers_joined": event["worker_class"],
        "workers_left": event["worker_class"],
        "worker_preempted": event["worker_class"],
        "worker_returned": event["worker_class"],
        "falsified": "; ".join(copied if lie == "copy" else lie for lie in event["lies"] or ()),
        "lost": f"{event['direction']}: {lost}".replace("_", " "),
        "arrived": str(event["staleness"]),
        "late": "round {round} had closed".format(**event),
        "rejected": refused.format(**event),
        "discarded": "its lease had expired",
        "unmasked": shares,
        "aborted": shares,
        "missed": missed,
    }.get(event["kind"], "")
