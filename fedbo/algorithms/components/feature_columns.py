"""The states of many agents as arrays, where the surrogate is a linear model on features that all of them share.

An agent's observations are rows of its slot, and only their number says which of them count: a step that is undone lowers it.
The compiled routines work on the arrays as they lie, on one agent's numbers after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import ORIGINS_IN_ORDER, AnswerColumns, Array, Problem
from fedbo.algorithms.components.coordinates import distance, distances, from_coordinates, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_in_cube
from fedbo.algorithms.components.schedules import probability
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.streams import WORLD, Numbers, StreamBlock, Streams
from fedbo.settings.records import changed
from fedbo.surrogates.features import Features, draw_features
from fedbo.surrogates.linear import CommonObservations, Models, draw_each, known_part, normals_for
from fedbo.surrogates.projected import SAME_POINT

Held = tuple[Array, Array]
Codes = npt.NDArray[np.int8]
Own = Any  # the settings of a `TS`, which imports this module
Method = Any  # a method on `Federated`, which does so too
_MORE = 4  # further observations for which all agents get room at a time, beside a quarter of those that they have room for
OWN, FEDERATED, RANDOM, UNIFORM = map(ORIGINS_IN_ORDER.index, ("own", "federated", "random", "uniform"))


def shared_features(streams: Streams, dim: int, count: int, length_scale: float, kernel: str = "se") -> Features:
    """Return the features that every agent of a replicate obtains alike; they are read-only, and drawn once in a process."""
    return _drawn(streams.of(WORLD).at(0), dim, count, length_scale, kernel)


@lru_cache(maxsize=16)
def _drawn(streams: Streams, dim: int, count: int, length_scale: float, kernel: str) -> Features:
    drawn = draw_features(streams.rng("shared features"), dim, count, length_scale, kernel)
    drawn.frequencies.flags.writeable = drawn.phases.flags.writeable = False
    return drawn


def serves(own: Own, problem: Problem) -> bool:
    """Return whether states can be columns: nothing is fitted, and there is neither a typed space nor an earlier task."""
    return own.surrogate == "features" and problem.lattice is None and not problem.history and not isinstance(own.beta, str)


class SavedStates(NamedTuple):
    """The states of k agents as a checkpoint holds them: observations one agent after another, and their numbers `n (k,)`."""

    n: Numbers
    u: Array
    y: Array
    t: Numbers | None = None
    held: list[Held | None] | None = None


class Factors:
    """The factor of each slot, of as many observations as are `known`. It is made again at need, so checkpoints have none."""

    def __init__(self, m: int) -> None:
        self._m = m
        self.columns, self.known = np.empty((0, 0)), np.zeros(0, np.int64)

    def grow(self, count: int, observations: int) -> None:
        """Make room for so many slots, with so many observations each."""
        most = min(observations, self._m)
        self.columns = enlarged(self.columns, (count, most * (most + 1) // 2))
        self.known = enlarged(self.known, (count,))

    def draw(self, of: FeatureColumns, slots: Numbers, models: Models, beta: float, normals: Array) -> tuple[Array, Array]:
        """Return one draw of weights for each slot as `linear.draw_each`, and what its values were divided by."""
        counts = of.n[slots]
        known = known_part(self.known[slots], counts, self._m)
        begins, places = slots * of.u.shape[1], slots * self.columns.shape[1]
        observed = CommonObservations(
            x=of.u.reshape(-1, of.dim),
            y=of.y.reshape(-1),
            begins=begins,
            counts=counts,
            factors=self.columns.reshape(-1),
            places=places,
            known=known,
        )
        self.known[slots] = 0  # after an error it is not known what they hold
        drawn = draw_each(models, observed, np.full(len(slots), beta), normals)
        self.known[slots] = known
        return drawn


class FeatureColumns:
    """The observations of many agents of Thompson sampling: points `u (s, c, d)`, values `y (s, c)`, their numbers `n (s,)`."""

    def __init__(self, own: Own, problem: Problem, streams: Streams) -> None:
        self.own, self.dim = own, problem.dim
        self.shared = shared_features(streams, problem.dim, own.features, own.length_scale)
        self.models = Models(self.shared, own.noise, own.clip, own.standardise)
        self._budget = problem.initial + problem.iterations
        self._room = min(problem.initial + _MORE, self._budget)  # not all: agents that are rarely asked never need it
        self.u, self.y, self.n = np.empty((0, 0, problem.dim)), np.empty((0, 0)), np.zeros(0, np.int64)
        self._factors = [Factors(own.features)]
        self._waiting = dict[int, Array]()  # the points under way, in coordinates, for the next decisions

    def grow(self, count: int) -> None:
        """Make room for `count` agents."""
        self.u = enlarged(self.u, (count, self._room, self.dim))
        self.y, self.n = enlarged(self.y, (count, self._room)), enlarged(self.n, (count,))
        for factors in self._factors:
            factors.grow(count, self._room)

    def start(self, slots: Numbers) -> None:
        """Start without observations."""
        self.n[slots] = 0
        for factors in self._factors:
            factors.known[slots] = 0

    def state(self, slot: int) -> Any:
        """Return an agent's state as the method's functions know it."""
        n = self.n[slot]
        return LocalState(self.u[slot, :n].copy(), self.y[slot, :n].copy(), shared=self.shared)

    def put(self, slot: int, state: Any) -> bool:
        """Store an agent's state; False where points are under way or have failed."""
        if state.waiting is not None or state.failed is not None:
            return False
        self.start(np.array([slot]))
        self._append(np.array([slot]), np.array([len(state.y)]), state.u, state.y)
        return True

    def ask(self, slots: Numbers, streams: StreamBlock, answers: AnswerColumns | None) -> tuple[Array, Codes]:
        """Maximise a draw from each agent's posterior; replace an evaluated point by a uniform one."""
        if self._waiting and (waits := np.array([slot in self._waiting for slot in slots.tolist()])).any():
            omega = np.empty((len(slots), self.own.features))
            omega[~waits] = self._weights(slots[~waits], streams[~waits])
            for place, own in zip(waits.nonzero()[0].tolist(), streams[waits], strict=True):
                slot = slots.item(place)
                state = changed(FeatureColumns.state(self, slot), waiting=self._waiting[slot])
                omega[place], _ = self.own.weights(state, own, keep=False)
        else:
            omega = self._weights(slots, streams)
        u = maximise_in_cube(self.shared, omega, streams)
        return self.unrepeated(u, self.away(slots, u), streams, OWN)

    def _weights(self, slots: Numbers, streams: StreamBlock) -> Array:
        """Return the weights `(k, m)` of a draw from each agent's posterior."""
        normals = streams.normals("own draw", normals_for(self.n[slots], self.own.features))
        return self._factors[0].draw(self, slots, self.models, float(self.own.beta), normals)[0]

    def pending(self, slots: Numbers, points: Sequence[Array]) -> None:
        """Note the points `(p, d)` of each agent that are being evaluated, for its next decision."""
        there = zip(slots.tolist(), points, strict=True)
        self._waiting = {slot: to_coordinates(x, self.own.coordinates) for slot, x in there if len(x)}

    def away(self, slots: Numbers, u: Array) -> Array:
        """Return the distance of each point `u (k, d)` to the agent's nearest one that is, or is being, evaluated."""
        found = distances(self.u.reshape(-1, self.dim), slots * self.u.shape[1], self.n[slots], u)
        for place, slot in enumerate(slots.tolist()) if self._waiting else ():
            if slot in self._waiting:
                found[place] = min(found[place], distance(self._waiting[slot], u[place]))
        return found

    def unrepeated(self, u: Array, away: Array, streams: StreamBlock, origin: int) -> tuple[Array, Codes]:
        """Return the points `(k, d)` of the cube with these coordinates, and origins; uniform ones for evaluated points."""
        x, origins = from_coordinates(u, self.own.coordinates), np.full(len(u), origin, np.int8)
        again = away < SAME_POINT
        if again.any():
            x[again] = uniform(streams[again], "instead of a repeated point", self.dim)
            origins[again] = RANDOM
        return x, origins

    def tell(self, slots: Numbers, counts: Numbers, x: Array, y: Array) -> None:
        """Append the observations."""
        self._append(slots, counts, to_coordinates(x, self.own.coordinates), y)

    def _append(self, slots: Numbers, counts: Numbers, u: Array, y: Array) -> None:
        most = int((self.n[slots] + counts).max(initial=0))
        if most > self._room:
            self._room = max(most, min(self._room * 5 // 4 + _MORE, self._budget))
            self.grow(len(self.n))
        held = self.n[slots]
        place, rows = held.repeat(counts) + offsets(counts), slots.repeat(counts)
        self.u[rows, place], self.y[rows, place] = u, y
        self.n[slots] = held + counts

    def outbox(self, slots: Numbers, streams: StreamBlock) -> dict[str, npt.NDArray[Any]] | None:
        """Send nothing."""
        return None

    def turn(self, slots: Numbers, counts: Numbers, asked: npt.NDArray[np.bool_], forth: bool) -> None:
        """Undo a step, or do it again: its observations stay where they are, and count or do not."""
        self.n[slots] += counts if forth else -counts

    def save(self, slots: Numbers) -> SavedStates:
        """Return states as plain data."""
        rows, place = np.repeat(slots, self.n[slots]), offsets(self.n[slots])
        return SavedStates(self.n[slots], self.u[rows, place], self.y[rows, place])

    def load(self, slots: Numbers, saved: SavedStates) -> None:
        """Store what `save` returned."""
        self.start(slots)
        self._append(slots, saved.n, saved.u, saved.y)


class FederatedColumns(FeatureColumns):
    """The same for methods on `Federated`, with the vectors held of others before and after a step, and decisions `t (s,)`."""

    def __init__(self, method: Method, problem: Problem, streams: Streams) -> None:
        super().__init__(method.own, problem, streams)
        self._method = method
        self._chance = cache(partial(probability, method.p))
        start = method.agent_init(replace(problem, agent=problem.targets[0]), streams)
        self._start, self._sent_on = start, method.models(start.features)
        if not method.is_one_model(problem.dim):
            self._factors.append(Factors(method.features))
        self.t, self._got = np.zeros(0, np.int64), np.zeros(0, bool)
        self._any, self._before_any = np.zeros(0, bool), np.zeros(0, bool)  # whether an agent holds any vector
        self._held, self._before = list[Held | None](), list[Held | None]()

    def grow(self, count: int) -> None:
        """Make room for `count` agents."""
        super().grow(count)
        for name in ("t", "_got", "_any", "_before_any"):
            setattr(self, name, enlarged(getattr(self, name), (count,)))
        for some in (self._held, self._before):
            some += [None] * (count - len(some))

    def start(self, slots: Numbers) -> None:
        """Start without observations and messages."""
        super().start(slots)
        self.t[slots], self._got[slots], self._any[slots] = 0, False, False
        for slot in slots.tolist():
            self._held[slot] = self._before[slot] = None

    def state(self, slot: int) -> Any:
        """Return an agent's state as the method's functions know it."""
        omega, weight = self._held[slot] or (self._start.omega, self._start.weight)
        return changed(self._start, local=super().state(slot), omega=omega, weight=weight, t=int(self.t[slot]))

    def put(self, slot: int, state: Any) -> bool:
        """Store an agent's state; False where points are under way or have failed."""
        if not super().put(slot, state.local):
            return False
        self.t[slot], self._any[slot] = state.t, np.count_nonzero(state.weight)
        self._held[slot] = (state.omega, state.weight)
        return True

    def ask(self, slots: Numbers, streams: StreamBlock, answers: AnswerColumns | None) -> tuple[Array, Codes]:
        """Follow the agent's surrogate or the messages of others, as `Federated.ask`."""
        method = self._method
        self._receive(slots, answers)
        self.t[slots] += 1
        follow = self._followers(slots, streams)
        x, origins = np.empty((len(slots), self.dim)), np.empty(len(slots), np.int8)
        left = np.ones(len(slots), bool)
        if len(follow):
            followed, own = slots[follow], streams[follow]
            held = [self._held[slot] for slot in followed.tolist()]
            u = method.federated_queries(self._start.features, held, own)
            away = self.away(followed, u)
            far = away >= method.apart
            left[follow[far]] = False
            x[follow[far]], origins[follow[far]] = self._follow(u[far], away[far], own[far])
        if left.all():
            return super().ask(slots, streams, None)
        if left.any():
            x[left], origins[left] = super().ask(slots[left], streams[left], None)
        return x, origins

    def _receive(self, slots: Numbers, answers: AnswerColumns | None) -> None:
        """Store the last message to each agent."""
        self._got[slots] = False
        if answers is None:
            return
        some, held = slots[answers.places], self._method.held
        self._before_any[some], self._got[some] = self._any[some], True
        for slot in some.tolist():
            self._before[slot] = self._held[slot]
        names, columns = list(answers.payload), list(answers.payload.values())
        if all(len(array) == 1 for array in columns):
            one = held({name: array[0] for name, array in answers.payload.items()})
            each: Iterable[Held] = repeat(one, len(some))
        else:  # a row is copied, since it would keep those of all others
            rows = [repeat(array[0], len(some)) if len(array) == 1 else [row.copy() for row in array] for array in columns]
            each = [held(dict(zip(names, values, strict=True))) for values in zip(*rows, strict=True)]
        for slot, vectors in zip(some.tolist(), each, strict=True):
            self._held[slot] = vectors
            self._any[slot] = np.count_nonzero(vectors[1])

    def _followers(self, slots: Numbers, streams: StreamBlock) -> Numbers:
        """Return the agents that hold messages of others and follow them in this iteration, by their coins."""
        holding = self._any[slots].nonzero()[0]
        if not len(holding):
            return holding
        own = streams if len(holding) == len(slots) else streams[holding]
        chance = np.array(list(map(self._chance, self.t[slots[holding]].tolist())))
        return holding[own.uniforms("coin") > chance]

    def _follow(self, u: Array, away: Array, streams: StreamBlock) -> tuple[Array, Codes]:
        if self._method.control == "uniform":
            return uniform(streams, "uniform instead", self.dim), np.full(len(u), UNIFORM, np.int8)
        return self.unrepeated(u, away, streams, FEDERATED)

    def outbox(self, slots: Numbers, streams: StreamBlock) -> dict[str, npt.NDArray[Any]] | None:
        """Write a message about all observations of each agent."""
        method = self._method
        used = normals_for(self.n[slots], method.features)
        normals = streams.normals("message", used)
        omega, spread = self._factors[-1].draw(self, slots, self._sent_on, method.width, normals)
        return {"omega": method.messages(omega, spread, used, streams)}

    def turn(self, slots: Numbers, counts: Numbers, asked: npt.NDArray[np.bool_], forth: bool) -> None:
        """Undo a step, or do it again."""
        super().turn(slots, counts, asked, forth)
        self.t[slots] += asked if forth else -asked.astype(np.int64)
        got = slots[self._got[slots] & asked]
        self._any[got], self._before_any[got] = self._before_any[got], self._any[got]
        for slot in got.tolist():
            self._held[slot], self._before[slot] = self._before[slot], self._held[slot]

    def save(self, slots: Numbers) -> SavedStates:
        """Return states as plain data."""
        return super().save(slots)._replace(t=self.t[slots], held=[self._held[slot] for slot in slots.tolist()])

    def load(self, slots: Numbers, saved: SavedStates) -> None:
        """Store what `save` returned."""
        super().load(slots, saved)
        assert saved.t is not None and saved.held is not None
        self.t[slots] = saved.t
        for slot, held in zip(slots.tolist(), saved.held, strict=True):
            self._held[slot], self._any[slot] = held, held is not None and np.count_nonzero(held[1])


def uniform(streams: StreamBlock, purpose: str, dim: int) -> Array:
    """Draw a uniform point `(d,)` of the cube for each stream, `(k, d)`."""
    return streams.uniforms(purpose, np.full(len(streams.owners), dim)).reshape(-1, dim)


def offsets(counts: Numbers) -> Numbers:
    """Return 0, 1, ... up to each of `counts (k,)`, one after another."""
    ends = counts.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) - (ends - counts).repeat(counts)


def enlarged(array: npt.NDArray[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    """Return an array with more room, zeros where there was none."""
    if array.shape == tuple(shape):
        return array
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found
