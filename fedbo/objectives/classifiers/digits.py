"""Handwritten digits: agents that hold few, skewed, partly mislabelled images tune a support vector machine.

No file is needed: scikit-learn ships the images (1,797 of 8 x 8 pixels; Alpaydin and Kaynak 1998). Four properties make it a
benchmark rather than a plateau, measured over 30 agents:

- *Wrong labels* make a large C harmful, so that the good region is a narrow valley along C gamma = constant instead of a
  quarter of the box.
- *Contrast* moves that valley from agent to agent (in gamma, by its square), so that the agents are related but not equal.
- *Label skew* gives each agent different classes and hence a different level.
- Three half splits make 90 validations of 60 images, so that an error moves in steps of 0.011.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le, Lt

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require, require_agent
from fedbo.objectives.classifiers.partitions import PARTITIONS, label_skew, partition
from fedbo.objectives.space import inside
from fedbo.settings.ranges import OneOf, check

Indices = npt.NDArray[np.int64]

CLASSES = 10
MAX_AGENTS = 100
PARAMETERS = (Parameter("C", 1e-1, 1e4, log=True), Parameter("gamma", 1e-4, 1e1, log=True))


@cache
def digit_images() -> tuple[Array, Indices]:
    """Return the images `(1797, 64)`, with pixels from 0 to 16, and their labels `(1797,)`."""
    from sklearn.datasets import load_digits

    images, label = load_digits(return_X_y=True)
    return images, label.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """One split of an agent's images: rows that train with the labels they were given, rows that validate."""

    train: Indices
    given: Indices
    validate: Indices


@dataclass(frozen=True, eq=False)
class DigitsAgent:
    """One agent's images `(n, 64)`, their true labels `(n,)`, and the splits on which a machine is judged."""

    images: Array
    label: Indices
    splits: tuple[Split, ...]
    parameters: tuple[Parameter, ...] = field(default=PARAMETERS, repr=False)
    best_value: float | None = None

    @property
    def data_size(self) -> int:
        """Count the examples that train."""
        return max(len(split.train) for split in self.splits)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return minus the mean validation error over the splits for x = (C, gamma); nothing is drawn."""
        from sklearn import config_context  # not imported where nothing is evaluated: it takes half a second
        from sklearn.svm import SVC

        c, gamma = inside(self.parameters, x)
        # the input was checked once, when it was cut; checking it at every fit would take a third of the time
        with config_context(assume_finite=True, skip_parameter_validation=True):
            wrong = sum(self._wrong(SVC(C=c, gamma=gamma), split) for split in self.splits)
        return -wrong / sum(len(split.validate) for split in self.splits)

    def score(self, x: Array) -> float | None:
        """Return None: an observation is already noise-free."""
        return None

    def _wrong(self, machine: Any, split: Split) -> int:
        guess = machine.fit(self.images[split.train], split.given).predict(self.images[split.validate])
        return int(np.count_nonzero(guess != self.label[split.validate]))


@dataclass(frozen=True)
class Digits(CountedFederation):
    """Scikit-learn's digits, split among agents: tune the C and gamma of a support vector machine.

    `agents` share the 1,797 images, each used exactly once. The `partition` is "dirichlet", with the concentration `alpha` of
    an agent's classes: small is skewed (Hsu et al. 2019, Sec. 3); "iid"; "classes", so many of them for every agent; or
    "quantity", where alpha is the concentration of the numbers of images. `mislabelled` is the share of training labels that
    are exchanged among themselves.
    `contrast` is the standard deviation of the logarithm of an agent's pixel scale. `splits` counts the half splits;
    an evaluation fits so many machines.
    """

    random_per_replicate: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    agents: Annotated[int, Ge(1), Le(MAX_AGENTS), "more agents would have too few images each"] = 30
    """Number of agents that share the images."""
    alpha: Annotated[float, Ge(0.01), Le(1e6), "0.01 means one class per agent, 1e6 means no skew"] = 0.3
    """Dirichlet concentration: smaller values give more skew."""
    mislabelled: Annotated[float, Ge(0.0), Lt(1.0)] = 0.2
    """Share of training labels that are permuted."""
    contrast: Annotated[float, Ge(0.0), Le(2.0)] = 0.3
    """Standard deviation of the logarithm of an agent's pixel scale."""
    splits: Annotated[int, Ge(1), Le(100)] = 3
    """Half splits on which a machine is judged."""
    partition: Annotated[str, OneOf(PARTITIONS)] = "dirichlet"
    """How images are split among agents."""
    classes: Annotated[int, Ge(2), Le(CLASSES)] = 2
    """With classes: digits that every agent has."""

    def __post_init__(self) -> None:
        check(self)
        enough = self.partition != "classes" or self.agents * self.classes >= CLASSES
        require(enough, "classes", self.classes, f"{self.agents} agents do not cover all {CLASSES} classes; increase it")

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> DigitsAgent:
        """Build one agent's objective.

        The images are dealt to all agents at once; contrast, splits and wrong labels are the agent's.
        """
        require_agent(agent, self.agents)
        rows = self._parts(int(shared_rng.integers(2**63)))[agent]
        images, label = digit_images()
        scale = np.exp(self.contrast * agent_rng.standard_normal()) / 16.0  # pixels run from 0 to 16
        splits = tuple(_split(label[rows], self.mislabelled, agent_rng) for _ in range(self.splits))
        return DigitsAgent(images[rows] * scale, label[rows], splits)

    def _parts(self, seed: int) -> tuple[Indices, ...]:
        if self.partition == "dirichlet":
            return split_digits(self.agents, self.alpha, seed)
        return partition_digits(self.partition, self.agents, self.classes if self.partition == "classes" else self.alpha, seed)


@lru_cache(maxsize=64)
def split_digits(agents: int, alpha: float, seed: int) -> tuple[Indices, ...]:
    """Split all images among agents: the rows of each, of nearly equal number, with Dirichlet label skew."""
    return label_skew(digit_images()[1], agents, alpha, np.random.Generator(np.random.Philox(seed)))


@lru_cache(maxsize=64)
def partition_digits(name: str, agents: int, skew: float, seed: int) -> tuple[Indices, ...]:
    """Split all images among agents at random, by `skew` classes each, or in numbers of concentration `skew`."""
    return partition(name, digit_images()[1], agents, skew, np.random.Generator(np.random.Philox(seed)))


def _split(label: Indices, mislabelled: float, rng: np.random.Generator) -> Split:
    """Split rows into splits class by class, then exchange a share of the training labels among themselves."""
    dealt = np.concatenate([rng.permutation(np.flatnonzero(label == digit)) for digit in range(CLASSES)])
    train, validate = dealt[0::2], dealt[1::2]
    given = label[train]
    chosen = rng.permutation(len(given))[: round(mislabelled * len(given))]
    given[chosen] = given[np.roll(chosen, 1)]
    return Split(train, given, validate)


FEDERATIONS = {"digits": Digits}
