"""One evaluation of an objective, in any process, and the text of its failure.

The text is a column of the tables, which are compared bit by bit. So it names no frames of fedbo, whose lines change, and no
folders, which differ between installations.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import PurePath
from types import FrameType
from typing import Any

import numpy as np

from fedbo.actors.storage.evaluations import NAN, Pulls
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import MultiFidelity, Objective, observe
from fedbo.objectives.outcome import Outcome, outcome_of
from fedbo.settings.shown import encodable

LONGEST = 20_000  # characters: some libraries put their data into an error, and every table would hold them
_NOTED = "_fedbo_failure_text"


def evaluate(
    objective: Objective, x: Array, streams: Streams, pulls: Pulls | None = None, fidelity: int | None = None
) -> Outcome:
    """Return the outcome of one observation, or of the mean of several pulls; at the largest fidelity unless one is set.

    A process that the objective forks ends when the objective returns or raises in it. Otherwise it would run the study too.
    """
    process = os.getpid()
    try:
        return _outcome(objective, x, streams, pulls, fidelity)
    finally:
        if os.getpid() != process:
            error = sys.exception()
            code = error.code if isinstance(error, SystemExit) else int(error is not None)
            os._exit(code if isinstance(code, int) else int(code is not None))


def _outcome(objective: Objective, x: Array, streams: Streams, pulls: Pulls | None, fidelity: int | None) -> Outcome:
    if fidelity is not None:
        assert isinstance(objective, MultiFidelity), "a study whose objectives declare no fidelity has no stopper"
        returned, score = objective.evaluate_at(x, fidelity, streams.rng("evaluation")), objective.score_at(x, fidelity)
        return outcome_of(returned, score, objective)
    if pulls is not None:
        return _mean(objective, x, streams, pulls)
    rng: Any = streams.rng("evaluation") if getattr(objective, "needs_rng", True) else None  # it takes microseconds
    return outcome_of(objective.evaluate(x, rng), objective.score(x), objective)


def _mean(objective: Objective, x: Array, streams: Streams, pulls: Pulls) -> Outcome:
    """Return the mean of several observations as an outcome. All draws of a point come from one stream."""
    seen = observe(objective, x, pulls.times, streams.rng("evaluation"))
    if not np.isfinite(seen).all():  # which clipping would hide
        return Outcome(NAN)
    score = objective.score(x)
    score = float(seen.mean()) if score is None else float(score)
    if pulls.noise:
        # The stream of the noise of single evaluations, so that one pull sees what one evaluation does.
        noise = streams.at(streams.step + 1).rng("added noise").standard_normal(pulls.times)
        seen = seen + np.sqrt(pulls.noise) * noise
    if pulls.clip is not None:
        seen = np.clip(seen, *pulls.clip)
    return Outcome(float(seen.mean()), score)


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
