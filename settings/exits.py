"""Calls of `sys.exit` in code that is not fedbo's: which of them end the process, and which are errors like any other."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import PurePath
from typing import ParamSpec, TypeVar

from fedbo.settings.errors import FedboError

P = ParamSpec("P")
R = TypeVar("R")


class ExitError(FedboError, RuntimeError):
    """An algorithm, a callback or a plug-in called `sys.exit`, or raised another error that is no `Exception`."""


def ends_process(error: BaseException) -> bool:
    """Return whether an error must pass through: Ctrl-C, and what the handler of a signal raised."""
    if isinstance(error, Exception | KeyboardInterrupt):
        return isinstance(error, KeyboardInterrupt)
    # Ray's workers, and many programs, end at SIGTERM by sys.exit, which surfaces wherever the process happens to be.
    handlers = [getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()]
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def exit_words(error: BaseException) -> str:
    """Return where and how code asked its process to end."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{PurePath(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
    what = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"raised {type(error).__name__}"
    return f"{place} {what}"


def exits_as_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function raise ExitError where code that it calls asks the process to end."""

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> R:
        try:
            return function(*given, **named)
        except BaseException as error:
            if isinstance(error, Exception) or ends_process(error):
                raise
            raise ExitError(exit_words(error)) from error

    return called
