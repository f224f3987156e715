"""Fractional doses: each country seeks the share of a full vaccine dose that keeps most of its people from infection.

The model is that of Wiecek et al. 2022 (see `epidemic.py`); a smaller dose reaches people sooner and protects fewer of them.
Countries differ by their age pyramids.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le, Lt

from fedbo.objectives.applications.epidemic import AGES, EPIDEMICS, outcomes
from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require_agent
from fedbo.objectives.datasets.data import locate
from fedbo.objectives.models.families import Noise
from fedbo.objectives.space import inside

COUNTRIES = 201  # and areas; codes from 900 on are regions and groups of countries
EXPONENT = (
    0.438  # of antibodies in the dose: least squares through the origin of log-log over the doses below 1 in nab_doses.csv
)
KEPT = 4096  # doses, or lists of them, whose outcomes a process remembers


@dataclass(frozen=True, slots=True)
class Campaign:
    """Facts that all countries share: the epidemic, the `days` that everybody's full dose would take, efficacies."""

    epidemic: str
    days: float
    efficacy: float
    exponent: float


@dataclass(frozen=True, eq=False)
class Country:
    """One country: the share of its people who stay uninfected, as a function of the dose."""

    place: int
    countries: int
    campaign: Campaign
    noise: Noise
    parameters: tuple[Parameter, ...] = field(repr=False)
    best_value: float | None = None

    @property
    def name(self) -> str:
        """Return the country's name."""
        return populations()[self.place].name

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(1,)`."""
        return float(self.evaluate_many(x, 1, rng)[0])

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` noisy values at x `(1,)`."""
        return self.score(x) + self.noise.draws(rng, count)

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        return float(self.scores(inside(self.parameters, x)[None])[0])

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, 1)`, from a batch of all countries, which share the doses."""
        doses = inside(self.parameters, x)[:, 0]
        return np.array(_everywhere(self.campaign, self.countries, doses.tobytes())[self.place])


@dataclass(frozen=True)
class Vaccine(CountedFederation):
    """Fractional vaccine doses: each country lowers its share of infected people within a year.

    agents: the number of countries, the most populous first.
    epidemic: "fast", "slow" or "declining".
    days: days to give everybody a full dose.
    efficacy: protected share after a full dose.
    exponent: a dose f leaves f to this exponent of the antibodies.
    log: make the axis geometric.
    noise: variance of normal noise.
    half_width: half width of uniform noise.
    """

    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("infected", sign=-1, offset=1.0)

    agents: Annotated[int, Ge(1), Le(COUNTRIES), f"there are {COUNTRIES} countries"] = 25
    """Most populous countries that take part."""
    epidemic: Literal["fast", "slow", "declining"] = "fast"
    """Reproduction number at the start: 2, 1.1 or 0.99."""
    days: Annotated[float, Ge(1.0), Le(1e5)] = 400.0
    """Days that full doses for everybody would take."""
    efficacy: Annotated[float, Ge(0.35), Le(0.98), "the curve covers no other values"] = 0.95
    """Efficacy of the full dose."""
    exponent: Annotated[float, Ge(0.0), Le(10.0)] = EXPONENT
    """Exponent of antibodies in the dose."""
    least: Annotated[float, Ge(0.01), Lt(1.0)] = 0.05
    """Smallest dose, as a share of the full one."""
    log: bool = False
    """Whether the axis is geometric."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of normal noise."""
    half_width: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Half the width of uniform noise."""

    @property
    def dense(self) -> int:
        """Return the number of points of a search for the best dose: few, since the functions are smooth."""
        return 64

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Name the countries."""
        return tuple(one.name for one in populations()[: self.agents])

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the dose as a share of the full one."""
        return (Parameter("dose", self.least, 1.0, self.log),)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Country:
        """Build one country's objective, whichever streams there are."""
        require_agent(agent, self.agents)
        populations()  # asks for the data here, and not in the middle of a run
        campaign = Campaign(self.epidemic, self.days, self.efficacy, self.exponent)
        return Country(agent, self.agents, campaign, Noise(self.noise, self.half_width), self.parameters)


@dataclass(frozen=True, eq=False, slots=True)
class Population:
    """A country in 2020: its name, its people, and the shares `(9,)` of the age groups."""

    name: str
    people: float
    shares: Array


def uninfected(campaign: Campaign, shares: Array, doses: Array) -> Array:
    """Return the share `(b,)` that is never infected, of populations with age `shares (b, 9)`, for doses `(b,)`.

    A dose f makes the campaign 1 / f times as fast.
    """
    days, efficacy = campaign.days * doses, protection(campaign.efficacy, doses**campaign.exponent)
    infected, _ = outcomes(shares, days, efficacy, contacts(), EPIDEMICS[campaign.epidemic])
    return 1.0 - infected


def protection(efficacy: float, ratio: Array) -> Array:
    """Return the remaining efficacy `(n,)` when antibodies fall to `ratio (n,)` of those of a dose with an `efficacy`.

    Below the measured curve it stays at the curve's least value, 0.34, as in the published analysis.
    """
    antibodies, protected = _curve()
    full = np.interp(100.0 * efficacy, *_ascending(protected, antibodies))
    return np.asarray(np.interp(full * ratio, antibodies, protected) / 100.0)


@lru_cache(maxsize=KEPT)
def _everywhere(campaign: Campaign, countries: int, packed: bytes) -> Array:
    """Return the values `(countries, n)` at n doses."""
    doses = np.frombuffer(packed)
    shares = np.array([one.shares for one in populations()[:countries]])
    values = uninfected(campaign, np.repeat(shares, len(doses), axis=0), np.tile(doses, countries))
    return values.reshape(countries, len(doses))


@lru_cache(maxsize=1)
def populations() -> tuple[Population, ...]:
    """Read the countries and areas, those with the most people first."""
    rows = _read("population_by_age_2020.csv")[1:]
    counted = [(row[1], np.array(row[2 : 2 + AGES], dtype=np.float64)) for row in rows if int(row[0]) < 900]
    made = [Population(name, float(people.sum()), people / people.sum()) for name, people in counted]
    return tuple(sorted(made, key=lambda one: -one.people))


@lru_cache(maxsize=1)
def contacts() -> Array:
    """Read the mean daily contacts `(9, 9)`, row by row of who has them (Mossong et al. 2008)."""
    return np.array([row[1 : 1 + AGES] for row in _read("polymod_contact_matrix.csv")[1:]], dtype=np.float64)


@lru_cache(maxsize=1)
def _curve() -> tuple[Array, Array]:
    """Read antibodies, as multiples of a convalescent's, and the efficacy in percent, ascending (Khoury et al. 2021)."""
    points = np.array(_read("nab_efficacy_curve.csv"), dtype=np.float64)
    return _ascending(points[:, 0], points[:, 1])


def _ascending(x: Array, y: Array) -> tuple[Array, Array]:
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _read(name: str) -> list[list[str]]:
    with Path(locate("covid") / name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.reader(file) if row]


FEDERATIONS = {"vaccine": Vaccine}
