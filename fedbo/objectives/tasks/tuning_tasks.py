"""Federations of real hyperparameter-tuning tasks: each agent tunes the same model on a different data set.

Results and run times of evaluations come from published measurements: from surrogate networks (`lcbench`, `xgboost_tasks`;
Pfisterer et al. 2022) or from complete tables (`mlp_tasks`, `fcnet`, `nas_tasks`); `fedavg_training` trains. The agents of
`part` "development" are for choosing methods and settings, those of "held_out" for publication.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from fedbo.objectives.base import Fidelity, Metric, Objective, Parameter, Part, require, require_agent
from fedbo.objectives.tasks.collections import FCNET, LCBENCH, MLP, NAS, XGBOOST, Collection
from fedbo.objectives.tasks.complete_tables import SECONDS, Grid, TableTask
from fedbo.objectives.tasks.scenarios import EpochTask, Scenario, SurrogateTask
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.ranges import check

# The best values known at full fidelity, by collection and data set, from a search: `python benchmarks/best_known.py`.
BEST: dict[str, dict[str, float]] = json.loads(Path(__file__).with_name("best_known.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class _Tasks(ABC):
    """Base class of federations of tuning tasks: `agents` is the number of data sets of `part`, in their order."""

    costly: ClassVar[bool] = True
    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    collection: ClassVar[Collection]

    part: Part = "all"
    """All data sets, those for development, or held-out ones."""
    agents: Annotated[int, Ge(1)] | None = None
    """First data sets of the part that take part. Default: all."""

    def __post_init__(self) -> None:
        check(self)
        most = len(self.collection.part(self.part))
        require(most > 0, "part", self.part, "it has no data sets; use all or held_out")
        require(
            self.agents is None or self.agents <= most, "agents", self.agents, f"use 1 to {most}, the data sets of this part"
        )

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Name the agents' data sets."""
        return self.collection.part(self.part)[: self.agents]

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return len(self.data_sets)

    @property
    def lattice(self) -> Space:
        """Return the typed space."""
        return self.collection.source.space

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in the order of x; a category is a whole number, its place in the list of choices."""
        return self.lattice.parameters

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """Name the quantity."""

    @abstractmethod
    def task(self, data_set: str) -> Objective:
        """Return the objective of a data set."""

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Objective:
        """Build one agent's objective, which does not depend on the streams."""
        require_agent(agent, self.n_agents)
        return self.task(self.data_sets[agent])


@dataclass(frozen=True)
class _Surrogates(_Tasks):
    """Surrogate networks."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name the metrics of an evaluation: all outputs of the network."""
        return self._scenario.metrics

    @property
    def _scenario(self) -> Scenario:
        assert isinstance(self.collection.source, Scenario)
        return self.collection.source


@dataclass(frozen=True)
class LCBench(_Surrogates):
    """Networks on 34 OpenML data sets (LCBench): tune 7 hyperparameters.

    The cost of an evaluation is its run time in seconds.

    part: the data sets to choose from.
    agents: the number of data sets of `part`, in their order.
    epoch: the number of epochs before the network is judged, 1 to 52; fewer take less time.
    quantity: the tuned quantity.
    """

    collection: ClassVar[Collection] = LCBENCH

    epoch: Annotated[int, Ge(1), Le(52)] = 52
    """Epochs after which the network is judged."""
    quantity: Literal["val_balanced_accuracy", "val_accuracy", "test_balanced_accuracy"] = "val_balanced_accuracy"
    """Tuned metric."""

    @property
    def metric(self) -> Metric:
        """Name the accuracy, a share, or with `val_accuracy` in percent."""
        return Metric(self.quantity)

    @property
    def fidelity(self) -> Fidelity | None:
        """Declare the epochs as the fidelity axis."""
        return Fidelity("epoch", 1, self.epoch) if self.epoch > 1 else None

    def task(self, data_set: str) -> EpochTask:
        """Return the objective of a data set."""
        best = BEST["lcbench"].get(data_set) if (self.epoch, self.quantity) == (52, "val_balanced_accuracy") else None
        return EpochTask(self._scenario, data_set, self.quantity, (float(self.epoch),), best_value=best)


@dataclass(frozen=True)
class XGBoostTasks(_Surrogates):
    """Boosted trees on 119 OpenML data sets (rbv2_xgboost): tune 14 conditional hyperparameters.

    The cost of an evaluation is its time in seconds.

    part: the data sets to choose from.
    agents: the number of data sets of `part`, in their order.
    trainsize: share of the data for training; a smaller one takes less time.
    repl: number of repetitions of the training.
    quantity: accuracy, balanced accuracy or the area under the curve.
    """

    collection: ClassVar[Collection] = XGBOOST

    trainsize: Annotated[float, Ge(0.03), Le(1.0)] = 1.0
    """Share of the training data."""
    repl: Annotated[int, Ge(1), Le(10)] = 10
    """Repetitions of the training."""
    quantity: Literal["acc", "bac", "auc"] = "acc"
    """Tuned metric."""

    @property
    def metric(self) -> Metric:
        """Name the share."""
        return Metric(self.quantity)

    def task(self, data_set: str) -> SurrogateTask:
        """Return the objective of a data set."""
        usual = (self.trainsize, self.repl, self.quantity) == (1.0, 10, "acc")
        best = BEST["rbv2_xgboost"].get(data_set) if usual else None
        return SurrogateTask(self._scenario, data_set, self.quantity, (self.trainsize, float(self.repl)), best_value=best)


@dataclass(frozen=True)
class _Tables(_Tasks):
    """Complete tables; with `noisy` an evaluation is the result of one seed, otherwise the mean over the seeds."""

    noisy: bool = True
    """Whether an evaluation is one seed's result, or the mean of all seeds."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name the metrics of an evaluation: the quantity and the mean run time."""
        return self.metric.name, SECONDS

    def task(self, data_set: str) -> TableTask:
        """Return the objective of a data set."""
        return TableTask(self._grid, data_set, self.metric.sign, self.noisy)

    @property
    def mean_best(self) -> tuple[float, tuple[float, ...], float]:
        """Return the exact largest mean over the agents, its place, and 0 for its error."""
        total = np.mean([self.task(data_set).means for data_set in self.data_sets], axis=0)
        row = int(np.argmax(total))
        return float(total[row]), tuple(self._grid.point(row).tolist()), 0.0

    @property
    def _grid(self) -> Grid:
        assert isinstance(self.collection.source, Grid)
        return self.collection.source


@dataclass(frozen=True)
class MLPTasks(_Tables):
    """Perceptrons on 8 OpenML data sets (HPOBench): 30,000 configurations of 5 hyperparameters.

    The cost of an evaluation is its mean run time in seconds.

    part: the data sets to choose from.
    agents: the number of data sets of `part`, in their order.
    noisy: an evaluation is the result of a random one of 5 seeds; otherwise it is their mean. The mean always judges the
      points.
    """

    collection: ClassVar[Collection] = MLP

    @property
    def metric(self) -> Metric:
        """Name the balanced accuracy of validation."""
        return Metric("val_acc")


@dataclass(frozen=True)
class FCNet(_Tables):
    """Networks for regression on 4 data sets (HPOLib): 62,208 configurations of 9 hyperparameters.

    The loss is that of validation, as its decimal logarithm. The cost of an evaluation is its mean run time in seconds.

    part: the data sets to choose from.
    agents: the number of data sets of `part`, in their order.
    noisy: an evaluation is the result of a random one of 4 seeds; otherwise it is their mean. The mean always judges the
      points.
    """

    collection: ClassVar[Collection] = FCNET

    @property
    def metric(self) -> Metric:
        """Name the logarithm of the loss."""
        return Metric("log10 val_loss", sign=-1)


@dataclass(frozen=True)
class NASTasks(_Tables):
    """Cells of convolutional networks on 3 image sets (NAS-Bench-201): 15,625 architectures.

    The cost of an evaluation is its mean run time in seconds. No data set is for development.

    part: the data sets to choose from.
    agents: the number of data sets of `part`, in their order.
    noisy: an evaluation is the result of a random one of 2 or 3 seeds; otherwise it is their mean. The mean always judges the
      points.
    """

    collection: ClassVar[Collection] = NAS

    @property
    def metric(self) -> Metric:
        """Name the accuracy of validation."""
        return Metric("val_acc")


FEDERATIONS = {"lcbench": LCBench, "xgboost_tasks": XGBoostTasks, "mlp_tasks": MLPTasks, "fcnet": FCNet, "nas_tasks": NASTasks}
