"""Evaluations that failed: a run in which all did is a failure, and the first one is worth a warning."""

from __future__ import annotations

import warnings

from fedbo.execution.notices import Evaluation
from fedbo.execution.runner import RunError
from fedbo.results.result import Result


class FirstFailure:
    """A callback that warns of the first failed evaluation, while the others continue."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, evaluation: Evaluation) -> None:
        """Warn once, with the reason."""
        if evaluation.error is not None and not self._warned:
            self._warned = True
            reason = evaluation.error.splitlines()[0]
            words = f"evaluation {evaluation.number} of agent {evaluation.agent} failed: {reason}"
            warnings.warn(f"{words}; later failures are listed by result.failures()", RuntimeWarning, stacklevel=2)


def succeeded(result: Result, warn: bool = True) -> Result:
    """Return the result of a run; RunError where all its evaluations failed. Warn where some did, once."""
    failed, first = result.failures()
    total = len(result.observations)
    words = f"{failed} of {total} evaluations failed; the first one: {first}"
    if failed and failed == total:
        raise RunError(f"{words}; all that was observed is in {result.directory}", result.directory)
    if failed and warn:
        warnings.warn(words, RuntimeWarning, stacklevel=3)
    return result
