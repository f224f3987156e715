"""Jobs of a cluster's log: a file in the standard workload format (Feitelson), or a table with their times and cores."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from fedbo.settings.columns import NumberColumn, read_columns
from fedbo.settings.errors import SettingError
from fedbo.workers.models import LoadPart


def read_load(path: Path, unit: float, start: float, most: float) -> tuple[LoadPart, ...]:
    """Read the jobs of a log in the order in which they enter the queue, in parts of at most so many CPUs.

    Times of the file are divided by `unit`, after `start` is subtracted. What ended before that is left out; what ran then has
    the rest of its time to go, and comes first of all that entered the queue before. SettingError for a wrong log.
    """
    return _read(path, unit, start, most, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=8)
def _read(path: Path, unit: float, start: float, most: float, modified: int) -> tuple[LoadPart, ...]:
    is_swf = path.suffix == ".swf"
    names = ("submit", "wait", "run", "cores", "asked_cores") if is_swf else ("submit", "start", "end", "cores")
    log = {name: column.astype(np.float64) for name, column in read_columns(path, [NumberColumn(one) for one in names]).items()}
    submit, cores = log["submit"], log["cores"]
    if is_swf:  # -1 is unknown there, and what never ran has no time or no processor
        cores = np.where(cores > 0, cores, log["asked_cores"])
        begin = submit + np.maximum(log["wait"], 0.0)
        end = begin + log["run"]
        ran = (log["run"] > 0) & (cores > 0)
    else:
        begin, end = log["start"], log["end"]
        ran = (submit <= begin) & (begin <= end) & (cores > 0) & np.isfinite(end + cores + submit)
        if not ran.all():
            row = int(np.argmin(ran))
            times = ", ".join(f"{name} = {log[name][row]:g}" for name in names)
            raise SettingError("file", f"has {times} in row {row + 1}; give submit <= start <= end, and cores above 0")
    rows = np.flatnonzero(ran & ((end > start) | (submit >= start)))
    if not len(rows):
        raise SettingError("file", f"has no job that ran after the time {start:g}; use another file, or another start")
    entered = np.maximum(submit - start, 0.0) / unit
    lengths = (end - np.maximum(begin, start)) / unit
    order = rows[np.lexsort((submit[rows], begin[rows] > start, entered[rows]))]
    if not most:
        raise SettingError((), "needs CPUs, and no worker has any; set [[cluster.worker]] cpus")
    parts = ((row, min(most, float(cores[row] - whole))) for row in order for whole in np.arange(0.0, cores[row], most))
    return tuple(LoadPart(int(row) + 1, float(entered[row]), float(lengths[row]), cpus) for row, cpus in parts)
