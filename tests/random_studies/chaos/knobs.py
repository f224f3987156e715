"""Knobs: constants of the package on which no table depends, which random studies turn as far as they go.

The sizes of buffers, the times between snapshots and the like are chosen for speed. A run gives the same bytes whatever they
are, also where a resumed run has other ones than the run that was killed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# The values that are drawn of each constant; its default is one of them now and then.
KNOBS: dict[str, tuple[float, ...]] = {
    "fedbo.actors.channel._CHUNK": (1, 7, 4096),
    "fedbo.actors.channel._PATIENCE": (1, 50),
    "fedbo.actors.evaluation.step.MIN_BATCH": (1, 2, 1000),
    "fedbo.actors.host_storage._PART": (1, 2, 3),
    "fedbo.actors.hosts._ENOUGH": (0.0, 10.0),
    "fedbo.actors.hosts._MANY": (1, 1000),
    "fedbo.actors.hosts._MOST": (1, 2, 3),
    "fedbo.fast.accelerate._FEWEST": (1, 100),
    "fedbo.fast.population._MOST": (1, 2, 3),
    "fedbo.actors.remote._AHEAD": (1, 2),
    "fedbo.actors.remote._COMMITS": (1, 2, 5),
    "fedbo.actors.remote._MOST": (1, 2, 3),
    "fedbo.actors.remote._MOST_BY_RAY": (1, 2, 3),
    "fedbo.actors.storage.encoding.COPIED": (0, 8, 2**20),
    "fedbo.actors.storage.encoding.PIECE": (1, 64),
    "fedbo.actors.storage.evaluation_log._DELAY": (0.0, 1e9),
    "fedbo.coordinator.environment.duration_blocks._HELD": (1, 2),
    "fedbo.algorithms.messages._FEW": (0, 1, 1000),
    "fedbo.coordinator.kernel.engine.PROGRESS_INTERVAL": (0.0, 0.001, 1e9),
    "fedbo.coordinator.kernel.engine.PROGRESS_REST": (0.0, 1e9),
    "fedbo.coordinator.kernel.engine._IDLE": (50, 20_000),
    "fedbo.coordinator.logged.table._AT_ONCE": (1, 7),
    "fedbo.fast.plain_agents._ARRIVED": (1, 2, 30),
    "fedbo.fast.plain_agents._BLOCKS": (1,),
    "fedbo.fast.windows._ENDS": (1, 3),
    "fedbo.fast.windows._FEW": (0, 1000),
    "fedbo.fast.windows._MOST": (1, 2, 10),
    "fedbo.coordinator.runtime.snapshots._CHECK": (0.0, 1.0),
    "fedbo.coordinator.runtime.snapshots._LINES": (1, 10, 100),
    "fedbo.coordinator.runtime.snapshots._MANY": (0, 1),
    "fedbo.coordinator.runtime.snapshots._MOST_LINES": (1,),
    "fedbo.coordinator.runtime.snapshots._REST": (0.0, 1e9),
    "fedbo.coordinator.runtime.snapshots._WHOLE": (1, 2, 3),
    "fedbo.execution.jobs._CHUNK": (1, 2),
}
TURNED = 0.3  # the probability of each
Knobs = Mapping[str, float]
NONE_TURNED: Knobs = {}


def draw_knobs(*key: object) -> Knobs:
    """Return the knobs that are turned for this key, and their values; none in one case of four."""
    rng = random.Random("knobs " + " ".join(map(str, key)))
    if rng.random() < 0.25:
        return {}
    return {name: rng.choice(values) for name, values in KNOBS.items() if rng.random() < TURNED}


def turn(knobs: Knobs) -> None:
    """Set knobs in this process for good."""
    for name, value in knobs.items():
        module, _, constant = name.rpartition(".")
        setattr(import_module(module), constant, value)


@contextmanager
def turned(knobs: Knobs) -> Iterator[None]:
    """Set knobs in this process, and set them back in the end."""
    before: dict[str, Any] = {}
    for name in knobs:
        module, _, constant = name.rpartition(".")
        before[name] = getattr(import_module(module), constant)
    turn(knobs)
    try:
        yield
    finally:
        turn(before)


def in_words(knobs: Knobs) -> str:
    """Return what is turned in words that can be read in one line."""
    return ", ".join(f"{name.removeprefix('fedbo.')} = {value:g}" for name, value in knobs.items()) or "no knobs turned"
