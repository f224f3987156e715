"""The event log as a table: its columns, and lines as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.storage.rows import RunKey, schema_of
from fedbo.coordinator.logged.agents import Verdict
from fedbo.coordinator.logged.columns import RECORDS, EventColumns, values_of
from fedbo.coordinator.logged.kinds import KINDS, EventLine
from fedbo.coordinator.logged.messages import Direction, LossReason, MissReason, RefusalReason


class LoggedEvent(NamedTuple):
    """A row of `events.parquet`. Columns are declared only here; None where this `kind` has no such fact."""

    cell: Annotated[int, pa.int32()]
    algorithm: Annotated[str, pa.string()]
    replicate: Annotated[int, pa.int32()]
    sequence: Annotated[int, pa.int64()]
    """Number of the event in its run, from 0."""
    time: Annotated[float, pa.float64()]
    """Time of the event."""
    kind: Annotated[str, pa.string()]
    """Kind of the event, see the next table."""
    agent: Annotated[int, pa.int32()]
    """Agent that it concerns; -2 is the coordinator."""
    step: Annotated[int | None, pa.int32()] = None
    """Step of the agent."""
    round: Annotated[int | None, pa.int32()] = None
    """Number of a round, from 0."""
    answer: Annotated[int | None, pa.int32()] = None
    """Number of an answer of the coordinator to the agent."""
    bytes: Annotated[int | None, pa.int64()] = None
    """Size of a message or an answer, or of all answers of a round."""
    again: Annotated[bool | None, pa.bool_()] = None
    """Whether a step is started, or a message sent, once more."""
    staleness: Annotated[int | None, pa.int32()] = None
    """Age of a message, in rounds, or without them in updates of the server."""
    bound: Annotated[int | None, pa.int32()] = None
    """Largest staleness that the exchange accepts."""
    attempts: Annotated[int | None, pa.int32()] = None
    """Transmissions after which a message or answer was given up."""
    direction: Annotated[Direction | None, pa.string()] = None
    """Way of a lost transmission: `up` to the coordinator, or `down`."""
    reason: Annotated[LossReason | MissReason | RefusalReason | None, pa.string()] = None
    """Reason of a loss, a refusal or a miss, see the last table."""
    fault: Annotated[int | None, pa.int32()] = None
    """Place of the fault in the list of the study, from 0."""
    message: Annotated[str | None, pa.string()] = None
    """Error of an evaluation, or fault of a refused message."""
    claimed_agent: Annotated[int | None, pa.int32()] = None
    """Agent in whose name a forged message was sent."""
    lies: Annotated[Sequence[str] | None, pa.list_(pa.string())] = None
    """Kinds of the lies in a falsified message."""
    copied_agent: Annotated[int | None, pa.int32()] = None
    """Agent whose message a lie copies."""
    copied_step: Annotated[int | None, pa.int32()] = None
    """Step of the copied message."""
    permanent: Annotated[bool | None, pa.bool_()] = None
    """Whether a crash is for good."""
    state: Annotated[str | None, pa.string()] = None
    """State after a planned crash: `kept` or `lost`."""
    factor: Annotated[float | None, pa.float64()] = None
    """Factor by which an agent is slower."""
    query: Annotated[int | None, pa.int32()] = None
    """Number of the point in its step, as in the observations."""
    fidelity: Annotated[int | None, pa.int32()] = None
    """Fidelity of the rung reached, or of the next rung."""
    verdict: Annotated[Verdict | None, pa.string()] = None
    """Fate at a rung: `go`, `stop`, `pause`, `end` or `failed`."""
    worker: Annotated[int | None, pa.int32()] = None
    """Number of a worker of the cluster."""
    worker_class: Annotated[str | None, pa.string()] = None
    """Name of a class of workers."""
    queued_at: Annotated[float | None, pa.float64()] = None
    """Time at which the evaluation entered the queue, or was preempted last."""
    lost: Annotated[float | None, pa.float64()] = None
    """Time on the worker of which the work is lost."""
    answering: Annotated[int | None, pa.int32()] = None
    """Agents that gave shares."""
    cohort: Annotated[int | None, pa.int32()] = None
    """Agents that dealt shares."""
    needed: Annotated[int | None, pa.int32()] = None
    """Agents that must give shares."""
    copy: Annotated[bool | None, pa.bool_()] = None
    """Whether it is the copy of a slow evaluation."""
    job: Annotated[int | None, pa.int32()] = None
    """Row of a job in the log of the cluster, from 1."""
    cpus: Annotated[float | None, pa.float64()] = None
    """CPUs of a part of a job."""


EVENTS: Final = schema_of(LoggedEvent)
_NUMBER = {record: number for number, record in enumerate(KINDS.values())}
_AT_ONCE = 1000  # lines that are turned into columns at once


def events_table(lines: Sequence[EventLine | EventColumns], key: RunKey, first: int) -> pa.Table:
    """Return the lines of a run as a table, numbered from `first`."""
    columns = columns_of(lines)
    count = len(columns["kind"])
    for name, value in zip(RunKey._fields, key, strict=True):
        columns[name] = pa.repeat(pa.scalar(value, EVENTS.field(name).type), count)
    columns["sequence"] = pa.array(np.arange(first, first + count))
    return declared(columns, count)


def columns_of(lines: Sequence[EventLine | EventColumns]) -> dict[str, pa.Array]:
    """Return a column for each fact that at least one line has, by name.

    Lines of one kind become columns together; then all columns return to the order of the log.
    """
    numbers, known, several = list[int](), dict[type[EventLine], list[list[Any]]](), list[npt.NDArray[Any]]()
    for start in range(0, len(lines), _AT_ONCE):  # what is made of all at once would not fit into the processor's cache
        alike = defaultdict[type[EventLine], list[EventLine]](list)
        for line in lines[start : start + _AT_ONCE]:
            if isinstance(line, EventColumns):
                several.append(line.lines)
                numbers.extend((line.lines["kind"] + len(KINDS)).tolist())
                continue
            alike[type(line)].append(line)
            numbers.append(_NUMBER[type(line)])
        for record, found in alike.items():
            for values, more in zip(
                known.setdefault(record, [[] for _ in record._fields]), zip(*found, strict=True), strict=True
            ):
                values.extend(more)
    parts: list[dict[str, Any]] = [
        dict(zip(record._fields, known[record], strict=True)) for record in KINDS.values() if record in known
    ]
    if several:
        joint = np.concatenate(several)
        parts += [values_of(joint, kind) for kind in range(len(RECORDS))]
    return _in_order(np.array(numbers, np.int8), parts)


def _in_order(numbers: npt.NDArray[np.int8], known: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return columns in the order of the log, whose line `n` is of kind `numbers[n]`, from those of each kind."""
    places = pa.array(np.argsort(np.argsort(numbers, kind="stable"), kind="stable"))
    parts = [(len(part["time"]), part) for part in known]
    columns = {"kind": _names().take(pa.array(numbers))}
    for name in dict.fromkeys(name for _, part in parts for name in part):
        kind = EVENTS.field(name).type
        pieces = [pa.array(part[name], kind) if name in part else pa.nulls(count, kind) for count, part in parts]
        columns[name] = pa.concat_arrays(pieces).take(places)
    return columns


@cache
def _names() -> pa.Array:
    """Return the names of all kinds, then those of the kinds of columns; the first array of pyarrow imports pandas."""
    return pa.array([*KINDS, *(list(KINDS)[_NUMBER[record]] for record in RECORDS)], pa.string())


def declared(columns: Mapping[str, pa.Array], count: int) -> pa.Table:
    """Return a table of events from the columns that are known; all others are null."""
    missing = {field.type: pa.nulls(count, field.type) for field in EVENTS if field.name not in columns}  # shared, for memory
    arrays = [columns[field.name] if field.name in columns else missing[field.type] for field in EVENTS]
    return pa.Table.from_arrays(arrays, schema=EVENTS)
