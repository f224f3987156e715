"""One evaluation of an objective: what came of it, whatever came, written down before anybody is told."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fedbo.actors.evaluation.isolated import Isolated
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.rows import OBSERVATIONS, RunKey, column, write_table
from fedbo.actors.storage.run_folder import RunFolder, append_whole
from fedbo.actors.storage.sealed import Damaged
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Measured, Objective, observe

NAN = float("nan")


class EvaluationError(RuntimeError):
    """An objective failed, and the study's policy is to stop then."""


class Pulls(NamedTuple):
    """That a point is evaluated `times` times and counts as the mean, of values each moved into `clip` where that is given.

    Normal noise of variance `noise` is added to each of them before.
    """

    times: int
    clip: tuple[float, float] | None = None
    noise: float = 0.0


class Known(NamedTuple):
    """An evaluation before it is made: number `number` of its agent, at point `point` of its step, at `x (d,)` in native units.

    `length` is how long it will take, or each of its `pulls`, where time is virtual and it may take too long. `made` has the
    value and the score where they are known already, with those of the step's other points.
    """

    agent: int
    number: int
    point: int
    x: Array
    length: float | None = None
    pulls: Pulls | None = None
    made: tuple[float, float] | None = None

    @property
    def times(self) -> int:
        """Give how often the point is evaluated."""
        return 1 if self.pulls is None else self.pulls.times


class Outcome(NamedTuple):
    """What came of an evaluation: its value and noise-free score, or the error; and when, where time is real.

    `metrics` are others that were measured with the value, as JSON.
    """

    number: int
    point: int
    x: Array
    value: float
    score: float
    started: float
    finished: float
    error: str | None
    pulls: int = 1
    metrics: str | None = None


class Evaluator:
    """Evaluates under a policy, with a log in which nothing that was computed is ever lost."""

    def __init__(
        self,
        policy: Policy,
        real: bool,
        log: EvaluationLog | None = None,
        linger: Callable[[int, float], None] | None = None,
        recorded: bool = False,
    ) -> None:
        self._policy, self._real, self._log, self._linger = policy, real, log, linger
        self._again = policy.failure == "stop" and not recorded  # what stopped the run may have been mended
        limited = real and (policy.time_limit is not None or policy.memory_limit is not None)
        self._isolated = Isolated(policy.time_limit, policy.memory_limit) if limited else None

    @property
    def at_once(self) -> bool:
        """Say whether points of a decision may be evaluated together: not where each takes its real time."""
        return not self._real

    def __call__(self, objective: Objective, known: Known, streams: Streams, clock: Callable[[], float]) -> Outcome:
        """Make one evaluation, or look it up where an earlier process has made it."""
        limit = self._policy.time_limit
        if known.length is not None and limit is not None and known.length > limit:
            # It is not logged: if a crash makes it begin again, it may take another time.
            error = self._place(known) + f"took longer than time_limit = {limit:g}"
            return Outcome(known.number, known.point, known.x, NAN, NAN, 0.0, 0.0, error, known.times)
        if known.made is not None:  # it would be made again to the same bits, and sooner than read in a log
            return Outcome(known.number, known.point, known.x, *known.made, 0.0, 0.0, None, known.times)
        found = self._log.find(known) if self._log is not None else None
        if found is not None and (found.error is None or not self._again):
            return found
        started = clock() if self._real else 0.0
        value, score, failed = self.call(objective, known, streams)
        if self._linger is not None:
            self._linger(known.agent, clock() - started)
        ended = clock() if self._real else 0.0
        found = Outcome(known.number, known.point, known.x, float(value), score, started, ended, failed, known.times)
        outcome = found._replace(metrics=getattr(value, "metrics", None))
        if self._log is not None:
            self._log.append(known.agent, outcome)
        return outcome

    def close(self) -> None:
        """End the process of its own, where evaluations have one."""
        if self._isolated is not None:
            self._isolated.close()

    def call(self, objective: Objective, known: Known, streams: Streams) -> tuple[float, float, str | None]:
        """Give an evaluation's value and score, or what was wrong."""
        try:
            if self._isolated is not None:
                value, score = self._isolated.evaluate(known.agent, objective, known.x, streams, known.pulls)
            else:
                value, score = evaluate(objective, known.x, streams, known.pulls)
        except Exception as error:
            last = "".join(traceback.format_exception(error))
            return (
                Measured(NAN, getattr(error, "metrics", None)),
                NAN,
                self._place(known) + f"{type(error).__name__}: {error}\n{last}",
            )
        if not np.isfinite(value):
            unfit = Measured(NAN, getattr(value, "metrics", None))
            return unfit, NAN, self._place(known) + f"the objective gave {value}, not a finite number"
        return value, score, None

    def _place(self, known: Known) -> str:
        return f"agent {known.agent} at x = {known.x.tolist()}: "


def evaluate(objective: Objective, x: Array, streams: Streams, pulls: Pulls | None = None) -> tuple[float, float]:
    """Give one observation, or the mean of several, and the score by which it is judged."""
    if pulls is not None:
        return _mean(objective, x, streams, pulls)
    seen = objective.evaluate(x, streams.rng("evaluation"))
    value = seen if isinstance(seen, Measured) else float(seen)
    score = objective.score(x)
    return value, float(value if score is None else score)


def _mean(objective: Objective, x: Array, streams: Streams, pulls: Pulls) -> tuple[float, float]:
    """Give the mean of several observations and its score; all of one point's draws come from one stream."""
    seen = observe(objective, x, pulls.times, streams.rng("evaluation"))
    if not np.isfinite(seen).all():  # which clipping would hide
        return NAN, NAN
    score = objective.score(x)
    score = float(seen.mean()) if score is None else float(score)
    if pulls.noise:
        # The stream of the noise of single evaluations, so that one pull sees what one evaluation does.
        noise = streams.at(streams.step + 1).rng("added noise").standard_normal(pulls.times)
        seen = seen + np.sqrt(pulls.noise) * noise
    if pulls.clip is not None:
        seen = np.clip(seen, *pulls.clip)
    return float(seen.mean()), score


EVALUATIONS = pa.schema(
    [
        *list(OBSERVATIONS)[:4],
        column("number", pa.int64()),
        column("x", pa.list_(pa.field("item", pa.float64(), nullable=False))),
        column("value", pa.float64()),
        column("score", pa.float64()),
        column("started", pa.float64()),
        column("finished", pa.float64()),
        column("error", pa.string(), nullable=True),
        column("pulls", pa.int32()),
        column("metrics", pa.string(), nullable=True),
    ]
)

EvaluationLine = tuple[int, int, list[float], float, float, float, float, str | None, int, str | None]
_FIELDS = 10  # of a line


class EvaluationLog:
    """Every evaluation of some agents, appended as one line to a file of this process before it is reported.

    A process that takes over reads the files of its predecessors, so that it need not evaluate again what they did. A line has
    the agent, the evaluation's number, and then the columns of `EVALUATIONS` from `x` on.
    """

    def __init__(self, home: RunFolder, agents: set[int], since: int | None) -> None:
        home.folder.mkdir(parents=True, exist_ok=True)
        self._home, self._agents, self._real = home, agents, since is None
        self._found = {line[:2]: line for line in self._lines()}
        self._file: int | None = None
        self.begin(since)

    def begin(self, since: int | None) -> None:
        """Go on in a new file, with what comes after snapshot `since`; None where snapshots make no line superfluous."""
        self.close()
        self._path = self._home.log(since)

    @property
    def reached(self) -> float:
        """Give the time at which the last evaluation of the predecessors had ended."""
        return max((float(line[6]) for line in self._found.values()), default=0.0)

    def find(self, known: Known) -> Outcome | None:
        """Give an evaluation that has been made, if it was at the same point and as often."""
        found = self._found.get((known.agent, known.number))
        if found is None or found[2] != known.x.tolist() or found[8] != known.times:
            return None
        return Outcome(known.number, known.point, known.x, *found[3:])

    def append(self, agent: int, outcome: Outcome) -> None:
        """Write an evaluation down; OSError when the disk is full."""
        self.write([(agent, outcome.number, outcome.x.tolist(), *outcome[3:])])

    def write(self, lines: Iterable[EvaluationLine]) -> None:
        """Write lines down."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        append_whole(self._file, b"".join(_summed(json.dumps(line).encode()) for line in lines))

    def counted(self, begun: set[tuple[int, float]]) -> list[EvaluationLine]:
        """List the evaluations that began when these (agent, started) did, in the order of agents and numbers."""
        return sorted((line for line in self._lines() if (line[0], line[5]) in begun), key=lambda line: line[:2])

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lines(self) -> Iterator[EvaluationLine]:
        for path in sorted(self._home.folder.glob("log-*.jsonl")):
            with contextlib.suppress(FileNotFoundError):  # a snapshot has made it superfluous meanwhile
                yield from (found for found in read_log(path, 0, self._real)[0] if found[0] in self._agents)


def read_log(path: Path, place: int, real: bool = False) -> tuple[list[EvaluationLine], int]:
    """Read the lines of a log from a place in it on, as far as they are whole; give the place to go on from.

    A line that is damaged is passed over, since the evaluation gives the same again; Damaged where time is `real`.
    """
    with path.open("rb") as file:
        file.seek(place)
        whole, _, _ = file.read().rpartition(b"\n")  # its writer may be at the last line, or was killed there
    found = [_read(line) for line in whole.split(b"\n")] if whole else []
    if real and None in found:
        raise Damaged(path, f"line {found.index(None) + 1} after byte {place} is not as it was written")
    return [line for line in found if line is not None], place + len(whole) + (1 if whole else 0)


def _summed(line: bytes) -> bytes:
    """Give a line of a log with its sum (CRC-32) behind a tab."""
    return line + b"\t%08x\n" % zlib.crc32(line)


def _read(line: bytes) -> EvaluationLine | None:
    """Read a line, also one of format 1, which has no sum; None when it is not as it was written."""
    text, tab, check = line.rpartition(b"\t")
    if tab and check != b"%08x" % zlib.crc32(text):
        return None
    try:
        found: EvaluationLine = tuple(json.loads(text if tab else line))
    except (ValueError, TypeError):
        return None
    return found if len(found) == _FIELDS else None


def write_evaluations(lines: Sequence[EvaluationLine], key: RunKey, path: Path) -> str:
    """Write lines of logs as one Parquet part; give its SHA-256."""
    columns: list[Any] = [list(values) for values in zip(*lines, strict=True)] or [[] for _ in range(10)]
    head = [[value] * len(lines) for value in key]
    arrays = [pa.array(values, field.type) for values, field in zip([*head, *columns], EVALUATIONS, strict=True)]
    return write_table(pa.Table.from_arrays(arrays, schema=EVALUATIONS), path)
