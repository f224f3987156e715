"""Handwritten digits by writer: each agent is a person who tunes a small convolutional network on their own digits.

It replaces EMNIST by writer, the usual setting of federated learning, with smaller data: MNIST's digits, whose writers QMNIST
has found (Yadav and Bottou 2019). Half of the writers are employees of the US Census Bureau, half high-school students. The
agents are related but not equal: with the same setting, 50 writers have errors from 0 to 0.19.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require_agent
from fedbo.objectives.classifiers.convnet import Recipe, Seen, require_torch, share_wrong, trained
from fedbo.objectives.classifiers.qmnist import Handwriting, Labels, read
from fedbo.objectives.datasets.data import locate
from fedbo.objectives.space import inside

MIN_IMAGES = 100  # images that a writer has at least
MAX_AGENTS = 440  # writers of MNIST's training part who have so many
CLASSES = 10
PARAMETERS = (
    Parameter("learning_rate", 1e-4, 1.0, log=True),
    Parameter("l2", 1e-4, 1.0, log=True),
    Parameter("dropout", 0.0, 0.8),
)


@dataclass(frozen=True, eq=False)
class Writer:
    """One writer's digits, a half that trains and a half that validates; `seed` is that of all networks trained on them."""

    train: Seen
    validation: Seen
    epochs: int
    seed: int
    parameters: tuple[Parameter, ...] = field(default=PARAMETERS, repr=False)
    best_value: float | None = None

    @property
    def data_size(self) -> int:
        """Count the examples that train."""
        return len(self.train[1])

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return minus the validation error for x = (learning rate, l2, dropout); nothing is drawn from `rng`."""
        rate, l2, dropout = (float(value) for value in inside(self.parameters, x))
        return -share_wrong(trained(self.train, Recipe(rate, l2, dropout, self.epochs, self.seed)), self.validation)

    def score(self, x: Array) -> float | None:
        """Return None: an observation is already noise-free for a fixed seed."""
        return None


@dataclass(frozen=True)
class Writers(CountedFederation):
    """Handwritten digits by writer (QMNIST): tune learning rate, L2 and dropout of a network.

    It needs PyTorch: `pip install torch`.

    agents: the number of writers, census employees and students alternating, those with the most digits first; each has at
      least 100.
    epochs: passes of a network over its training half.
    """

    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    agents: Annotated[int, Ge(1), Le(MAX_AGENTS), f"this many writers have {MIN_IMAGES} digits or more"] = 50
    """First writers that take part, of 440."""
    epochs: Annotated[int, Ge(1), Le(1000)] = 10
    """Passes over the training half."""

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Writer:
        """Build one writer's objective, which does not depend on the streams; LibraryMissingError without PyTorch."""
        require_agent(agent, self.agents)
        require_torch("writers")
        found, order = _handwriting(locate("qmnist"))
        number = order[agent]
        rows = np.flatnonzero(found.writer == number)
        train, validation = halves(found.digit[rows], number)
        return Writer(_of(found, rows[train]), _of(found, rows[validation]), self.epochs, seed=number)


def writers_in_turn(found: Handwriting) -> tuple[int, ...]:
    """Return the writers with `MIN_IMAGES` images or more, the series alternating, in each those with the most images first.

    After the end of one series the other continues; of writers with equally many images the lower number is first.
    """
    numbers, first, counts = np.unique(found.writer, return_index=True, return_counts=True)
    ranked: dict[int, int] = {}
    places = []
    for i in np.argsort(-counts, kind="stable"):
        if counts[i] >= MIN_IMAGES:
            series = int(found.series[first[i]])
            place = ranked[series] = ranked.get(series, -1) + 1
            places.append((place, series, int(numbers[i])))
    return tuple(number for _, _, number in sorted(places))


def halves(digit: Labels, seed: int) -> tuple[Labels, Labels]:
    """Split rows into a training and a validation half, digit by digit: the two differ by at most one image of each."""
    rng = np.random.Generator(np.random.Philox(seed))
    dealt = np.concatenate([rng.permutation(np.flatnonzero(digit == one)) for one in range(CLASSES)])
    return dealt[0::2], dealt[1::2]


def _of(found: Handwriting, rows: Labels) -> Seen:
    return found.images[rows], found.digit[rows]


@lru_cache(maxsize=2)
def _handwriting(folder: Path) -> tuple[Handwriting, tuple[int, ...]]:
    found = read(folder, "train")
    return found, writers_in_turn(found)


FEDERATIONS = {"writers": Writers}
