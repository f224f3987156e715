"""Errors in code outside fedbo, such as a method or an objective of a user: where they were raised, on one line."""

from __future__ import annotations

import sysconfig
import traceback
from functools import cache
from pathlib import PurePath
from types import FrameType

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
    if (found := _last_own(error)) is None:
        return None
    frame, line = found
    where = f" ({step})" if (step := getattr(error, "fedbo_step", "")) else ""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return f"{PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}{where}: {words}"


def note_step(error: BaseException, agent: int, step: int) -> None:
    """Note the step that an agent was running when an error was raised."""
    error.fedbo_step = f"agent {agent}, step {step}"  # type: ignore[attr-defined]


def _last_own(error: BaseException) -> tuple[FrameType, int] | None:
    """Return the innermost frame of a traceback that is neither in fedbo nor in a library; None without one."""
    frames = [found for found in traceback.walk_tb(error.__traceback__) if _is_own(found[0])]
    return frames[-1] if frames else None


def _is_own(frame: FrameType) -> bool:
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if top == "fedbo":
        return False
    file = frame.f_code.co_filename
    return is_admitted(top) or top in _plugins() or not file.startswith((*_library_folders(), "<frozen ", "<__array"))


def _plugins() -> set[str]:
    """Return the packages of plug-ins, which are installed among libraries."""
    return {plugin.place.partition(":")[0].partition(".")[0] for plugins in declared().values() for plugin in plugins}


@cache
def _library_folders() -> tuple[str, ...]:
    return tuple({path for name, path in sysconfig.get_paths().items() if name.endswith(("stdlib", "lib"))})
