"""Heterogeneity of agents' functions: one formula shifted, rotated, mixed or offset for each agent.

A transform takes the unit cube to itself: what would leave it is reflected at its faces, so that values keep their range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Lt

from fedbo.objectives.base import Array, Parameter, require
from fedbo.objectives.models.formulas import Formula
from fedbo.objectives.space import inside
from fedbo.settings.ranges import Marked

Family = Literal["same", "shift", "mixture", "rotation", "offset"]
USUAL_SPREAD = {"shift": 0.05, "mixture": 0.1, "rotation": 0.25, "offset": 1.0}
COMPONENTS = 3  # of a mixture
SIDES = ((1.0, 0.0), (-1.0, 0.0), (-1.0, 2.0))  # a place, and its reflections at 0 and 1


@dataclass(frozen=True, slots=True)
class Noise(Marked):
    """Normal noise of a `variance` plus uniform noise on [-`half_width`, `half_width`], each absent where it is 0."""

    variance: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    half_width: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """Return n draws `(n,)`."""
        made = np.zeros(n)
        if self.variance:
            made += np.sqrt(self.variance) * rng.standard_normal(n)
        if self.half_width:
            made += self.half_width * (2.0 * rng.random(n) - 1.0)
        return made


@dataclass(frozen=True, eq=False, slots=True)
class Transform:
    """A transform of u to turn @ u + shift, reflected into the unit cube; `turn (d, d)` is None where nothing is turned."""

    shift: Array
    turn: Array | None = None

    def __call__(self, u: Array) -> Array:
        """Transform points `(n, d)`."""
        turned = u if self.turn is None else u @ self.turn.T
        return 1.0 - np.abs(1.0 - np.abs(turned + self.shift) % 2.0)


@dataclass(frozen=True, eq=False)
class FormulaAgent:
    """One agent's function: offset + factor * sum of weights (k,) times the formula at each of k transforms, plus noise.

    Without transforms it is the formula itself.
    """

    formula: Formula
    noise: Noise
    transforms: tuple[Transform, ...] = ()
    weights: Array | None = None
    factor: float = 1.0
    offset: float = 0.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the box."""
        return self.formula.parameters

    @property
    def best_value(self) -> float | None:
        """Return the largest value over the box; unknown for a mixture."""
        return None if len(self.transforms) > 1 else self.offset + self.factor * self.formula.best

    @property
    def cusps(self) -> Array:
        """Return the places `(k, 1)` of the function's cusps: the formula's, moved back, also from beyond the sides."""
        places = np.array(self.formula.cusps)
        moved = [
            sign * places + turn - transform.shift[0]
            for transform in self.transforms or (Transform(np.zeros(1)),)
            for sign, turn in SIDES
        ]
        found = np.concatenate(moved)
        return found[(found >= 0.0) & (found <= 1.0)][:, None]

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(d,)`."""
        return float(self.evaluate_many(x, 1, rng)[0])

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` noisy values at x `(d,)`."""
        return self.score(x) + self.noise.draws(rng, count)

    def evaluate_points(self, x: Array, counts: npt.NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Return `counts (n,)` noisy values of each point `(n, d)`."""
        return np.repeat(self.scores(x), counts) + self.noise.draws(rng, int(counts.sum()))

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        return float(self._values(inside(self.parameters, x)[None])[0])

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, d)`."""
        return self._values(inside(self.parameters, x))

    def _values(self, x: Array) -> Array:
        if not self.transforms:
            return self.offset + self.factor * self.formula.function(x)
        low, width = self.formula.box
        unit = (x - low) / width
        values = [self.formula.function(low + width * transform(unit)) for transform in self.transforms]
        mixed = values[0] if self.weights is None else np.asarray(self.weights @ np.array(values))
        return self.offset + self.factor * mixed


@dataclass(frozen=True, slots=True)
class Heterogeneity:
    """A family and its `spread`, in the units of the family; None for the usual spread.

    With `scaled`, values run from h to 1 - h at most, where h is the half width of the uniform noise, so that rewards lie in
    [0, 1].
    """

    family: Family
    spread: float | None = None
    scaled: bool = False

    def of(
        self, formula: Formula, noise: Noise, shared_rng: np.random.Generator, agent_rng: np.random.Generator
    ) -> FormulaAgent:
        """Draw one agent: a mixture's parts and the pivot of turns are shared, all else is the agent's own."""
        factor, offset = _scale(formula, noise) if self.scaled else (1.0, 0.0)
        agent = FormulaAgent(formula, noise, factor=factor, offset=offset)
        d, scale = len(formula.parameters), self.scale
        if self.family == "offset":
            return FormulaAgent(formula, noise, offset=scale * float(agent_rng.standard_normal()))
        if self.family == "shift":
            return _moved(agent, (Transform(scale * agent_rng.uniform(-1.0, 1.0, d)),))
        if self.family == "mixture":
            parts = scale * shared_rng.uniform(-1.0, 1.0, (COMPONENTS, d))
            return _moved(agent, tuple(Transform(part) for part in parts), agent_rng.dirichlet(np.ones(COMPONENTS)))
        if self.family == "rotation":
            return _moved(agent, (_turn(formula, scale, shared_rng, agent_rng),))
        return agent

    @property
    def scale(self) -> float:
        """Return the spread in effect; 0 where all agents are the same."""
        return USUAL_SPREAD.get(self.family, 0.0) if self.spread is None else self.spread

    def check(self, formula: Formula, noise: Noise) -> None:
        """Refuse what does not suit the formula: ValueError."""
        most = {"same": 0.0, "offset": np.inf, "rotation": 0.5}.get(self.family, formula.peak[1])
        remedy = f"the family {self.family!r} supports at most {most:.4g}" if most else 'the family "same" supports 0 only'
        require(self.scale <= most, "spread", self.scale, remedy)
        turned = self.family == "rotation" and len(formula.parameters) == 1
        require(not turned, "family", self.family, "a function of one dimension cannot be rotated; use shift or mixture")
        scales = not (self.scaled and self.family == "offset")
        require(scales, "scaled", self.scaled, "offsets are not bounded; use another family, or remove scaled")
        require(not self.scaled or noise.half_width < 0.5, "half_width", noise.half_width, "use less than 0.5 with scaled")


def _scale(formula: Formula, noise: Noise) -> tuple[float, float]:
    """Return factor and offset that map the formula's values to [half width of the noise, 1 less it]."""
    factor = (1.0 - 2.0 * noise.half_width) / (formula.best - formula.worst)
    return factor, noise.half_width - factor * formula.worst


def _moved(agent: FormulaAgent, transforms: tuple[Transform, ...], weights: Array | None = None) -> FormulaAgent:
    return FormulaAgent(agent.formula, agent.noise, transforms, weights=weights, factor=agent.factor, offset=agent.offset)


def _turn(formula: Formula, scale: float, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Transform:
    """Turn the cube about a common pivot by up to `scale` of a full turn, in a plane that holds the peak.

    The pivot is half as far from the peak as the nearest face, so that the peak follows a circle and stays in the cube. A turn
    about the centre of the cube would not move a peak there.
    """
    peak, margin = formula.peak
    first = _direction(shared_rng, len(peak))
    pivot = peak + 0.5 * margin * first
    second = agent_rng.standard_normal(len(peak))
    second -= (second @ first) * first
    second /= np.linalg.norm(second)
    angle = 2.0 * np.pi * scale * agent_rng.uniform(-1.0, 1.0)
    plane = np.column_stack([first, second])
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn = np.eye(len(peak)) + plane @ (rotation - np.eye(2)) @ plane.T
    return Transform(pivot - turn @ pivot, turn)


def _direction(rng: np.random.Generator, d: int) -> Array:
    drawn = rng.standard_normal(d)
    return np.asarray(drawn / np.linalg.norm(drawn))
