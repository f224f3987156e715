"""The prints of evaluations: lines of a file beside a run's log, and the table of all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import VECTOR, Query
from fedbo.actors.storage.rows import RunKey, schema_of
from fedbo.actors.storage.run_folder import RunFolder


class PrintedText(NamedTuple):
    """The prints of one evaluation: its agent, number, step and point as in the observations, `x`, and the text."""

    agent: Annotated[int, pa.int32()]
    number: Annotated[int, pa.int64()]
    step: Annotated[int, pa.int32()]
    query: Annotated[int, pa.int32()]
    x: Annotated[list[float], VECTOR]
    text: Annotated[str, pa.string()]


PRINTED = schema_of(RunKey, PrintedText)


def keep_printed(folder: Path, query: Query, text: str) -> None:
    """Append the prints of an evaluation to this process's file; do nothing where the folder cannot be written."""
    kept = PrintedText(query.agent, query.number, query.step, query=query.point, x=query.x.tolist(), text=text)
    try:
        file = atomic.open_log(folder / f"printed-{os.uname().nodename}-{os.getpid()}.jsonl")
        try:
            atomic.append(file, json.dumps(kept).encode() + b"\n")
        finally:
            os.close(file)
    except OSError:  # prints are worth no run: the disk is full, or another machine sees no such folder
        return


def printed_table(folders: Iterable[RunFolder], before: pa.Table | None) -> pa.Table:
    """Return the prints of the evaluations of some runs, each once, with those of the table `before`."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in [] if before is None else before.to_pylist():
        found[tuple(row[name] for name in (*RunKey._fields, "agent", "number"))] = tuple(row[name] for name in PRINTED.names)
    for folder in folders:
        for path in sorted(folder.path.glob("printed-*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
            for text in _lines(path):
                found[(*folder.key, text.agent, text.number)] = (*folder.key, *text)
    columns = zip(*found.values(), strict=True) if found else ([] for _ in PRINTED)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, PRINTED, strict=True)]
    return pa.Table.from_arrays(arrays, schema=PRINTED)


def _lines(path: Path) -> Iterator[PrintedText]:
    for line in path.read_bytes().split(b"\n"):
        try:
            yield PrintedText(**dict(zip(PrintedText._fields, json.loads(line), strict=True)))
        except (ValueError, TypeError):  # torn by a kill
            continue
