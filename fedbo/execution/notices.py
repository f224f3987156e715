"""The notices to callbacks while a study runs: evaluations, events and rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedbo.actors.storage.evaluations import reason_of
from fedbo.actors.storage.rows import RunKey
from fedbo.coordinator.logged.table import LoggedEvent as LoggedEvent
from fedbo.objectives.typed_spaces.declared_space import in_words
from fedbo.settings.errors import EvaluationWarning, warn_caller
from fedbo.settings.logs import say
from fedbo.settings.own_code import ends_process
from fedbo.settings.shown import shown

NO_RUN = RunKey(0, "", 0)
METHODS = ("on_evaluation", "on_event", "on_round", "on_end")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: its agent, its number, the configuration, the native value or the error, and other metrics.

    - `started`, `finished`: in the study's unit of time, or seconds since the study's start.
    - `notes`: text, lists and other notes that it returned beside its metrics, by name.
    - `reports`: pairs of a step and the value reported for it.
    - `run`: key of its run.
    - `stopped`: "stopped" or "paused" where it ended before its last step.
    - `feasible`: whether it keeps the limits of its agent; None in a study that names no metrics.
    """

    agent: int
    number: int
    configuration: dict[str, Any]
    value: float | None
    error: str | None
    started: float
    finished: float
    metrics: dict[str, float] = field(default_factory=dict)
    reports: tuple[tuple[float, float], ...] = ()
    run: RunKey = NO_RUN
    stopped: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    feasible: bool | None = None


class ClosedRound(NamedTuple):
    """A closed round.

    - `run`: key of its run; `number`: its number; `time`: when it closed.
    - `arrived`: agents whose messages took effect in it.
    - `bytes_up`, `bytes_down`: bytes from and to the agents.
    """

    run: RunKey
    number: int
    time: float
    arrived: tuple[int, ...]
    bytes_up: int
    bytes_down: int


# A function of an evaluation, or an object with one of METHODS at least.
Callback = Callable[[Evaluation], object] | Any


def check_callback(found: Any) -> Any:
    """Return a callback; ValueError when it is not callable and has none of a callback's methods."""
    if not callable(found) and not any(callable(getattr(found, name, None)) for name in METHODS):
        methods = f"{', '.join(METHODS[:-1])} or {METHODS[-1]}"
        raise ValueError(f"must be a function of an evaluation, or an object with {methods}, not a {type(found).__name__}")
    return found


class CallbackCalls:
    """The calls of a study's callbacks: each method that a callback has, and a function for every evaluation.

    A callback that raises an exception is disabled, with a line on standard error, and the study continues. With `strict` the
    exception is raised instead.
    """

    def __init__(self, callbacks: Sequence[Callback], strict: bool = False) -> None:
        self._callbacks, self._strict = [check_callback(each) for each in callbacks], strict
        self._open: dict[RunKey, list[LoggedEvent]] = {}

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def evaluation(self, found: Evaluation) -> bool:
        """Pass an evaluation to the callbacks; return whether one of them returned True."""
        return self._call("on_evaluation", found)

    def event(self, found: LoggedEvent) -> None:
        """Pass an event to the callbacks, and the round that it closes."""
        self._call("on_event", found)
        key = RunKey(*found[:3])
        if found.kind == "arrived":
            self._open.setdefault(key, []).append(found)
        elif found.kind == "round":
            arrived = self._open.pop(key, [])
            senders = tuple(each.agent for each in arrived)
            up, down = sum(each.bytes or 0 for each in arrived), found.bytes or 0
            closed = ClosedRound(key, found.round or 0, found.time, arrived=senders, bytes_up=up, bytes_down=down)
            self._call("on_round", closed)

    def end(self) -> None:
        """Notify the callbacks that the study has ended or was interrupted."""
        self._call("on_end")

    def _call(self, method: str, *told: Any) -> bool:
        enough = False
        for each in list(self._callbacks):
            own = callable(each) and method == "on_evaluation"
            function = getattr(each, method, each if own else None)
            try:
                enough |= function is not None and function(*told) is True
            except BaseException as error:
                if self._strict or isinstance(error, KeyboardInterrupt) or ends_process(error):
                    raise
                self._callbacks.remove(each)
                name = getattr(each, "__qualname__", type(each).__name__)
                words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                say(shown(f"callback {name} raised {words}, and was disabled; the study continues"))
        return enough


class FirstFailure:
    """A callback that warns of the first failed evaluation, while the others continue."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, evaluation: Evaluation) -> None:
        """Warn once, with the reason."""
        if evaluation.error is not None and not self._warned:
            self._warned = True
            where = f"agent {evaluation.agent} at {in_words(evaluation.configuration)}"
            words = f"an evaluation failed, and the others continue: {where}: {reason_of(evaluation.error)}"
            warn_caller(words, EvaluationWarning)
