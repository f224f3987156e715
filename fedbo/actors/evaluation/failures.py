"""The text of a failed evaluation: the error, and where the user's code raised it.

The text is a column of the tables, which are compared bit by bit. So it names no frames of fedbo, whose lines change, and no
folders, which differ between installations.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath
from types import FrameType

from fedbo.settings.shown import encodable

LONGEST = 20_000  # characters: some libraries put their data into an error, and every table would hold them
_NOTED = "_fedbo_failure_text"


def failure_text(error: BaseException) -> str:
    """Return the type and text of an error on one line, and below it the user's part of the traceback."""
    if _NOTED in error.__dict__:
        return str(error.__dict__[_NOTED])
    try:
        summary = traceback.TracebackException.from_exception(error)
        _keep_user_frames(summary, error, set())
        below = "".join(summary.format())
    except Exception as another:  # such as a SyntaxError whose line is no text
        below = f"its traceback cannot be read: {type(another).__name__}\n"
    text = f"{type(error).__name__}: {text_of(error)}\n{below}"
    if (more := len(text) - LONGEST) > 0:
        text = f"{text[: LONGEST // 2]}\n... {more:,} characters are left out ...\n{text[-LONGEST // 2 :]}"
    return encodable(text)


def with_text(error: BaseException, failure: BaseException) -> BaseException:
    """Return an error that carries the text of a failure to another process, where tracebacks do not come along."""
    failure.__dict__.pop(_NOTED, None)  # of an earlier evaluation that raised the same object
    error.__dict__[_NOTED] = failure_text(failure)
    return error


def text_of(error: BaseException) -> str:
    """Return the text of an error, even if its `__str__` fails."""
    try:
        return f"sys.exit({error.code!r}) was called" if isinstance(error, SystemExit) else str(error)
    except Exception as another:
        return f"its text cannot be read: __str__ raised {type(another).__name__}"


def _keep_user_frames(summary: traceback.TracebackException, error: BaseException, seen: set[int]) -> None:
    """Remove fedbo's frames, and folders, from the traceback of an error and of its causes."""
    if id(error) in seen:
        return
    seen.add(id(error))
    walked = zip(summary.stack, traceback.walk_tb(error.__traceback__), strict=False)
    frames = [_shortened(kept, frame) for kept, (frame, _) in walked if not _is_ours(frame)]
    summary.stack = traceback.StackSummary.from_list(frames)
    for below, raised in ((summary.__cause__, error.__cause__), (summary.__context__, error.__context__)):
        if below is not None and raised is not None:
            _keep_user_frames(below, raised, seen)
    if isinstance(error, BaseExceptionGroup):
        for below, raised in zip(summary.exceptions or (), error.exceptions, strict=False):
            _keep_user_frames(below, raised, seen)


def _is_ours(frame: FrameType) -> bool:
    module = getattr(frame.f_globals.get("__spec__"), "name", None) or frame.f_globals.get("__name__", "")
    return str(module).partition(".")[0] == "fedbo"


def _shortened(kept: traceback.FrameSummary, frame: FrameType) -> traceback.FrameSummary:
    """Return a frame whose file is named relative to its package."""
    package = str(frame.f_globals.get("__package__") or "")
    depth = 1 + len(package.split(".")) if package else 1
    name = "/".join(PurePath(kept.filename).parts[-depth:])
    return traceback.FrameSummary(name, kept.lineno, kept.name, lookup_line=False, line=kept.line)
