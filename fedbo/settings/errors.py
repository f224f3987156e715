"""The base of all errors, and the errors of settings and arguments: which one is wrong, and the remedy."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from types import FrameType


class FedboError(Exception):
    """The base of all errors that fedbo raises on purpose; the message says what is wrong and what to do about it."""


class EvaluationWarning(RuntimeWarning):
    """Warns of evaluations that failed while a study or a tuning continued."""


def warn_caller(words: str, category: type[Warning]) -> None:
    """Warn at the line outside of fedbo that called it, however deep in fedbo the reason is found."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fedbo":
        level, frame = level + 1, frame.f_back
    warnings.warn(words, category, stacklevel=level)


class ArgumentError(FedboError, ValueError):
    """A wrong argument of a function: `<argument> = <value>: <what it must be>; <remedy>`."""


class SettingError(FedboError, ValueError):
    """A wrong setting: `key` is its name, and `remedy` says what would do.

    Its message is both, one after the other. What `came` instead, if given, is told in the message alone, before the `hint`:
    who shows the remedy beside the setting shows its value there already.
    """

    def __init__(self, key: str, needed: str, came: object = None, hint: str = "") -> None:
        super().__init__(key, needed, came, hint)
        self.key, self.remedy = key, f"{needed}; {hint}" if hint else needed

    def __str__(self) -> str:
        """Write name, what is needed, what came and the hint."""
        key, needed, came, hint = self.args
        return f"{key} {needed}{'' if came is None else f', not {came}'}{hint and f'; {hint}'}"


class UnknownChoice(SettingError):
    """A setting that is none of its choices; its message says so without repeating the setting's name."""

    def __init__(self, key: str, choice: str, known: Iterable[str]) -> None:
        super().__init__(key, unknown(key, choice, known))
        self.args = (key, choice, tuple(known))

    def __str__(self) -> str:
        """Say what there is."""
        return self.remedy


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that there is no such name, what was probably meant, and what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"no {kind} '{name}'{hint} there are: {', '.join(names) or 'none'}"
