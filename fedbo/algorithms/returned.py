"""Calls of a method's functions whose results are checked: an error names file, class, function, agent and step.

Wrong results are errors of the method's author. Without these checks they would surface elsewhere, or lose messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import (
    ORIGINS,
    ORIGINS_IN_ORDER,
    Array,
    Decision,
    Declaration,
    Field,
    Mechanism,
    Payload,
    Private,
    Problem,
    StateColumns,
)
from fedbo.algorithms.messages import are_sound, checker, plain_fields
from fedbo.algorithms.streams import Numbers
from fedbo.settings.own_code import ReturnError, note_step

_FEW = 64  # coordinates that are compared in less time as a list
# The first part of a pair that a function returns, before the state: its types, and its name.
_PAIRS: dict[str, tuple[Any, str]] = {
    "ask": (Decision, "Decision"),
    "outbox": ((dict, type(None)), "message or None"),
    "broadcast": (dict, "answers by recipient"),
    "answer_each": (tuple, "AnswerColumns"),
}
_OF_AGENTS = ("ask", "tell", "tell_outcomes", "outbox", "pending", "avoiding", "costing")  # others are of the coordinator
_PLAIN = (bool, int, float, complex, str, bytes, np.generic)  # states that anything may replace


_FLAG, _TEXT = ((bool, np.bool_), "True or False"), (str, "a text")
_SAYS: dict[str, tuple[Any, str]] = {
    "queries": ((int, np.integer, type(None)), "a whole number, or None where it varies"),
    "phases": ((int, np.integer), "a whole number"),
    **dict.fromkeys(("sends", "hides", "needs_costs", "is_joint", "tells_usefulness"), _FLAG),
    **dict.fromkeys(("handles", "horizon_use", "reveals"), _TEXT),
}
_PROPERTIES = ("queries", "hides", "needs_costs", "is_joint", "tells_usefulness", "horizon_use", "reveals")
_COLUMNS = ("grow", "state", "put", "start", "ask", "tell", "outbox", "turn", "save", "load")


class Steps(NamedTuple):
    """The `agents (k,)` of a block and their `steps (k,)`."""

    agents: Numbers
    steps: Numbers


def wrong(owner: object, function: str, words: str) -> ReturnError:
    """Return the error of a function of `owner`, a method or its columns, with the place where it is defined."""
    kind = type(owner)
    code = getattr(inspect.unwrap(getattr(kind, function, kind)), "__code__", None)
    place = f"{PurePath(code.co_filename).name}:{code.co_firstlineno}: " if code is not None else ""
    return ReturnError(f"{place}{kind.__name__}.{function}", words)


def updated(method: object, function: str, state: Any, *given: Any) -> Any:
    """Call a function that returns the next state alone, and return that."""
    found = _called(method, function, state, given)
    if type(found) is not type(state) and not _replaces(found, state):
        raise wrong(method, function, f"returned {_shown(found)}; it must return the next state{_like(state)}")
    return found


def pair(method: object, function: str, state: Any, *given: Any) -> tuple[Any, Any]:
    """Call a function that returns a pair, whose second part is the next state, and return that."""
    found = _called(method, function, state, given)
    kinds, named = _PAIRS[function]
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], kinds)):
        raise wrong(method, function, f"returned {_shown(found)}; it must return ({named}, state)")
    if type(found[1]) is not type(state) and not _replaces(found[1], state):
        words = f"returned {_shown(found[1])} as its state; it must return ({named}, state){_like(state)}"
        raise wrong(method, function, words)
    return found


def usefulness_of(method: object, state: Any, agents: Numbers) -> Array:
    """Return how useful a method finds the messages of `agents (k,)`, as `(k,)`."""
    found = _called(method, "usefulness", state, ())
    if np.ndim(found) != 1 or len(found) <= agents.max(initial=0) or np.asarray(found).dtype.kind not in "fiu":
        raise wrong(method, "usefulness", f"returned {_shown(found)}; it must return a number for each agent (N,)")
    return np.asarray(found, dtype=np.float64)[agents]


def _called(method: object, function: str, state: Any, given: tuple[Any, ...]) -> Any:
    """Call a function of a method; where it fails on a state that is None, the error names the function that made it."""
    try:
        return getattr(method, function)(state, *given)
    except (AttributeError, TypeError) as error:
        if state is not None or "NoneType" not in str(error):
            raise
        first = "agent_init" if function in _OF_AGENTS else "server_init"
        words = f"returned None, on which {function} fails ({error}); it must return the first state"
        raise wrong(method, first, words) from error


def asked(method: Any, state: Any, inbox: Any, streams: Any, dim: int) -> tuple[Decision, Any]:
    """Return an agent's decision of points in the unit cube of this dimension, and its state."""
    decision, own = pair(method, "ask", state, inbox, streams)
    if words := _fault_of(decision, dim, method.queries):
        raise wrong(method, "ask", f"returned a Decision whose {words}")
    return decision, own


def _fault_of(decision: Decision, dim: int, queries: int | None) -> str:
    """Return what is wrong with a decision; empty where nothing is."""
    x, pulls = decision.x, decision.pulls
    if words := fault_of_points(x, dim):
        return words
    if queries is not None and len(x) != queries:
        return f"x has {len(x)} points, but the method declares queries = {queries}; return so many, or declare queries = None"
    if decision.origin not in ORIGINS:
        return f"origin is {decision.origin!r}; use one of {', '.join(sorted(ORIGINS))}, and add details in note"
    if pulls is not None and queries is not None:
        return "points have pulls, so that their number varies; declare queries = None"
    if pulls is not None and (
        type(pulls) is not np.ndarray or pulls.shape != (len(x),) or pulls.dtype.kind != "i" or (pulls < 1).any()
    ):
        return f"pulls are {_shown(pulls)}; they must be one whole number of at least 1 for each of {len(x)} points"
    return ""


def fault_of_points(x: Any, dim: int) -> str:
    """Return what is wrong with points `(q, d)` of the unit cube; empty where nothing is."""
    if type(x) is not np.ndarray or x.ndim != 2 or x.shape[1] != dim or x.dtype.kind not in "fiu":
        return f"x is {_shown(x)}; it must be an array (q, {dim})"
    if x.size <= _FEW:
        inside = all([0.0 <= number <= 1.0 for row in x.tolist() for number in row])
    else:
        inside = bool(x.min() >= 0.0 and x.max() <= 1.0)
    if inside:
        return ""
    place, axis = np.argwhere(~((x >= 0.0) & (x <= 1.0)))[0]
    return f"x[{place}, {axis}] is {x[place, axis]}; points are in the unit cube, in [0, 1]"


def initial(method: Any, problem: Problem, uniform: Array) -> Array:
    """Return the initial points of an agent, made from `uniform` ones."""
    points: Array = method.initial_points(problem, uniform)
    if words := fault_of_points(points, problem.dim):
        error = wrong(method, "initial_points", f"returned points whose {words}")
        note_step(error, problem.agent, 0)
        raise error
    return points


def outgoing(method: Any, state: Any, streams: Any, problem: Problem) -> tuple[Payload | None, Any]:
    """Return the message of an agent, which is as its `upload` declares and shares no array with it, and its state."""
    payload, own = pair(method, "outbox", state, streams)
    if payload is None:
        return None, own
    check_message(method, "outbox", payload, method.upload(problem))
    return {name: array.copy() for name, array in payload.items()}, own


def check_message(method: Any, function: str, payload: object, declared: Declaration | None) -> None:
    """Raise ReturnError where a message is not as declared."""
    if words := "no messages are declared" if declared is None else _checker(tuple(declared.items()))(payload):
        raise wrong_message(method, function, words, declared)


def wrong_message(method: Any, function: str, words: str, declared: Declaration | None, where: str = "") -> ReturnError:
    """Return the error of a message or an answer that is not as declared; `where` names the recipient."""
    declares = ", ".join(f"'{name}' {field.shape} {field.dtype}" for name, field in (declared or {}).items())
    what, by = ("a message", "upload") if function == "outbox" else ("an answer", "download")
    error = wrong(method, function, f"returned {what} unlike its declaration: {words}; {by} declares {declares or 'nothing'}")
    if where:
        error.fedbo_step = where
    return error


@lru_cache(maxsize=64)
def _checker(declared: tuple[tuple[str, Field], ...]) -> Any:
    """Return the check of what does not depend on rounding, which alone may make a matrix indefinite or a number too large."""
    return checker(_apart_from_rounding(dict(declared)))


def _apart_from_rounding(declared: Declaration) -> Declaration:
    return {name: replace(field, positive=False) if field.positive else field for name, field in declared.items()}


class CheckedColumns:
    """Calls of the columns of a method that check each block of results as a whole."""

    def __init__(self, method: Any, states: StateColumns, problem: Problem) -> None:
        self._states, self._dim, self._queries = states, problem.dim, int(method.queries)
        self._declared = method.upload(problem)
        self._fields = plain_fields(_apart_from_rounding(self._declared or {}))

    def ask(self, slots: Numbers, streams: Any, answers: Any, steps: Steps) -> tuple[Array, npt.NDArray[np.int8]]:
        """Return the points of all agents, and the number of each one's origin."""
        found, count = self._states.ask(slots, streams, answers), len(slots) * self._queries
        if not (isinstance(found, tuple) and len(found) == 2):
            raise self._wrong("ask", f"returned {_shown(found)}; it must return (points, origins)", steps)
        x, origins = found
        if words := fault_of_points(x, self._dim):
            place = 0
            if type(x) is np.ndarray and x.shape == (count, self._dim):
                place = int(np.argmin(((x >= 0.0) & (x <= 1.0)).all(axis=1))) // self._queries
            raise self._wrong("ask", f"returned points whose {words}", steps, place)
        if len(x) != count:
            raise self._wrong("ask", f"returned {len(x)} points for {len(slots)} agents; it must return {count}", steps)
        if type(origins) is not np.ndarray or origins.dtype.kind != "i" or origins.shape != (count,):
            raise self._wrong("ask", f"returned {_shown(origins)} as origins; it must return an array ({count},)", steps)
        if origins.size and not 0 <= origins.min() <= origins.max() < len(ORIGINS_IN_ORDER):
            raise self._wrong("ask", f"returned an origin outside 0 to {len(ORIGINS_IN_ORDER) - 1}", steps)
        return x, origins

    def outbox(self, slots: Numbers, streams: Any, steps: Steps) -> Any:
        """Return the arrays of all messages, or None."""
        found: Any = self._states.outbox(slots, streams)
        if found is None or (type(found) is dict and self._are_sound(found, len(slots))):
            return found
        each = found.values() if type(found) is dict else ()
        if not found or any(type(array) is not np.ndarray or array.shape[:1] != slots.shape for array in each) or not each:
            words = f"returned {_shown(found)}; it must return an array ({len(slots)}, ...) for each name, or None"
            raise self._wrong("outbox", words, steps)
        for place in range(len(slots)):
            try:
                check_message(self._states, "outbox", {name: array[place] for name, array in found.items()}, self._declared)
            except ReturnError as error:
                note_step(error, int(steps.agents[place]), int(steps.steps[place]))
                raise
        return found

    def _are_sound(self, found: Mapping[str, Any], count: int) -> bool:
        arrays = all(type(array) is np.ndarray and array.shape[:1] == (count,) for array in found.values())
        return arrays and self._declared is not None and are_sound(found, self._fields)

    def _wrong(self, function: str, words: str, steps: Steps, place: int = 0) -> ReturnError:
        error = wrong(self._states, function, words)
        note_step(error, int(steps.agents[place]), int(steps.steps[place]))
        return error


def columns_of(method: Any, problem: Problem, streams: Any) -> StateColumns | None:
    """Return the empty columns of a method; None where these settings have none."""
    found: StateColumns | None = method.columns(problem, streams)
    if found is not None and not all(callable(getattr(found, name, None)) for name in _COLUMNS):
        raise wrong(method, "columns", f"returned {_shown(found)}; it must return StateColumns or None")
    return found


def check_declarations(method: Any, problem: Problem) -> None:
    """Raise ReturnError where what a method says of itself has the wrong type."""
    found = [("sends", method.sends(step)) for step in (0, 1, 2)]
    found += [(name, getattr(method, name)(problem)) for name in ("handles", "phases") if hasattr(method, name)]
    found += [(name, getattr(method, name)) for name in _PROPERTIES if hasattr(method, name)]
    for name, value in found:
        kinds, must = _SAYS[name]
        if not isinstance(value, kinds):
            raise wrong(method, name, f"{'is' if name in _PROPERTIES else 'returned'} {_shown(value)}; it must be {must}")
    for name in ("upload", "download"):
        _check_declaration(method, name, getattr(method, name)(problem))
    if isinstance(method, Private) and not isinstance(made := method.mechanism(problem), Mechanism):
        raise wrong(method, "mechanism", f"returned {_shown(made)}; it must return a Mechanism")


def _check_declaration(method: Any, name: str, found: Any) -> None:
    """Raise ReturnError unless this is None or declares fields with shapes and types."""
    must = "it must return a Field for each name, or None"
    if found is not None and not isinstance(found, Mapping):
        raise wrong(method, name, f"returned {_shown(found)}; {must}")
    for key, field in (found or {}).items():
        if not (isinstance(key, str) and isinstance(field, Field)):
            raise wrong(method, name, f"returned {_shown(field)} for {key!r}; {must}")
        shape: Any = field.shape
        if type(shape) is not tuple or not all(size is None or (isinstance(size, int) and size >= 0) for size in shape):
            raise wrong(method, name, f"returned the shape {shape!r} for {key!r}; it must be a tuple, such as (3,)")


def _replaces(found: Any, state: Any) -> bool:
    """Return whether this may be the state after another one: nothing, a number, a tuple or an array replaces only its like."""
    return state is None or isinstance(state, _PLAIN) or type(found).__module__ not in ("builtins", "numpy")


def _like(state: Any) -> str:
    kind = type(state)
    return f", a {kind.__name__} as before" if kind.__module__ != "builtins" else ""


def _shown(found: Any) -> str:
    """Return a result in few words."""
    if isinstance(found, np.ndarray):
        return f"an array {found.shape} of {found.dtype}"
    if found is None or isinstance(found, bool | int | float | np.generic | str):
        return repr(found)[:60]
    if type(found) is tuple:
        return f"a tuple of {len(found)}: ({', '.join('None' if one is None else type(one).__name__ for one in found[:5])})"
    return f"a {type(found).__name__}"
