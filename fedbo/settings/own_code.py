"""Code outside fedbo, such as a method or an objective of a user: the place of its errors on one line, and its exits."""

from __future__ import annotations

import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable
from functools import cache, wraps
from pathlib import PurePath
from types import FrameType
from typing import ParamSpec, TypeVar

from fedbo.settings.errors import FedboError
from fedbo.settings.plugins import declared
from fedbo.settings.trust import is_admitted


class CodeError(FedboError, RuntimeError):
    """An error in code outside fedbo; the message names its place, and `traceback` is the text of its traceback."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message, traceback)  # by which it is made again in another process
        self.traceback = traceback

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0])


class ReturnError(FedboError, TypeError):
    """A function of a method returned a wrong value: `place` names its file, class and function, `words` the value."""

    def __init__(self, place: str, words: str) -> None:
        super().__init__(place, words)
        self.fedbo_step = ""

    def __str__(self) -> str:
        """Return the place, the agent and the step where they were noted, and the words."""
        where = f" ({step})" if (step := self.fedbo_step) else ""
        return f"{self.args[0]}{where} {self.args[1]}"


def code_error(error: Exception) -> CodeError | None:
    """Return an error in code outside fedbo with its place; None for fedbo's errors, and those of other libraries."""
    known = type(error).__module__.partition(".")[0] == "fedbo" and not isinstance(error, ReturnError)
    if known or (words := code_words(error)) is None:
        return None
    return CodeError(words, "".join(traceback.format_exception(error)))


def code_words(error: BaseException) -> str | None:
    """Return file, line, function, agent and step of an error and its text on one line; None for fedbo and libraries."""
    if isinstance(error, ReturnError):
        return str(error)
    frames = [found for found in traceback.walk_tb(error.__traceback__) if _is_own(found[0])]
    if not frames:
        return None
    frame, line = frames[-1]  # the innermost
    where = f" ({step})" if (step := getattr(error, "fedbo_step", "")) else ""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return f"{PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}{where}: {words}"


def note_step(error: BaseException, agent: int, step: int) -> None:
    """Note the step that an agent was running when an error was raised."""
    error.fedbo_step = f"agent {agent}, step {step}"  # type: ignore[attr-defined]


def _is_own(frame: FrameType) -> bool:
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if top == "fedbo":
        return False
    file = frame.f_code.co_filename
    plugins = {plugin.place.partition(":")[0].partition(".")[0] for plugins in declared().values() for plugin in plugins}
    return is_admitted(top) or top in plugins or not file.startswith((*_library_folders(), "<frozen ", "<__array"))


@cache
def _library_folders() -> tuple[str, ...]:
    return tuple({path for name, path in sysconfig.get_paths().items() if name.endswith(("stdlib", "lib"))})


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
