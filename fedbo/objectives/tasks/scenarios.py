"""Scenarios of YAHPO Gym: one network for the same hyperparameters on many data sets, with one agent for each.

The order of a network's inputs and outputs is that of the publisher's package `yahpo_gym` 1.0.2. An inactive parameter is 0, or
the code 0 of its category.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from fedbo.objectives.base import Array
from fedbo.objectives.datasets.data import locate
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import inside
from fedbo.objectives.tasks.surrogate_layers import Codes
from fedbo.objectives.tasks.surrogate_network import SurrogateNetwork, read_network
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Mask, Space

_AT_ONCE = 256  # points whose hidden layers stay in the processor's cache


@dataclass(frozen=True)
class Scenario:
    """A scenario by the name of its data set: the inputs and outputs of its network, in order.

    `categories` begin with the one that names the data set; `fidelities` are numbers that are settings and not tuned; `seconds`
    is the output that is the run time.
    """

    name: str
    categories: tuple[str, ...]
    numbers: tuple[str, ...]
    fidelities: tuple[str, ...]
    outputs: tuple[str, ...]
    seconds: str

    def __hash__(self) -> int:
        """Return the hash of the name, since that of all fields is a tenth of an evaluation."""
        return hash(self.name)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name the outputs as metrics: the run time is `seconds`, and the others have the publisher's names."""
        return tuple("seconds" if output == self.seconds else output for output in self.outputs)

    @property
    def space(self) -> Space:
        """Return the tuned typed space, in the publisher's order; DataMissingError without the publisher's files."""
        return _space(self)

    @property
    def inputs(self) -> Inputs:
        """Return the mapping of a point's coordinates to the network's inputs."""
        return _inputs(self)

    @property
    def network(self) -> SurrogateNetwork:
        """Return the network, read once for each process."""
        return _network(self.name)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The mapping of coordinates to the network's inputs.

    columns, axes: columns of the numbers and their axes of a point.
    fidelities: the columns of the fidelities.
    codes: axes of the categories with their codes, after the data set's.
    active: which axes count for each value of the axis `parent`; one row without such an axis.
    pairs: for each value, the columns and axes that count.
    """

    columns: Codes
    axes: Codes
    fidelities: Codes
    codes: tuple[tuple[int, Codes], ...]
    data_sets: Mapping[str, int]
    parent: int | None
    active: Mask
    pairs: tuple[tuple[tuple[int, int], ...], ...]


@cache
def _folder(name: str) -> Path:
    return locate(f"yahpo/{name}")


@cache
def _network(name: str) -> SurrogateNetwork:
    return read_network(_folder(name) / "model.onnx")


@cache
def _space(scenario: Scenario) -> Space:
    declared = json.loads((_folder(scenario.name) / "config_space.json").read_text(encoding="utf-8"))
    settled = {scenario.categories[0], *scenario.fidelities}
    tuned = [each for each in declared["hyperparameters"] if each["name"] not in settled]
    today = [each | {"default_value": each["default"]} for each in tuned]  # ConfigSpace has renamed the key
    return read_space(json.dumps({"hyperparameters": today, "conditions": declared["conditions"]}))


@cache
def _inputs(scenario: Scenario) -> Inputs:
    space, names = scenario.space, [parameter.name for parameter in scenario.space.parameters]
    coding = json.loads((_folder(scenario.name) / "encoding.json").read_text(encoding="utf-8"))
    categories = [(name, names.index(name)) for name in scenario.categories[1:]]
    numbers = [(axis, name) for axis, name in enumerate(names) if name in scenario.numbers]
    parents = sorted(set[int]().union(*(rule.axes() for _, rule in space.conditions)))
    assert len(parents) <= 1, "what is active must hang on one parameter"
    cells = np.tile(np.array(space.defaults), (space.levels[parents[0]] if parents else 1, 1))
    cells[:, parents] = np.arange(len(cells))[:, None]
    active = space.active(cells)
    placed = [(scenario.numbers.index(name), axis) for axis, name in numbers]
    return Inputs(
        columns=np.array([column for column, _ in placed]),
        axes=np.array([axis for axis, _ in numbers]),
        fidelities=np.array([scenario.numbers.index(name) for name in scenario.fidelities]),
        codes=tuple((axis, np.array([coding[name][one] for one in space.choices[axis] or ()])) for name, axis in categories),
        data_sets=coding[scenario.categories[0]],
        parent=parents[0] if parents else None,
        active=active,
        pairs=tuple(tuple((column, axis) for column, axis in placed if row[axis]) for row in active),
    )


@dataclass(frozen=True, eq=False)
class SurrogateTask:
    """One data set of a scenario: the output `quantity` of the network, times `sign`, at fixed `fidelity (f,)`.

    An evaluation draws nothing and costs the run time that the network predicts, in seconds. The last point is remembered,
    since its cost is asked for before its value.
    """

    scenario: Scenario
    data_set: str
    quantity: str
    fidelity: tuple[float, ...]
    sign: int = 1
    best_value: float | None = None
    _last: dict[bytes, Array] = field(default_factory=dict, repr=False)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return the predicted quantity at x `(d,)`; nothing is drawn."""
        return self.sign * float(self._at(x)[self._place(self.quantity)])

    def measure(self, x: Array, rng: np.random.Generator, fidelity: int | None = None) -> Outcome:
        """Return the quantity at x `(d,)` with all outputs of the network; nothing is drawn."""
        outputs = (self._at(x) if fidelity is None else self.outputs_at(x, (float(fidelity),))).tolist()
        metrics = dict(zip(self.scenario.metrics, outputs, strict=True))
        return Outcome(self.sign * metrics[self.quantity], metrics=metrics)

    def outputs_at(self, x: Array, fidelity: Sequence[float]) -> Array:
        """Return all outputs `(o,)` of the network at one point `(d,)` and a fidelity `(f,)`: `outputs` except for rounding."""
        row = inside(self.scenario.space.parameters, x).tolist()
        inputs, scenario = self.scenario.inputs, self.scenario
        numbers = [0.0] * len(scenario.numbers)
        for column, axis in inputs.pairs[int(row[inputs.parent]) if inputs.parent is not None else 0]:
            numbers[column] = row[axis]
        for column, value in zip(inputs.fidelities, fidelity, strict=True):
            numbers[column] = value
        codes = [inputs.data_sets[self.data_set], *(table[int(row[axis])] for axis, table in inputs.codes)]
        return scenario.network.at(np.array(codes), np.array(numbers))

    def score(self, x: Array) -> float | None:
        """Return None: an observation is already noise-free."""
        return None

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` at points `(n, d)`."""
        parts = [
            self.outputs(x[start : start + _AT_ONCE])[:, self._place(self.quantity)] for start in range(0, len(x), _AT_ONCE)
        ]
        return self.sign * np.concatenate([np.empty(0), *parts])

    def cost(self, x: Array) -> float:
        """Return the predicted run time at x `(d,)`, in seconds."""
        return float(self._at(x)[self._place(self.scenario.seconds)])

    def outputs(self, x: Array, fidelity: Array | None = None) -> Array:
        """Return all outputs `(n, o)` of the network at points `(n, d)` and fidelities `(n, f)`, by default the fixed ones."""
        x = inside(self.scenario.space.parameters, x)
        inputs, scenario = self.scenario.inputs, self.scenario
        active = inputs.active[x[..., inputs.parent].astype(np.int64) if inputs.parent is not None else 0]
        numbers = np.zeros((*x.shape[:-1], len(scenario.numbers)))
        numbers[..., inputs.columns] = np.where(active, x, 0.0)[..., inputs.axes]
        numbers[..., inputs.fidelities] = self.fidelity if fidelity is None else fidelity
        codes = np.zeros((*x.shape[:-1], len(scenario.categories)), dtype=np.int64)
        codes[..., 0] = inputs.data_sets[self.data_set]
        for place, (axis, table) in enumerate(inputs.codes, start=1):
            codes[..., place] = table[x[..., axis].astype(np.int64)]
        return scenario.network(codes, numbers)

    def _at(self, x: Array) -> Array:
        key = np.asarray(x, dtype=np.float64).tobytes()
        if key not in self._last:
            self._last.clear()
            self._last[key] = self.outputs_at(x, self.fidelity)
        return self._last[key]

    def _place(self, output: str) -> int:
        return self.scenario.outputs.index(output)


@dataclass(frozen=True, eq=False)
class EpochTask(SurrogateTask):
    """A data set of a scenario whose only fidelity is a number of epochs: it can be evaluated after any number of them."""

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float:
        """Return the predicted quantity at x `(d,)` after `fidelity` epochs; nothing is drawn."""
        return self.sign * float(self.outputs_at(x, (float(fidelity),))[self._place(self.quantity)])

    def score_at(self, x: Array, fidelity: int) -> float | None:
        """Return None: an observation is already noise-free."""
        return None
