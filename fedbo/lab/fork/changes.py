"""Changes that a branch of a run may make: those to settings that nothing before its fork has used."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.storage.checkpoint import pack
from fedbo.algorithms.base import Private, Problem
from fedbo.coordinator.environment.faults import PROCESS_FAULTS, Preemption, set_times
from fedbo.coordinator.errors import ForkError
from fedbo.coordinator.runtime.actor import Run
from fedbo.execution.extension import why_not_extended
from fedbo.lab.fork.trunk import ForkPoint
from fedbo.study.document import LISTS, StudyError, one_line, parse_override
from fedbo.study.study import Study, load_study

HERE = "fork"  # in place of a time: when the run is forked
_ALLOWED = ("network", "timing", "availability", "exchange", "fault", "group", "algorithm", "budget", "evaluation", "privacy")
_FREE = ("hosting", "recovery", "study.name", "study.description")
# What has been used before anything happens, by the beginning of its dotted key, and for what.
_USED: dict[str, str] = {
    "objective": "it defines the agents' objectives before the first evaluation",
    "agents": "it defines initial points, histories and checkpoints",
    "study": "it defines all random draws and runs",
    "sweep": "it defines the runs",
    "cluster": "it defines the workers from the start",
    "record": "it defines what the events have from the start",
    "timing.clock": "the clock of a run cannot change",
    "network.link": "messages may already be queued on the link",
    "budget.pulls": "it is the horizon of the algorithm",
    "privacy.deltas": "earlier releases were charged at it",
    "privacy.secure": "earlier messages were protected by it",
    "evaluation.parallel": "evaluations already used it",
    "evaluation.prefetch": "evaluations already used it",
    "evaluation.wait": "evaluations already used it",
    "evaluation.resources": "it has already assigned workers",
    "evaluation.memory_limit": "it applies only in real time",
}
_OF_GROUP = ("evaluation", "speed", "decision", "latency", "bandwidth", "availability", "leaving", "from", "until")


class Way(NamedTuple):
    """The changes of a branch, and the one that others have in another way; "" without others."""

    changes: list[str]
    name: str


def ways_of(overrides: Sequence[str]) -> list[Way]:
    """Return the changes of each branch: one for each value of the key that is given several times; ForkError for two keys."""
    keys = [parse_override(text)[0] for text in overrides]
    several = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if len(several) > 1:
        raise ForkError(f"--set {several[1]}: only one key may have several values, and {several[0]} has; fork twice")
    if not several:
        return [Way([*overrides], "")]
    common = [text for key, text in zip(keys, overrides, strict=True) if key != several[0]]
    return [Way([*common, text], text) for key, text in zip(keys, overrides, strict=True) if key == several[0]]


def branch_study(before: Study, path: Path, overrides: Sequence[str], point: ForkPoint, trust: bool) -> Study:
    """Return the study of a branch; StudyError, in one line, if a change concerns settings used before the fork.

    The word "fork" in place of a time means the time of the fork.
    """
    given = [_at(text, point) for text in overrides]
    after = load_study(path, given, trust, derived=True)
    if given and after.document() == before.document():
        raise StudyError(
            f"--set {given[0]}: does not change the run; set another value, or remove --set for an unchanged branch"
        )
    for line in _wrong(before, after, point):
        raise StudyError(f"--set {line}")
    return after


def _at(text: str, point: ForkPoint) -> str:
    key, value = parse_override(text)
    if not _names_here(value):
        return text
    if point.time is None:
        raise StudyError(f'--set {key}: "{HERE}" stands for a time; set --at to a time, not an event')
    return f"{key}={_put(value, point.time)}"


def _names_here(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(value == HERE) or any(map(_names_here, inner))


def _put(value: Any, time: float) -> str:
    """Format a value as TOML, with the time in place of the word "fork"."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_put(item, time)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_put(item, time) for item in value) + "]"
    if value == HERE:
        return repr(float(time))
    return json.dumps(value) if isinstance(value, str) else one_line(value, width=10**6)


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the differences between two documents, by dotted key; tables of a list by their labels."""
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if not prefix and key in LISTS:
            names = [dict(zip(LISTS[key](tables or ()), tables or (), strict=True)) for tables in (old, new)]
            yield from changed_keys(names[0], names[1], f"{key}.")
        elif isinstance(old or {}, dict) and isinstance(new or {}, dict):
            yield from changed_keys(old or {}, new or {}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _wrong(before: Study, after: Study, point: ForkPoint) -> Iterator[str]:
    old, new = before.document(), after.document()
    for key in changed_keys(old, new):
        table = key.partition(".")[0]
        if key.startswith(_FREE):
            continue
        used = [use for start, use in _USED.items() if key == start or key.startswith((f"{start}.", f"{start}_"))]
        if used or table not in _ALLOWED:
            yield f"{key}: {(used or ['it cannot change after the start'])[-1]}; run a new study with the other value"
        elif key in before.sweep:
            yield f"{key}: is swept, so each cell has its own value; fork a run without that sweep"
        elif table == "group" and key.rpartition(".")[2] not in _OF_GROUP and not any(f".{name}." in key for name in _OF_GROUP):
            yield f"{key}: the members and initial settings of a group cannot change after the start; remove this change"
    if before.labels != after.labels:
        yield "algorithm: a fork keeps the algorithms of its run; run others in a new study"
    elif [one.name for one in before.group] != [one.name for one in after.group]:
        yield "group: the members of a group cannot change after the start; keep the groups, or change their other settings"
    yield from _faults(before, after, point)
    yield from _budget(before, after, point)


def _faults(before: Study, after: Study, point: ForkPoint) -> Iterator[str]:
    old, new = before.fault, after.fault
    if len(new) < len(old) or any(one.kind != other.kind for one, other in zip(old, new, strict=False)):
        yield "fault: the run's faults must keep their order; add new ones at the end, or set rate or probability = 0"
        return
    for place, table in enumerate(new):
        fault = table.make()
        if place < len(old) and old[place] == table:
            continue
        if isinstance(fault, Preemption):
            yield f"fault.{table.label}: preemptions are drawn at the start of a run; run a new study"
        elif (
            isinstance(fault, PROCESS_FAULTS)
            and point.time is not None
            and (first := min(set_times(fault), default=math.inf)) < point.time
        ):
            yield f'fault.{table.label}.at={first:g}: is before the fork at {point}; set a later time, or "{HERE}"'
        elif isinstance(fault, PROCESS_FAULTS) and fault.event is not None and fault.event <= (point.event or 0):
            yield f"fault.{table.label}.event={fault.event}: is before the fork at {point}; set a later event"


def _budget(before: Study, after: Study, point: ForkPoint) -> Iterator[str]:
    old, new = before.budget, after.budget
    if new.time is not None and point.time is not None and new.time <= point.time:
        yield f"budget.time={new.time:g}: is before the fork at {point}; set a later time"
    for key, counted in (("evaluations", "evaluations"), ("cost", "the time of evaluations")):
        if getattr(old, key) is None and getattr(new, key) is not None:
            yield f"budget.{key}: the run did not count {counted} before the fork; set budget.time or budget.iterations"
    if old.iterations != new.iterations:
        for table in before.algorithm:
            if why := why_not_extended(table):
                yield f"budget.iterations: {why}"


def check_run(old: Run, new: Run) -> None:
    """Check that a changed algorithm begins in the same state; ForkError if the changed setting affects that state."""
    problem = replace(new.task.problem, iterations=old.task.problem.iterations)  # which does not use it, or is refused
    if old.task.algorithm == new.task.algorithm and old.task.problem == problem:
        return
    if _beginnings(old.task.algorithm, old.task.problem, old) != _beginnings(new.task.algorithm, problem, new):
        words = f"algorithm.{new.key.algorithm}: this setting determines initial values or the message format"
        raise ForkError(f"--set {words}; run a new study with the other value")


def _beginnings(algorithm: Any, problem: Problem, run: Run) -> list[Any]:
    """Return an algorithm's initial states and its declarations."""
    agent = problem.targets[0]
    own = algorithm.agent_init(replace(problem, agent=agent), run.task.streams.of(agent).at(0))
    private = algorithm.mechanism(problem) if isinstance(algorithm, Private) else None
    declared = [algorithm.upload(problem), algorithm.download(problem), algorithm.queries, private, algorithm.sends(0)]
    return [pack(own), pack(algorithm.server_init(problem)), getattr(algorithm, "hides", None), *declared]
