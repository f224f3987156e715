"""Ctrl-C: the first one requests a stop and is answered at once, whatever the process is doing; the second one ends it."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

FIRST = "stopping once the present evaluation has ended; press Ctrl-C again to stop at once\n"
SECOND = "stopped while an evaluation was running; what was written before is kept; continue with: fedbo resume RUN\n"
_SOON = 0.5  # seconds after which the first Ctrl-C is answered where the run has not ended by then
_PATIENCE = 0.8  # seconds in which Python may act on the second Ctrl-C
_ASKING = (signal.SIGINT, signal.SIGTERM)
_LOOKED_EVERY = 1.0  # seconds between two looks for the file that asks too


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt from a signal handler, whose frame distinguishes it from one that code raises itself."""
    raise KeyboardInterrupt


def mark_interrupts() -> None:
    """Set `raise_interrupt` as the handler of Ctrl-C in this process, unless there is another handler."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_interrupt)


@contextmanager
def ends_at_once(words: str) -> Iterator[None]:
    """End the process with the line `words` on Ctrl-C, while only imports or figures remain.

    Imports treat KeyboardInterrupt as their own error, or lose it.
    """

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, f"{words}\n".encode())
        os._exit(128 + number)  # as a shell reports it

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def or_file(asked: Callable[[], bool], file: Path) -> Callable[[], bool]:
    """Return whether a stop was requested, or a file exists that requests it: a program that can send no signal makes it."""
    found, looked = False, -_LOOKED_EVERY

    def either() -> bool:
        nonlocal found, looked
        if not found and (now := time.monotonic()) - looked >= _LOOKED_EVERY:
            found, looked = file.exists(), now
        return found or asked()

    return either


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Convert the first Ctrl-C or SIGTERM to a request to stop; the second Ctrl-C raises KeyboardInterrupt.

    A thread answers on standard error, since Python calls no handler before a long call of a compiled library returns. If the
    second Ctrl-C has no effect either, the thread ends the process.
    """
    asked, obeyed = threading.Event(), threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, end)

    def end(number: int, frame: FrameType | None) -> None:
        obeyed.set()
        raise_interrupt(number, frame)

    reader, writer = os.pipe()
    # `set_wakeup_fd` requires a non-blocking descriptor.
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reader, obeyed), name="fedbo-interrupts", daemon=True)
    watcher.start()
    before = [(number, signal.signal(number, note)) for number in _ASKING]
    try:
        yield asked.is_set
    finally:
        obeyed.set()
        for number, handler in before:
            signal.signal(number, handler)
        signal.set_wakeup_fd(earlier)
        # Closing the writer ends the watcher's read, and with it the thread.
        os.close(writer)
        watcher.join()
        os.close(reader)


def _watch(reader: int, obeyed: threading.Event) -> None:
    """Answer the first signal unless it takes effect soon, and end the process if the second one has no effect."""
    asked = answered = False
    while True:
        waiting = asked and not answered
        if waiting and not select.select([reader], [], [], _SOON)[0]:
            os.write(2, FIRST.encode())  # no stream, which may be locked by what was interrupted
            answered = True
            continue
        byte = os.read(reader, 1)
        if not byte:
            return
        if asked and byte[0] == signal.SIGINT and not obeyed.wait(_PATIENCE):
            os.write(2, SECOND.encode())
            os._exit(128 + signal.SIGINT)  # as a shell reports it
        asked = asked or byte[0] in _ASKING
