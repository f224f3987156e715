"""External code: which of its exits end the process, and which become errors with their place."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import PurePath
from typing import ParamSpec, TypeVar

from fedbo.settings.errors import FedboError
from fedbo.settings.own_code import code_error

P = ParamSpec("P")
R = TypeVar("R")


class ExitError(FedboError, RuntimeError):
    """An algorithm, a callback or a plug-in called `sys.exit`, or raised another error that is not an `Exception`."""


def ends_process(error: BaseException) -> bool:
    """Return whether an error must propagate: Ctrl-C, and errors that the handler of a signal raised."""
    if isinstance(error, Exception):
        return False
    in_main = threading.current_thread() is threading.main_thread()
    if isinstance(error, KeyboardInterrupt) and in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True  # which leaves no frame of its own
    # Ray's workers, and many programs, end at SIGTERM by sys.exit, which surfaces wherever the process happens to be.
    handlers = [getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()]
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def exit_words(error: BaseException) -> str:
    """Return where and how code tried to end its process."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{PurePath(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
    what = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"raised {type(error).__name__}"
    return f"{place} {what}"


def exits_as_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that code that it calls cannot end the process by `sys.exit`, and so that errors name their place.

    Raises ExitError for an exit, and CodeError for an error in code outside fedbo.
    """

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> R:
        try:
            return function(*given, **named)
        except Exception as error:
            if (found := code_error(error)) is None:
                raise
            raise found from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or ends_process(error):  # that of an evaluation is a failure before
                raise
            raise ExitError(exit_words(error)) from error

    return called
