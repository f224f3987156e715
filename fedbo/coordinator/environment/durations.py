"""Durations of an agent's step in virtual time: of its decision, and of each of its evaluations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.duration_blocks import Durations
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.environment.timing import Timing


class Evaluations(NamedTuple):
    """Points that an agent evaluates: `size` of them from number `first` on, each repeated `pulls` times if that is set.

    Points evaluated `again`, after a crash or a failure, have separate numbers, so that later draws do not change.
    """

    first: int
    size: int
    again: bool = False
    pulls: tuple[int, ...] | None = None


class StepDurations:
    """The durations of steps: of evaluations by their number, of decisions by the number of observations."""

    def __init__(self, environment: Environment, streams: Streams, policy: Policy) -> None:
        self._environment, self._streams, self._policy = environment, streams, policy
        self._limit = math.inf if policy.time_limit is None else policy.time_limit
        self._lengths = Durations(self._evaluation_of, "evaluation time", streams)
        self._again = Durations(self._evaluation_of, "evaluation time again", streams)
        self._factors: dict[int, float] = {}
        self.limited = policy.time_limit is not None
        groups = environment.groups()
        self._even = all(models.speed.factors == (1.0,) for models in groups)
        self._instant = not any(models.decision.coefficient for models in groups)
        costly = any(models.evaluation is not None and models.evaluation.costs for models in groups)
        self.costly = costly
        self.plain = self._even and self._instant and not self.limited and not costly

    def _evaluation_of(self, agent: int) -> Timing:
        evaluation = self._environment.of(agent).evaluation
        assert evaluation is not None, "time is real"
        return evaluation

    def needs_costs(self, agent: int) -> bool:
        """Check whether the objective's reported costs set the durations of an agent's evaluations."""
        if not self.costly:
            return False
        evaluation = self._environment.of(agent).evaluation
        return evaluation is not None and evaluation.costs

    def of(self, agent: int, number: int) -> float:
        """Return the length of one evaluation where durations are `plain`: nothing else adds to the step then."""
        return self._lengths.of(agent, number)

    def block(self, agent: int, number: int) -> Sequence[float]:
        """Return an agent's `plain` lengths from 64 * `number` on, of 64 evaluations."""
        return self._lengths.block(agent, number)

    def thought(self, agent: int, t_n: int) -> float:
        """Return the length of a decision with `t_n` observations."""
        return 0.0 if self._instant else self._environment.of(agent).decision(t_n)

    def lengths(self, agent: int, evaluations: Evaluations) -> list[float]:
        """Return the length of one pull of each point at cost 1, without the time limit."""
        return self._evaluations(agent, range(evaluations.first, evaluations.first + evaluations.size), evaluations.again)

    def segments(self, agent: int, evaluations: Evaluations, t_n: int, costs: tuple[float, ...] | None) -> tuple[float, ...]:
        """Return the lengths of a decision with `t_n` observations and of its evaluations."""
        pulls = evaluations.pulls
        thought, lengths = self.thought(agent, t_n), self.lengths(agent, evaluations)
        if costs is not None:
            lengths = [length * cost for length, cost in zip(lengths, costs, strict=True)]
        if self._limit < math.inf:
            lengths = [min(length, self._limit) for length in lengths]
        if pulls is not None:
            lengths = [length * times for length, times in zip(lengths, pulls, strict=True)]
        return (thought, *lengths)

    def evaluation_durations(self, agent: int, evaluations: Evaluations, next_repetition: int) -> tuple[float, ...]:
        """Return the length of one pull of each point at cost 1, then those of retries, numbered from `next_repetition`."""
        first, count = evaluations.first, evaluations.size
        lengths = self._evaluations(agent, range(first, first + count), evaluations.again)
        retries = range(next_repetition, next_repetition + count * self._policy.retries)
        return (*lengths, *self._evaluations(agent, retries, True))

    def _evaluations(self, agent: int, numbers: range, again: bool) -> list[float]:
        drawn = self._again if again else self._lengths
        lengths = [drawn.of(agent, number) for number in numbers]
        if self._even:
            return lengths
        if agent not in self._factors:
            rng = self._streams.of(agent).at(0).rng("speed class")
            self._factors[agent] = self._environment.of(agent).speed.factor(rng)
        return [length * self._factors[agent] for length in lengths]
