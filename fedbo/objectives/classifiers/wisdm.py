"""Activity recognition by phone in the pocket: 36 users of WISDM, each tuning a logistic regression on its windows.

It replaces the Google glasses of Dai et al. 2020 (Sec. 5.2, appendix D.2.2), whose data are not public: people who wear a
sensor, statistics of time windows, the same model, ranges and split. Kwapisz et al. 2010 have 43 features of each of 5,418
windows of ten seconds. One of them, XAVG, is zero everywhere and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from fedbo.objectives.base import Array, Metric, Parameter, require, require_agent
from fedbo.objectives.classifiers.logistic import Labels, LogisticAgent, trainee, tuned
from fedbo.objectives.datasets.data import locate
from fedbo.settings.ranges import check

ACTIVITIES = ("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing")
TASKS: dict[str, tuple[str, ...]] = {  # of the tasks with two classes, which activities are the second
    "activity": (),
    "walking": ("Walking",),
    "stairs": ("Upstairs", "Downstairs"),
    "still": ("Sitting", "Standing"),
}
USERS = {"activity": 35, "walking": 35, "stairs": 31, "still": 25}  # those who have two classes at least: user 9 only walks
VALIDATION = 100  # rows, of whoever has …
ENOUGH = 200  # … so many; of others half
FIRST_FEATURE, CONSTANT = 2, 32  # columns of the file: what comes before is no feature, and XAVG is constant


@dataclass(frozen=True, eq=False)
class UserRows:
    """One user's rows: 42 features `(n, 42)`, NaN where one is missing, and the class `label (n,)` from 0."""

    features: Array
    label: Labels


@dataclass(frozen=True)
class Wisdm:
    """Activities of 35 phone users: tune batch size, L2 weight and learning rate.

    The agents are the users with at least two classes. A user with 200 rows or more validates on 100 of them, any other on
    half.

    agents: the number of users, in their order; at most 35, 35, 31 and 25 for the four tasks.
    task: "activity" (six classes), or one against all others: "walking", "stairs" (up or down), "still" (sitting or standing).
    epochs: passes of training over the rows. The paper does not report it; 100 are 200 to 400 steps of a user with the usual 75
      rows.
    log: make the axes of the L2 weight and the learning rate geometric; by default they are linear, as published.
    """

    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    agents: Annotated[int, Ge(1)] | None = None
    """First users of the task that take part. Default: all."""
    task: Literal["activity", "walking", "stairs", "still"] = "activity"
    """Six activities, or one against all others."""
    epochs: Annotated[int, Ge(1), Le(10_000)] = 100
    """Passes over the training rows."""
    log: bool = False
    """Whether `l2` and `learning_rate` have geometric axes."""

    def __post_init__(self) -> None:
        check(self)
        most = USERS[self.task]
        few = self.agents is None or self.agents <= most
        require(few, "agents", self.agents, f"task {self.task!r} has {most} users; use 1 to {most}")

    @property
    def n_agents(self) -> int:
        """Count the users."""
        return USERS[self.task] if self.agents is None else self.agents

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the ranges of the batch size (rows), the L2 weight and the learning rate."""
        return tuned(self.log)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> LogisticAgent:
        """Build one user's objective; the split is fixed and does not depend on the streams."""
        require_agent(agent, self.n_agents)
        rows = users_of(locate("wisdm") / "WISDM_ar_v1.1_transformed.arff", self.task)[agent]
        hidden = held_out(rows.label)
        return trainee(completed(rows.features, hidden), rows.label, hidden, self.epochs, self.log)


def held_out(label: Labels) -> Labels:
    """Choose the rows that validate: at random within a class, and of each class its share; alike in every process."""
    order = np.random.Generator(np.random.Philox(0)).permutation(len(label))
    by_class = order[np.argsort(label[order], kind="stable")]
    n = VALIDATION if len(label) >= ENOUGH else len(label) // 2
    return np.sort(by_class[(2 * np.arange(n) + 1) * len(label) // (2 * n)])


def completed(features: Array, hidden: Labels) -> Array:
    """Replace missing values by the median over the training rows, or by 0 where training has none.

    The missing values are dominant periods (XPEAK, YPEAK, ZPEAK) of windows without peaks. They are frequent: without their
    columns all users would lose a feature, and without their rows some users would lose the still activities.
    """
    training = np.delete(features, hidden, axis=0)
    seen = ~np.isnan(training).all(axis=0)
    middle = np.zeros(features.shape[1])
    middle[seen] = np.nanmedian(training[:, seen], axis=0)
    return np.where(np.isnan(features), middle, features)


@lru_cache(maxsize=8)
def users_of(path: Path, task: str) -> tuple[UserRows, ...]:
    """Return the rows of every user with at least two classes of a task, by user number."""
    user, features, activity = _read(path)
    label = np.isin(activity, [ACTIVITIES.index(one) for one in TASKS[task]]).astype(np.int64) if TASKS[task] else activity
    whole = [UserRows(features[user == one], label[user == one]) for one in np.unique(user)]
    return tuple(rows for rows in whole if len(set(rows.label)) > 1)


@lru_cache(maxsize=2)
def _read(path: Path) -> tuple[Labels, Array, Labels]:
    """Read users `(n,)`, features `(n, 42)` and activities `(n,)`.

    The file is ARFF, but its header has no type for `user`, so that strict readers refuse it. The part after `@data` is CSV.
    """
    with path.open(encoding="ascii") as stream:
        rows = [line.strip().split(",") for line in stream.read().partition("@data")[2].splitlines() if line.strip()]
    kept = [i for i in range(FIRST_FEATURE, len(rows[0]) - 1) if i != CONSTANT]
    features = np.array([["nan" if row[i] == "?" else row[i] for i in kept] for row in rows], dtype=np.float64)
    return (np.array([int(row[1]) for row in rows]), features, np.array([ACTIVITIES.index(row[-1]) for row in rows]))


FEDERATIONS = {"wisdm": Wisdm}
