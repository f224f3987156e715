"""The points from which `fedbo.tune` starts, as a file in which its study finds them."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.evaluated import Evaluated, evaluated
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.settings.errors import ArgumentError


def start_file(given: Any, space: str, agents: int, mode: str, folder: Path) -> Path:
    """Write what each agent starts from into a file named by what is in it, and give its path; ValueError.

    `given` is a source for all agents (see `fedbo.evaluated.evaluated`; of a run each takes what the agent of its number
    observed), or a dictionary with one for each of some agents.
    """
    read, text = read_space(space), io.StringIO()
    names = [parameter.name for parameter in read.parameters]
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*names, "value", "agent"])
    for number, points in _of_agents(given, space, agents, mode).items():
        for point in points:
            x = from_unit(read.parameters, read.encode(point.configuration)[None, :])[0]
            lines.writerow([*x.tolist(), point.value, number])
    content = text.getvalue()
    if content.count("\n") == 1:
        raise ArgumentError("start: has no point with a value; leave it out, or give some")
    path = folder / f"start-{hashlib.sha256(content.encode()).hexdigest()[:12]}.csv"
    atomic.write(path, lambda file: file.write(content.encode()), mode=0o600)
    return path


def _of_agents(given: Any, space: str, agents: int, mode: str) -> dict[int, list[Evaluated]]:
    """List the points of each agent."""
    if isinstance(given, Mapping):
        if wrong := [key for key in given if key not in range(agents)]:
            raise ArgumentError(f"start: has points for agent {wrong[0]!r}; there are agents 0 to {agents - 1}")
        return {number: evaluated(source, space, mode=mode) for number, source in given.items()}
    if isinstance(given, str | Path) and Path(given).is_dir():
        return {number: evaluated(given, space, agent=number) for number in range(agents)}
    return dict.fromkeys(range(agents), evaluated(given, space, mode=mode))
