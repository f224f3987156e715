"""Evaluation in a separate process, which can be killed when it takes too much time or memory."""

from __future__ import annotations

import atexit
import io
import os
import pickle
import resource
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any

from fedbo.actors.evaluation.children import die_with_parent
from fedbo.actors.evaluation.contained import LONGEST, Contained, SentText
from fedbo.actors.evaluation.evaluate import evaluate, text_of, with_text
from fedbo.actors.storage.evaluations import Pulls
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Objective
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.typed_spaces.reports import Checkpoint, Report, answer, answered_by, note_reports
from fedbo.settings.interrupts import mark_interrupts
from fedbo.settings.own_code import ends_process
from fedbo.settings.shown import encodable
from fedbo.settings.trust import ChangedCodeError, WithCode

_HEAD = struct.Struct("<Q")
MIB = 2**20


_sending = threading.Lock()  # an objective may print in several threads


class _SendingStream(io.TextIOBase):
    """Standard output of the separate process, or with `error` its standard error."""

    def __init__(self, sink: IO[bytes], error: bool) -> None:
        self._sink, self._error, self._left, self._process = sink, error, LONGEST, os.getpid()

    def fileno(self) -> int:
        """Return the file for programs that the objective starts; what they print there is seen, and not kept."""
        return 2 if self._error else 1

    def write(self, text: str) -> int:
        """Send a text, up to the length that is kept; a fork does not, since its bytes would mix with those of an answer."""
        if os.getpid() != self._process:
            os.write(2, text.encode("utf-8", "backslashreplace"))
            return len(text)
        text = encodable(text)
        if self._left > 0:
            send(self._sink, SentText(text[: self._left], self._error))
            self._left -= len(text)
        return len(text)


class Isolated:
    """A process that evaluates one point after the other, and that is replaced after it was killed.

    Only bytes that this program wrote pass between the two processes.
    """

    def __init__(self, time_limit: float | None, memory_limit: int | None, setting: str = "time_limit") -> None:
        self._limit, self._memory, self._setting = time_limit, memory_limit, setting
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: set[int] = set()

    def evaluate(
        self,
        agent: int,
        objective: Objective,
        x: Array,
        streams: Streams,
        pulls: Pulls | None = None,
        fidelity: int | None = None,
    ) -> Outcome:
        """Return the outcome at `x`; raise TimeoutError, MemoryError, or the error of the objective.

        With many pulls, the time limit holds for their average. An error carries the reports that preceded it.
        """
        process, said = self._running(), list[Report]()
        assert process.stdin is not None and process.stdout is not None
        try:
            if agent not in self._sent:
                send(process.stdin, (agent, WithCode(objective), None, streams))
                self._sent.add(agent)
                # The objective is known there at the first answer: the limit is for evaluations, not for imports.
                while isinstance(found := receive(process.stdout), SentText):  # a module may print as it is imported
                    _print(found)
                if isinstance(found, ChangedCodeError):
                    raise found
            send(process.stdin, (agent, None, (x, pulls, fidelity), streams))
            found = self._result(process, 1 if pulls is None else pulls.times, said)
        except (EOFError, BrokenPipeError):
            code = process.wait()
            self.close()
            found = RuntimeError(f"the evaluation's process ended with code {code}; os._exit, a crash or a signal ends one")
        except BaseException:  # its answer may come later, when another one is expected
            self.close()
            raise
        if found is None:
            self.close()
            found = TimeoutError(f"took longer than {self._setting} = {self._limit:g}")
        if isinstance(found, BaseException):
            note_reports(found, said)
            raise found
        outcome: Outcome = found
        return outcome

    def close(self) -> None:
        """Kill the process and its children."""
        process, self._process = self._process, None
        self._sent.clear()
        if process is None:
            return
        atexit.unregister(process.kill)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # what was not sent need not be

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            paths = os.pathsep.join(path for path in sys.path if path)
            command = [sys.executable, "-m", "fedbo.actors.evaluation.isolated", str(self._memory or 0), str(os.getpid())]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
                process_group=0,  # so that what an evaluation has started ends with it
            )
            atexit.register(self._process.kill)
            assert self._process.stdout is not None
            receive(self._process.stdout)  # it is ready: the limit is for evaluations, not for imports
        return self._process

    def _result(self, process: subprocess.Popen[bytes], pulls: int, said: list[Report]) -> Any:
        """Return the result or the error of an evaluation, None after the time limit.

        Answer its reports and append them to `said`.
        """
        pipe, back = process.stdout, process.stdin
        assert pipe is not None and back is not None
        until = None if self._limit is None else time.monotonic() + self._limit * pulls
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while until is None or selector.select(max(0.0, until - time.monotonic())):
                found = receive(pipe)
                if isinstance(found, SentText):
                    _print(found)
                    continue
                if isinstance(found, Report):
                    said.append(found)
                elif not isinstance(found, Checkpoint):
                    return found
                send(back, answer(found))
        return None


def _print(sent: SentText) -> None:
    (sys.stderr if sent.error else sys.stdout).write(sent.text)


def send(pipe: IO[bytes], value: Any) -> None:
    """Write one value to a pipe."""
    data = pickle.dumps(value)
    with _sending:
        pipe.write(_HEAD.pack(len(data)) + data)
        pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one value from a pipe; EOFError when it is closed."""
    (length,) = _HEAD.unpack(_exactly(pipe.fileno(), _HEAD.size))
    return pickle.loads(_exactly(pipe.fileno(), length))


def _exactly(file: int, length: int) -> bytes:
    """Read exactly so many bytes, since a selector cannot see bytes that are read ahead."""
    parts = []
    while length:
        part = os.read(file, min(length, MIB))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def main() -> None:
    """Evaluate the points that arrive on standard input until it ends."""
    die_with_parent(int(sys.argv[2]))
    mark_interrupts()
    limit = int(sys.argv[1]) * MIB
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # an objective that reads its input would wait for, or take, the next point
    os.dup2(2, 1)  # what programs that the objective starts print is no answer
    sys.stdout, sys.stderr = _SendingStream(sink, error=False), _SendingStream(sink, error=True)
    send(sink, "ready")

    def ask(question: Report | Checkpoint) -> Any:
        send(sink, question)
        return receive(source)

    objectives: dict[int, Objective] = {}
    while True:
        try:
            agent, objective, point, streams = receive(source)
        except EOFError:
            return
        except ChangedCodeError as error:
            return send(sink, error)
        if objective is not None:
            objectives[agent] = objective
            send(sink, "known")
            continue
        try:
            x, pulls, fidelity = point
            sys.stdout, sys.stderr = _SendingStream(sink, error=False), _SendingStream(sink, error=True)
            with Contained(), answered_by(ask):
                found = evaluate(objectives[agent], x, streams, pulls, fidelity)
            send(sink, found)
        except BaseException as error:
            if ends_process(error):
                raise
            send(sink, _portable(error))


def _portable(error: BaseException) -> BaseException:
    with_text(error, error)
    try:
        pickle.loads(pickle.dumps(error))
        if not isinstance(error, KeyboardInterrupt):  # which would end the process that receives it, as Ctrl-C does
            return error
    except Exception:
        pass
    return with_text(RuntimeError(f"{type(error).__name__}: {text_of(error)}"), error)


if __name__ == "__main__":
    main()
