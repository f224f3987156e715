"""The base of all errors, and the errors of settings and arguments, which name the invalid one and the remedy."""

from __future__ import annotations

import difflib
import logging
import sys
import warnings
from collections.abc import Iterable
from types import FrameType

from fedbo.settings.logs import record

_MANY = 30  # names, of which an error leaves out controls
# What the plug-ins in fedbo's own repository have, by its kind, for the error where they are not installed.
_IN_PLUGINS = {
    "algorithm": {
        "fedbo-rivals": "consensus dp_guide dp_guide_noise fed_gp flora fmtbo guide guide_alone guide_centre guide_noise "
        "guide_shuffled quantile_transfer rgpe taf"
    },
    "attribute": {"fedbo-hunt": "Hunt hunt", "fedbo-leak": "Leak leak", "fedbo-tables": "tabulate"},
    "command": {"fedbo-hunt": "hunt", "fedbo-leak": "leak", "fedbo-papers": "reproduce", "fedbo-tables": "tabulate"},
    "objective": {"fedbo-tables": "tabulated"},
}
_CONTROLS = ("_centre", "_noise", "_shuffled", "_uniform")  # how the names of controls of an algorithm end


class FedboError(Exception):
    """The base of all errors that fedbo raises deliberately; the message names the fault and the remedy."""


class EvaluationWarning(RuntimeWarning):
    """Warns of evaluations that failed while a study or a tuning continued."""


def warn_caller(words: str, category: type[Warning]) -> None:
    """Issue a warning at the line outside of fedbo that called it, however deep in fedbo the reason is, and record it."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fedbo":
        level, frame = level + 1, frame.f_back
    record(words, logging.WARNING, sys.stderr)
    warnings.warn(words, category, stacklevel=level)


class ArgumentError(FedboError, ValueError):
    """An invalid argument of a function: `<argument> = <value>: <what it must be>; <remedy>`."""


class SettingError(FedboError, ValueError):
    """An invalid setting: `path` locates it, and `remedy` states the fault and what to do.

    A line of a study shows the setting's value before the remedy. The error's own message shows `value` between `needed` and
    `hint`, or is `message`. Errors with the same path and remedy are equal.
    """

    def __init__(
        self, path: str | tuple[str | int, ...], needed: str, value: object = None, hint: str = "", message: str = ""
    ) -> None:
        super().__init__(path, needed, value, hint, message)
        self.path = (path,) if isinstance(path, str) else tuple(path)
        self.needed, self.value, self.hint, self.message = needed, value, hint, message
        self.remedy = f"{needed}; {hint}" if hint else needed

    def __str__(self) -> str:
        """Return the path, the requirement, the value and the hint."""
        came = "" if self.value is None else f", not {self.value}"
        words = f"{'.'.join(map(str, self.path))} {self.needed}{came}{self.hint and f'; {self.hint}'}"
        return self.message or words.lstrip()

    def __eq__(self, other: object) -> bool:
        """Compare path and remedy."""
        return isinstance(other, SettingError) and (self.path, self.remedy) == (other.path, other.remedy)

    def __hash__(self) -> int:
        """Hash path and remedy."""
        return hash((self.path, self.remedy))


def invalid(key: str, value: object, remedy: str) -> SettingError:
    """Return the error of a value that its setting does not accept: `<key> = <value> is invalid: <remedy>`."""
    return SettingError(key, "is invalid", value, remedy, f"{key} = {value!r} is invalid: {remedy}")


def unknown_choice(key: str, choice: str, known: Iterable[str]) -> SettingError:
    """Return the error of a value that is not among the choices of its setting."""
    words = unknown(key, choice, known)
    return SettingError(key, words, choice, message=words)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return an error for an unknown name, with the closest known name and all of them, of many without controls.

    A name that a plug-in of fedbo's own repository has is answered with the name of this plug-in.
    """
    if lacking := in_plugin(kind, name):
        return lacking
    names = sorted(known)
    near = closest(name, names)
    hint = f"; did you mean '{near}'?" if near else ";"
    if len(names) > _MANY and any(each.endswith(_CONTROLS) for each in names):
        names = [*(each for each in names if not each.endswith(_CONTROLS)), "and controls of them (`fedbo list`)"]
    return f"no {kind} '{name}'{hint} available: {', '.join(names) or 'none'}"


def in_plugin(kind: str, name: str) -> str:
    """Return the error of a name that a plug-in has which is not installed; empty if none has it."""
    plugins = (plugin for plugin, names in _IN_PLUGINS.get(kind, {}).items() if name in names.split())
    remedy = "which is not installed; install it in a clone of fedbo: pip install --no-deps plugins"
    return next((f"{kind} '{name}' is in the plug-in {each}, {remedy}/{each.removeprefix('fedbo-')}" for each in plugins), "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like one, whatever the case of their letters; None where none is like it."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return names[near[0]] if near else None
