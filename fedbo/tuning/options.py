"""The keyword arguments of `fedbo.tune`, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from fedbo.settings.signatures import Mode

if TYPE_CHECKING:
    from fedbo.execution.notices import Callback

Resources = Mapping[str, float]


class Options(TypedDict, total=False):
    """The keyword arguments of `fedbo.tune` except objective, space and number of agents; all have defaults."""

    algorithm: str | Mapping[str, Any]
    iterations: int
    initial: int
    metric: str
    mode: Mode
    metrics: Sequence[Mapping[str, Any]]
    parallel: int
    prefetch: int
    resources: Resources | Sequence[Resources]
    target: float
    evaluations: int
    seconds: float
    cost: float
    time_limit: float
    memory_limit: int
    retries: int
    failure: Literal["avoid", "drop", "stop"]
    seed: int
    name: str
    address: str
    out: str | Path
    resume: bool
    repeats: bool
    start: Any
    enqueue: Sequence[Mapping[str, Any]]
    steps: int
    stopping: str | Mapping[str, Any]
    callbacks: Sequence[Callback | str]
    study: Mapping[str, Any]


# Without a default here an option is None: not set. The algorithm's depends on the number of agents.
DEFAULTS: Options = {
    "iterations": 20,
    "initial": 3,
    "metric": "value",
    "mode": "max",
    "parallel": 1,
    "prefetch": 0,
    "retries": 0,
    "failure": "avoid",
    "seed": 0,
    "name": "tuning",
    "resume": False,
    "repeats": False,
    "callbacks": (),
}
