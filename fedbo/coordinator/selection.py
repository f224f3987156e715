"""Client selection: which agents are asked for a message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Useful
from fedbo.algorithms.returned import usefulness_of
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError, unknown
from fedbo.settings.plugins import Catalogue, settings_of
from fedbo.settings.ranges import OneOf, check

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
COINS = ("all", "poisson")  # they ask each agent by itself, and no number of agents


class Candidates(NamedTuple):
    """What the coordinator knows of `n` agents that it may ask; NaN where it knows nothing.

    - `agents (n,)`: their numbers, ascending.
    - `lasted (n,)`: the duration of the last step of each.
    - `heard (n,)`: how many messages of each took effect; `age (n,)`: rounds since the last of them was begun, and
      `reported (n,)`: the time at which it arrived.
    - `useful (n,)`: how useful its messages are, as the method tells (`Useful`).
    - `number`: that of the open round.
    - `asked (n,)`: how often each was asked before.
    """

    agents: Numbers
    lasted: Floats
    heard: Floats
    age: Floats
    useful: Floats
    number: int
    asked: Floats
    reported: Floats


class Chooser(Protocol):
    """A choice of agents by what is known of them. It is a frozen dataclass whose fields are its settings."""

    def choose(self, known: Candidates, count: int, rng: np.random.Generator) -> Numbers:
        """Return the places `(count,)` of the chosen ones among the candidates, each once."""


@dataclass(frozen=True, slots=True)
class Fraction:
    """Uniformly drawn agents."""

    def choose(self, known: Candidates, count: int, rng: np.random.Generator) -> Numbers:
        """Draw without replacement."""
        return rng.choice(len(known.agents), count, replace=False)


@dataclass(frozen=True, slots=True)
class Speed:
    """Preferably fast agents: with probability proportional to min(1, T / t)^`penalty`, and some uniformly drawn ones.

    t is an agent's last duration and T their median (after Oort, Lai et al. 2021, section 4.2, its statistical utility taken as
    equal).
    """

    explore: float = 0.1
    penalty: float = 2.0

    def choose(self, known: Candidates, count: int, rng: np.random.Generator) -> Numbers:
        """Draw by weights, then uniformly among the others."""
        return _drawn(self.haste(known), count, self.explore, rng)

    def haste(self, known: Candidates) -> Floats:
        """Return the factor of speed of each candidate `(n,)`; 1 where no duration is known."""
        typical = float(np.nanmedian(known.lasted)) if not np.isnan(known.lasted).all() else 1.0
        lasted = np.where(np.isnan(known.lasted), typical, known.lasted)
        return np.asarray(np.minimum(1.0, typical / np.maximum(lasted, 1e-300)) ** self.penalty)


@dataclass(frozen=True, slots=True)
class Usefulness(Speed):
    """Preferably useful and fast agents (Oort, Lai et al. 2021, algorithm 1), and some that have not been heard yet.

    The weight of an agent is (u + `age` sqrt(log R / r)) min(1, T / t)^`penalty`: u is its usefulness as the method tells it,
    scaled to [0, 1] over the candidates, R the number of the round, and r that of its last message. The part `explore` is
    drawn among agents that have not been heard, uniformly.
    """

    age: float = 0.3

    def choose(self, known: Candidates, count: int, rng: np.random.Generator) -> Numbers:
        """Draw new agents uniformly, and the others by weights."""
        new, old = np.flatnonzero(known.heard == 0), np.flatnonzero(known.heard > 0)
        many = min(len(new), max(count - len(old), math.floor(self.explore * count)))
        first = rng.choice(new, many, replace=False)
        useful = np.nan_to_num(known.useful[old], nan=np.nan if np.isnan(known.useful).all() else np.nanmin(known.useful))
        useful = np.nan_to_num((useful - useful.min(initial=np.inf)) / max(float(np.ptp(useful)) if len(old) else 0.0, 1e-300))
        last = np.maximum(known.number - known.age[old], 1.0)
        weights = (useful + self.age * np.sqrt(math.log(max(known.number, 1)) / last)) * self.haste(known)[old]
        return np.concatenate([first, old[_drawn(np.maximum(weights, 1e-9), count - many, 0.0, rng)]])


@dataclass(frozen=True, slots=True)
class Tiers:
    """Agents of one tier of speed in each round, uniformly drawn (TiFL, Chai et al. 2020, section 4.2).

    Agents whose duration is known are cut into `tiers` of about equal size; those that are not heard yet are one of their own.
    A round draws the tier uniformly. A tier with fewer agents than are asked is filled with the next ones in speed.
    """

    tiers: int = 5

    def choose(self, known: Candidates, count: int, rng: np.random.Generator) -> Numbers:
        """Draw a tier, then agents in it."""
        unknown_, order = np.isnan(known.lasted), np.argsort(known.lasted, kind="stable")  # NaN comes last
        cuts = [part for part in np.array_split(order[: len(order) - unknown_.sum()], self.tiers) if len(part)]
        cuts += [order[len(order) - unknown_.sum() :]] if unknown_.any() else []
        place = int(rng.integers(len(cuts)))
        own, others = cuts[place], np.concatenate([*cuts[place + 1 :], *cuts[:place][::-1], np.zeros(0, np.int64)])
        drawn: Numbers = rng.choice(own, min(count, len(own)), replace=False)
        return np.concatenate([drawn, others[: count - len(drawn)].astype(np.int64)])


def _drawn(weights: Floats, count: int, explore: float, rng: np.random.Generator) -> Numbers:
    """Draw without replacement by exponential races, the key of each Exp(1) over its weight; then a part uniformly."""
    exploit = count - math.floor(explore * count)
    ranked = np.argsort(rng.standard_exponential(len(weights)) / np.maximum(weights, 1e-300), kind="stable")
    rest = np.sort(ranked[exploit:])
    return np.concatenate([ranked[:exploit], rng.choice(rest, count - exploit, replace=False) if count > exploit else rest[:0]])


CHOOSERS = {"fraction": Fraction, "speed": Speed, "usefulness": Usefulness, "tiers": Tiers}
choosers = Catalogue[type[Any]]("selections", CHOOSERS, partial(settings_of, Chooser))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which agents are asked to send in a round.

    The `others` "work": they continue locally and send nothing; or they are "idle" until they are asked (`idles`).

    `who` is "all"; "poisson": each with probability `share`, independently; or it asks a `share` of the agents that begin the
    round: "fraction" uniformly, "speed" preferably fast ones (`Speed`), "usefulness" preferably useful and fast ones
    (`Usefulness`), "tiers" those of one tier of speed (`Tiers`), or a plug-in.
    """

    who: str = "all"
    """All, independent coins, or how a share is chosen, also by a plug-in."""
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the agents that is asked."""
    explore: Annotated[float, Ge(0), Le(1)] = 0.1
    """With speed and usefulness: part of the share that is drawn uniformly."""
    penalty: Annotated[float, Ge(0)] = 2.0
    """With speed and usefulness: exponent of the preference for fast agents."""
    others: Annotated[str, OneOf(("work", "idle"))] = "work"
    """Whether agents that are not asked work or idle."""
    concurrency: Annotated[int, Ge(1)] | None = None
    """Without rounds: agents that work at once; others are drawn as they report. Default: all."""
    age: Annotated[float, Ge(0)] = 0.3
    """With usefulness: weight of the rounds since an agent's last message."""
    tiers: Annotated[int, Ge(2)] = 5
    """With tiers: their number."""
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    """With a plug-in: its settings."""

    def __post_init__(self) -> None:
        check(self)
        if self.who not in COINS and self.who not in choosers:
            raise SettingError("who", words := unknown("selection", self.who, (*COINS, *choosers)), self.who, message=words)
        if self.others == "idle" and self.who in COINS:
            remedy = 'set who = "fraction", "speed", "usefulness" or "tiers" for idle agents'
            raise SettingError("others", 'must be "work" for this selection', self.others, remedy)
        self.chooser()

    @property
    def idles(self) -> bool:
        """Check whether only the selected agents work in a round."""
        return self.others == "idle"

    @property
    def is_informed(self) -> bool:
        """Check whether the choice depends on what is known of agents."""
        return self.who not in (*COINS, "fraction")

    def chooser(self) -> Chooser:
        """Return what chooses a share; SettingError where it does not take its settings."""
        made = Fraction if self.who in COINS else choosers[self.who]
        names = [one.name for one in fields(made)]
        if made in CHOOSERS.values():
            if self.settings:
                raise SettingError("settings", "are for plug-ins; set the keys of [exchange.selection]", self.settings)
            return made(**{name: getattr(self, name) for name in names})
        if strange := self.settings.keys() - set(names):
            words = f"'{self.who}' has no setting '{min(strange)}'; available: {', '.join(names) or 'none'}"
            raise SettingError("settings", words, self.settings)
        return made(**self.settings)

    def of_round(self, agents: Sequence[int] | Numbers, known: Knowledge, streams: Streams) -> set[int]:
        """Select among the `agents` that begin a round."""
        if self.who == "all" or not len(agents):
            return {int(agent) for agent in agents}
        if self.who == "poisson":
            return {int(agent) for agent in agents if self.of_step(streams.of(agent))}
        return self.of_number(agents, max(1, round(self.share * len(agents))), known, streams)

    def of_number(self, agents: Sequence[int] | Numbers, count: int, known: Knowledge, streams: Streams) -> set[int]:
        """Select so many of the `agents`."""
        told = known.of(np.asarray(agents, dtype=np.int64), self.is_informed)
        chosen = {int(told.agents[place]) for place in self.chooser().choose(told, count, streams.rng("selection"))}
        if self.is_informed:
            known.state.asked.update({agent: known.state.asked.get(agent, 0) + 1 for agent in sorted(chosen)})
        return chosen

    def of_step(self, streams: Streams) -> bool:
        """Check whether one agent is asked at one step, where there are no rounds."""
        return self.who == "all" or (streams.uniform("selection") < self.share)


class Knowledge(NamedTuple):
    """Where what is known of agents is found: in the records of the core's `state`, and in the `method`'s own."""

    state: Any
    method: Any

    def of(self, agents: Numbers, is_informed: bool) -> Candidates:
        """Return what is known of some agents."""
        nothing = np.full(len(agents), np.nan)
        number = self.state.rounds.number
        told = Candidates(
            agents, lasted=nothing, heard=nothing, age=nothing, useful=nothing, number=number, asked=nothing, reported=nothing
        )
        if not is_informed:
            return told
        records = {one.number: one for one in self.state.agents.every()}
        found = [records.get(int(agent)) for agent in agents]
        lasted = np.array([np.nan if one is None or one.last_duration is None else one.last_duration for one in found])
        heard = np.array([0.0 if one is None else float(len(one.steps_accepted)) for one in found])
        age = np.array([np.nan if one is None or one.newest_base < 0 else float(number - one.newest_base) for one in found])
        asked = np.array([float(self.state.asked.get(int(agent), 0)) for agent in agents])
        reported = np.array([np.nan if one is None or one.reported < 0 else one.reported for one in found])
        told = told._replace(lasted=lasted, heard=heard, age=age, asked=asked, reported=reported)
        if isinstance(self.method, Useful) and self.method.tells_usefulness:
            told = told._replace(useful=usefulness_of(self.method, self.state.server, agents))
        return told
