"""Logistic regression by mini-batch gradient descent, with tuned batch size, L2 weight and learning rate.

Dai et al. 2020 (Sec. 5.2, appendix D.2.2) tune these three for the two activity recognition experiments; they do not report how
long a model is trained. The implementation is ours, because no solver of scikit-learn has a batch size. An evaluation draws
nothing: the order of the rows is fixed when the objective is built, and is the same at every point.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array, Parameter
from fedbo.objectives.space import inside

Labels = npt.NDArray[np.int64]

PARAMETERS = (  # Dai et al. 2020, Sec. 5.2
    Parameter("batch_size", 20.0, 60.0),
    Parameter("l2", 1e-6, 1.0),
    Parameter("learning_rate", 0.01, 0.1),
)


def tuned(log: bool) -> tuple[Parameter, ...]:
    """Return the three tuned quantities; `log` makes the axes of the L2 weight and the learning rate geometric."""
    return tuple(Parameter(p.name, p.low, p.high, log and p.name != "batch_size") for p in PARAMETERS)


@dataclass(frozen=True, slots=True)
class DescentSettings:
    """The settings of gradient descent: so many rows at a time, the weight `l2` of the penalty, and the length of a step."""

    batch_size: int
    l2: float
    learning_rate: float


def descend(x: Array, label: Labels, order: Labels, step: DescentSettings) -> Array:
    """Train from zero weights and return them `(m + 1, c)`, the last row for the constant.

    `x (n, m)` are the rows, `label (n,)` their classes in 0 … c - 1, and `order (epochs, n)` the order of the rows. The loss is
    the mean of -log softmax(x w + constant)[label] plus l2 / 2 times the squared weights, without the constant. Two classes are
    two columns, so the penalty on their difference is half of that of a single column.
    """
    inputs = np.column_stack([x, np.ones(len(x))])
    target = np.eye(int(label.max()) + 1)[label]
    weights = np.zeros((inputs.shape[1], target.shape[1]))
    keep = np.full((len(weights), 1), 1.0 - step.learning_rate * step.l2)
    keep[-1] = 1.0
    for rows in order:
        met, wanted = inputs[rows], target[rows]
        for start in range(0, len(rows), step.batch_size):
            batch = met[start : start + step.batch_size]
            surplus = softmax(batch @ weights) - wanted[start : start + step.batch_size]
            weights *= keep
            weights -= (step.learning_rate / len(batch)) * (batch.T @ surplus)
    return weights


def softmax(logits: Array) -> Array:
    """Turn logits `(…, c)` into probabilities, in place."""
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits


@dataclass(frozen=True, eq=False)
class LogisticAgent:
    """One person's rows, standardised, in a training and a validation part, and the order of the rows in training."""

    train: tuple[Array, Labels]
    validation: tuple[Array, Labels]
    order: Labels
    parameters: tuple[Parameter, ...] = field(default=PARAMETERS, repr=False)
    best_value: float | None = None

    @property
    def data_size(self) -> int:
        """Count the examples that train."""
        return len(self.train[1])

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return minus the validation error for x = (batch size, L2 weight, learning rate); nothing is drawn.

        The batch size is rounded to a whole number.
        """
        batch_size, l2, learning_rate = inside(self.parameters, x)
        weights = descend(*self.train, self.order, DescentSettings(round(float(batch_size)), float(l2), float(learning_rate)))
        rows, label = self.validation
        guess = (rows @ weights[:-1] + weights[-1]).argmax(axis=1)
        return -float(np.mean(guess != label))

    def score(self, x: Array) -> float | None:
        """Return None: an observation is already noise-free."""
        return None


def trainee(x: Array, label: Labels, held_out: Labels, epochs: int, log: bool) -> LogisticAgent:
    """Make an objective of rows `x (n, m)` with `label (n,)`: the rows `held_out` validate, all others train.

    Columns are standardised by mean and standard deviation over the training part; one that is constant there becomes 0.
    """
    validates = np.zeros(len(x), dtype=bool)
    validates[held_out] = True
    seen, hidden = x[~validates].astype(np.float64), x[validates].astype(np.float64)
    mean, deviation = seen.mean(axis=0), seen.std(axis=0)
    # a constant column has a deviation of rounding errors, which must not be blown up
    constant = deviation <= 1e-9 * np.abs(mean)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    order = np.random.Generator(np.random.Philox(0))
    shuffled = np.array([order.permutation(len(seen)) for _ in range(epochs)])
    return LogisticAgent(
        ((seen - mean) * scale, label[~validates]), ((hidden - mean) * scale, label[validates]), shuffled, tuned(log)
    )
