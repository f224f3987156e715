"""Traces of devices: when each agent was available, and the capacities of FedScale's devices, read from a file.

Two formats of availability are known. `windows` is a table, CSV or Parquet, with columns agent, start, end; `fedscale` is the
JSON form of FedScale's device behaviour. Every error is one line that begins with "file"; rows count from 1 below the header,
without blank lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.settings.columns import NumberColumn, read_columns
from fedbo.settings.errors import SettingError

Windows = tuple[tuple[float, float], ...]
Id = int | str
Schedule = Callable[[int], Iterator[float]]


def read_windows(path: str | Path) -> dict[Id, Windows]:
    """Read the windows of presence [start, end) of each id, ids in order and windows in order of time, from .csv or .parquet.

    Ids are whole numbers, or strings in the order of their letters. Windows may touch; one without an end lasts for ever.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column or a start is missing, a time is negative, a start infinite, a window empty, or two windows of
            one agent overlap.
    """
    agent, start, end = _columns(Path(path))
    _check_rows(agent, start, end)
    order = np.lexsort((start, agent))
    _check_overlaps(order, agent, start, end)
    found: dict[Id, list[tuple[float, float]]] = {}
    for row in order:
        found.setdefault(agent[row].item(), []).append((float(start[row]), float(end[row])))
    return {number: tuple(own) for number, own in found.items()}


def read_fedscale(path: str | Path) -> tuple[tuple[Windows, float], ...]:
    """Read FedScale's clients, sorted by their ids: for each its windows of presence and its period.

    The file is a JSON object {client: {"active": [...], "inactive": [...], "finish_time": f}}: the client is there from
    active[i] to inactive[i], and time counts modulo finish_time (Lai et al. 2022; `ClientMetadata.is_active`). FedScale
    itself ships a pickle, which is never loaded here, because a pickle can run any code. If you trust it, convert it once:

        json.dump(pickle.load(open("client_behave_trace", "rb")), open("trace.json", "w"))

    Raises FileNotFoundError, or ValueError when the file is not of this form or when intervals are not in order.
    """
    # differs from FedScale: it hands clients out in the order of its file, and its pointer to the present interval moves by
    # at most one for each question, so that it lags when it is seldom asked; here the definition itself holds.
    clients = _object(Path(path))
    return tuple(_client(name, clients[name]) for name in _ranked(clients))


class Capacity(NamedTuple):
    """The capacity of a device: milliseconds of computation for a sample, and kilobits a second of communication."""

    computation: float
    communication: float


def read_capacities(path: str | Path) -> tuple[Capacity, ...]:
    """Read FedScale's device capacities, sorted by the clients' ids.

    The file is a JSON object {client: {"computation": ms, "communication": kbit/s}} (Lai et al. 2022; `ClientMetadata`), which
    is made of FedScale's pickle in the same way as a trace. SettingError when it is not of this form.
    """
    found, clients = list[Capacity](), _object(Path(path))
    for name in _ranked(clients):
        told: Any = clients[name]
        values: list[Any] = [told.get(key) if isinstance(told, dict) else None for key in Capacity._fields]
        for key, value in zip(Capacity._fields, values, strict=True):
            if not (_number(value) and value > 0):
                raise SettingError("file", f"has {key} = {value!r} for client {name}; it must be a number above 0")
        found.append(Capacity(*map(float, values)))
    return tuple(found)


def once(windows: Iterable[tuple[float, float]]) -> Iterator[float]:
    """Return the times at which an agent with these windows leaves, returns, leaves, …; after the last window it stays away."""
    left = 0.0
    for start, end in windows:
        if start > left:
            yield left
            yield start
        left = end
    yield left


def cycling(windows: Windows, period: float) -> Iterator[float]:
    """Return the same times for windows in [0, `period`] that repeat in every period; endless unless nothing changes."""
    joined = _joined(windows)
    if not joined:
        yield 0.0
    if not joined or joined == ((0.0, period),):
        return
    if joined[0][0] == 0.0:
        # A window that begins with the period may go on from the one before: from now on it is told as that one's end.
        yield joined[0][1]
        joined = _joined((*joined[1:], (period, period + joined[0][1])))
    else:
        yield 0.0
    for number in count():
        for start, end in joined:
            yield number * period + start
            yield number * period + end


def schedule(file: str, format: str) -> Schedule:
    """Return the function agent -> times of leaving and returning; a file is read once, and again when it has changed.

    Raises the errors of the reader of the format.
    """
    return _schedule(file, format, _existing(Path(file)).stat().st_mtime_ns)[1]


def ids_in(file: str, format: str) -> int:
    """Return the number of ids in a file. Raises the errors of the reader of the format."""
    return _schedule(file, format, _existing(Path(file)).stat().st_mtime_ns)[0]


@lru_cache(maxsize=16)
def _schedule(file: str, format: str, modified: int) -> tuple[int, Schedule]:
    return FORMATS[format](file)


def _by_windows(file: str) -> tuple[int, Schedule]:
    windows = tuple(read_windows(file).values())
    return len(windows), lambda agent: once(windows[agent % len(windows)])


def _by_fedscale(file: str) -> tuple[int, Schedule]:
    clients = read_fedscale(file)
    return len(clients), lambda agent: cycling(*clients[agent % len(clients)])


# The number of ids in a file, and the function agent -> its times.
FORMATS: dict[str, Callable[[str], tuple[int, Schedule]]] = {"windows": _by_windows, "fedscale": _by_fedscale}


def _joined(windows: Iterable[tuple[float, float]]) -> Windows:
    """Join windows that touch; they come in order of time."""
    joined: list[tuple[float, float]] = []
    for start, end in windows:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif end > start:
            joined.append((start, end))
    return tuple(joined)


def not_there(file: str | Path) -> str:
    """Return the error text for a missing file, with the remedy."""
    return f"does not exist: {Path(file).absolute()}; set the path of a file with a trace"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"file {not_there(path)}")
    return path


def _columns(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    columns = NumberColumn("agent", ids=True), NumberColumn("start"), NumberColumn("end", gaps=True)
    found = read_columns(_existing(path), columns)
    return found["agent"], found["start"], np.where(np.isnan(found["end"]), np.inf, found["end"])


def _check_rows(agent: npt.NDArray[Any], start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> None:
    for bad, said in (
        (~np.isfinite(start), "start must be finite"),
        (start < 0, "times must be at least 0, the start of the study"),
        (start >= end, "start must be below end"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise SettingError("file", f"has agent {agent[row]}, start {start[row]}, end {end[row]} in row {row + 1}; {said}")


def _check_overlaps(
    order: npt.NDArray[np.intp], agent: npt.NDArray[Any], start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> None:
    before, after = order[:-1], order[1:]
    bad = (agent[before] == agent[after]) & (start[after] < end[before])
    if bad.any():
        one, two = int(before[np.argmax(bad)]), int(after[np.argmax(bad)])
        raise SettingError(
            "file",
            f"has overlapping windows of agent {agent[one]}: row {two + 1} starts at {start[two]}, "
            f"before row {one + 1} ends at {end[one]}; merge them",
        )


def _object(path: Path) -> dict[str, Any]:
    convert = "convert FedScale's pickle as read_fedscale describes"
    try:
        clients = json.loads(_existing(path).read_text(encoding="utf-8"))
    except ValueError as error:  # also UnicodeDecodeError, which a pickle gives
        raise SettingError("file", f"is not JSON ({error}); {convert}") from None
    if not isinstance(clients, dict) or not clients:
        raise SettingError("file", f"contains no JSON object of clients; {convert}")
    return clients


def _ranked(ids: Iterable[str]) -> list[str]:
    """Sort ids as whole numbers, or as strings if one of them is none."""
    return sorted(ids, key=int) if all(one.isdecimal() for one in ids) else sorted(ids)


def _client(name: str, told: Any) -> tuple[Windows, float]:
    """Check and clip one client's intervals: time modulo finish_time never reaches those beyond it."""
    if not isinstance(told, dict) or not {"active", "inactive", "finish_time"} <= set(told):
        raise SettingError("file", f"is incomplete for client {name}; add active, inactive and finish_time")
    active, inactive, period = told["active"], told["inactive"], told["finish_time"]
    if not (_number(period) and period > 0):
        raise SettingError("file", f"has finish_time = {period!r} for client {name}; it must be a number above 0")
    for key in ("active", "inactive"):
        if not isinstance(told[key], list) or not all(map(_number, told[key])):
            raise SettingError("file", f"has invalid times in {key} of client {name}; {key} must be a list of finite numbers")
    if len(active) != len(inactive):
        raise SettingError(
            "file",
            f"has {len(active)} active and {len(inactive)} inactive times for client {name}; each interval must have both",
        )
    last = 0.0
    for number, (start, end) in enumerate(zip(active, inactive, strict=True)):
        if not last <= start <= end:
            raise SettingError(
                "file",
                f"has interval {number} from {start} to {end} for client {name}; "
                "intervals must start at 0 or later, end after their start, and be sorted in time",
            )
        last = end
    clipped = ((float(start), float(min(end, period))) for start, end in zip(active, inactive, strict=True) if start < period)
    return _joined(clipped), float(period)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)
