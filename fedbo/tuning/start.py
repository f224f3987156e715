"""The points from which `fedbo.tune` starts, and those that it evaluates first, as files for its study."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.algorithms.streams import Streams
from fedbo.objectives.goals import Goals
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_spaces.declared_space import flattened, read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.arguments import Mode, wrong
from fedbo.settings.columns import RESERVED, heading_of
from fedbo.settings.errors import ArgumentError
from fedbo.tuning.evaluated import Evaluated, evaluated
from fedbo.tuning.metrics import goals_of, told_of


def start_file(
    given: Any, space: str, agents: int, mode: Mode, folder: Path, metrics: Sequence[Mapping[str, Any]] = ()
) -> Path:
    """Write the start points of each agent into a file named by its content, and return its path.

    `given` is a source for all agents (see `fedbo.tuning.evaluated.evaluated`), or a dictionary of sources by agent. From a run
    each agent takes the observations of the agent with its number. Raises ArgumentError for an invalid source.
    """
    read, text = read_space(space), io.StringIO()
    names = [parameter.name for parameter in read.parameters]
    lines = csv.writer(text, lineterminator="\n")
    goals = goals_of(metrics, mode)
    others = [] if goals is None else [name for name in goals.names if name != goals.own.name]
    mine = [heading_of(name, "param_", {*RESERVED, *others}) for name in names]
    lines.writerow([*mine, "value", "agent", *(heading_of(name, "metric_", {*RESERVED, *mine}) for name in others)])
    for number, points in _of_agents(given, space, (agents, mode, goals)).items():
        for point in points:
            x = from_unit(read.parameters, read.encode(point.configuration)[None, :])[0]
            value, told = told_of(point.value, goals)
            if value is not None:  # else it failed
                lines.writerow([*x.tolist(), value, number, *((told or {}).get(name) for name in others)])
    content = text.getvalue()
    if content.count("\n") == 1:
        raise ArgumentError("start: has no point with a value; add one, or remove start")
    return _written("start", content, folder)


def enqueued_file(given: Any, space: str, size: tuple[int, int, int], folder: Path) -> tuple[Path, int]:
    """Write the initial points of all agents, the `given` configurations first; return the file and their number.

    `size` is the number of agents, of initial points and the seed. The points that follow are the same
    random ones as without these.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence) or not len(given):
        raise wrong("enqueue", given, "must be a list of configurations, for example [{'rate': 0.1}]")
    (agents, initial, seed), read = size, read_space(space)
    first = np.array([_point(read, configuration, place) for place, configuration in enumerate(given)])
    count, text = max(initial, len(first)), io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["agent", "replicate", "point", *(f"x{axis}" for axis in range(1, len(read.parameters) + 1))])
    for agent in range(agents):
        streams = Streams(seed).of(agent).at(0)
        uniform = streams.rng("initial points").random((count, len(read.parameters)))
        points = read.spread(np.concatenate([first, uniform[len(first) :]]), streams.rng("instead of a repeated point"))
        for place, point in enumerate(points.tolist()):
            lines.writerow([agent, 0, place, *point])
    return _written("enqueued", text.getvalue(), folder), count


def _point(space: Space, configuration: Any, place: int) -> Any:
    called = f"enqueue[{place}]"
    if not isinstance(configuration, Mapping):
        raise wrong(called, configuration, "must be a dictionary with a value for each parameter")
    try:
        return space.encode(flattened(configuration))
    except ValueError as error:
        raise ArgumentError(f"{called}: {error}") from None


def _written(name: str, content: str, folder: Path) -> Path:
    """Write a file named by its content, and return its path."""
    path = folder / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}.csv"
    atomic.write(path, lambda file: file.write(content.encode()), mode=0o600)
    return path


def _of_agents(given: Any, space: str, terms: tuple[int, Mode, Goals | None]) -> dict[int, list[Evaluated]]:
    """Return the points of each agent; `terms` are the number of agents, the mode and the goals."""
    agents, mode, goals = terms
    if isinstance(given, Mapping):
        if wrong := [key for key in given if key not in range(agents)]:
            raise ArgumentError(f"start: has points for agent {wrong[0]!r}; use agents 0 to {agents - 1}")
        return {number: evaluated(source, space, mode=mode, goals=goals) for number, source in given.items()}
    if isinstance(given, str | Path) and Path(given).is_dir():
        return {number: evaluated(given, space, agent=number, goals=goals) for number in range(agents)}
    return dict.fromkeys(range(agents), evaluated(given, space, mode=mode, goals=goals))
