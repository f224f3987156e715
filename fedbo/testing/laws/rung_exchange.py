"""What agents knew of the rungs of others, again by brute force: from what was sent, taken in, answered and delivered when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import mean, median, quantiles

from fedbo.actors.stopping.stopping import Stopping
from fedbo.coordinator.environment.faults import Corruption, Lie
from fedbo.testing.run_tables import Row, RunTables

Key = tuple[int, int]  # step and point
Place = tuple[int, int]  # a bracket and a fidelity
Values = Mapping[Place, Mapping[Key, float]]
Pooled = Mapping[Place, tuple[int, list[float]]]  # how many values, and their deciles
NEAR = 1e-9


def is_checkable(run: RunTables) -> bool:
    """Say whether what was told is what follows from the rows."""
    return not (run.suffers(Lie) or run.suffers(Corruption))


def unit(values: Values, bracket: int) -> tuple[float, float] | None:
    """Give the median of an agent's values at the lowest rung of a bracket, and their mean absolute deviation from it."""
    lowest = list(values[min(places)].values()) if (places := [one for one in values if one[0] == bracket]) else []
    middle = median(lowest) if len(lowest) >= 3 else 0.0
    spread = mean(abs(value - middle) for value in lowest) if len(lowest) >= 3 else 0.0
    return (middle, spread) if spread > 0 else None


def better_elsewhere(others: Pooled, values: Values, place: Place, value: float, slack: float) -> tuple[int, float]:
    """Count the values of others at a rung and those better than one here, by more than `slack` of its agent's units."""
    own = unit(values, place[0])
    if own is None or place not in others:
        return 0, 0.0
    count, points = others[place]
    return count, count * len([point for point in points if point > (value - own[0]) / own[1] + slack]) / 9


class Knowledge:
    """What each agent knows of others' rungs, event by event; `values` are those of the rows by agent, point and fidelity."""

    def __init__(self, run: RunTables, stopping: Stopping, values: Mapping[int, Mapping[tuple[Key, int], float]]) -> None:
        self._run, self._stopping, self._values = run, stopping, values
        self._rungs = defaultdict[int, dict[Place, dict[Key, float]]](dict)
        self._messages = dict[Key, Pooled]()  # by agent and step
        self._told = dict[int, tuple[int, Pooled]]()  # by agent: its newest step, and what it told
        self._answers = dict[Key, Pooled]()  # by agent and number
        self._inbox = defaultdict[int, list[Pooled]](list)
        self._known = defaultdict[int, Pooled](dict)

    def by_event(self) -> Iterator[tuple[Row, Pooled]]:
        """Give every event at a rung with what its agent knew, up to one of an evaluation whose values no row has."""
        for event in self._run.events:
            agent, step, kind = event["agent"], event["step"], event["kind"]
            if kind in ("rung", "promoted"):
                yield event, self._known[agent]
                if kind == "rung" and not self._is_noted(event):
                    return
            elif kind == "sent" and (agent, step) not in self._messages:
                self._messages[agent, step] = {
                    place: one for place in self._rungs[agent] if (one := self._pooled(agent, place))
                }
            elif kind == "arrived" and self._told.get(agent, (-1, {}))[0] <= step:
                self._told[agent] = step, self._messages[agent, step]
            elif kind == "quantiles":
                self._answers[agent, step] = self._merged(agent)
            elif kind == "delivered":
                self._inbox[agent].append(self._answers[agent, step])
            elif kind == "started" and event["detail"] != "again" and self._inbox[agent]:
                self._known[agent] = self._inbox.pop(agent)[-1]

    def _is_noted(self, event: Row) -> bool:
        """Note the value of an event at a rung; say whether a row has it, where there is one."""
        point, fidelity, word = event["detail"].split()
        key = event["step"], int(point)
        bracket = self._stopping.first(self._run.streams.of(event["agent"]), *key).bracket
        value = self._values.get(event["agent"], {}).get((key, int(fidelity)))
        if value is not None:
            self._rungs[event["agent"]].setdefault((bracket, int(fidelity)), {})[key] = value
        return value is not None or word in ("failed", "end")

    def _pooled(self, agent: int, place: Place) -> tuple[int, list[float]] | None:
        """Give the number of an agent's values at a rung and their deciles, in its units."""
        own, values = unit(self._rungs[agent], place[0]), list(self._rungs[agent][place].values())
        if own is None or place[1] == self._stopping.largest:
            return None
        scaled = [(value - own[0]) / own[1] for value in values]
        return len(scaled), quantiles(scaled, n=10, method="inclusive") if len(scaled) > 1 else scaled * 9

    def _merged(self, agent: int) -> Pooled:
        """Pool what all other agents told, each decile as heavy as its agent has values."""
        told, found = [one for other, (_, one) in self._told.items() if other != agent], dict[Place, tuple[int, list[float]]]()
        for place in {place for one in told for place in one}:
            samples = [one[place] for one in told if place in one]
            points = sorted((point, count) for count, deciles in samples for point in deciles)
            total = sum(count for count, _ in samples)

            def decile(tenth: int, points: list[tuple[float, int]] = points, total: int = total) -> float:
                return next(v for v, _ in points if 10 * sum(w for p, w in points if p <= v) >= tenth * 9 * total)

            found[place] = total, [decile(tenth) for tenth in range(1, 10)]
        return found
