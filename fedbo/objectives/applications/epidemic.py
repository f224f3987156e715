"""An epidemic in nine age groups during vaccination, from the oldest to those of twenty (Wiecek et al. 2022).

The model is that of "Testing fractional doses of COVID-19 vaccines", PNAS 119(8), 2022, in its variant with one course of
vaccination and no loss of immunity. States are shares of their age group, and time is in days from 1 to 360. The code solves
many such epidemics at once, which share their contacts and their growth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from fedbo.objectives.base import Array

AGES = 9  # [0, 10), [10, 20), ..., [70, 80), 80 and older
LATENT, INFECTIOUS = 0.2, 0.2  # per day: five days each
FIRST_DAY, LAST_DAY = 1.0, 360.0
IMMUNE = np.array([0.5, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2])  # share of each group that is immune at the start
OFFERED = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
WILLING = 0.8  # at most so many of each group are vaccinated
DELAY = 10.0  # days before the oldest group begins
SHARPNESS = 1000.0  # of the end of a group's campaign
FATALITY = 1e-2 * np.array([0.002, 0.006, 0.03, 0.08, 0.15, 0.60, 2.2, 5.1, 9.3])  # of those infected, in high-income countries
STEPS = 1077  # a third of a day each
ROWS = 512  # of a batch: keeps the campaigns of a batch below 30 MB


@dataclass(frozen=True, slots=True)
class Epidemic:
    """Initial conditions: the effective reproduction number, and the share of the susceptible that carries the virus."""

    growth: float
    carriers: float


EPIDEMICS = {"fast": Epidemic(2.0, 1e-3), "slow": Epidemic(1.1, 5e-3), "declining": Epidemic(0.99, 1e-2)}


def outcomes(people: Array, days: Array, efficacy: Array, contacts: Array, epidemic: Epidemic) -> tuple[Array, Array]:
    """Return the shares `(b,)` of b populations that have been infected, and that have died, by day 360.

    people `(b, 9)`: shares of the age groups.
    days `(b,)`: days to vaccinate everybody; infinite for no vaccination.
    efficacy `(b,)`: protected share of the vaccinated.
    contacts `(9, 9)`: daily contacts; the rows are the people who have them.
    """
    parts = [slice(begin, begin + ROWS) for begin in range(0, len(people), ROWS)]
    found = [_batch((people[part], days[part], efficacy[part]), contacts, epidemic) for part in parts]
    infected, died = (np.concatenate(values) if parts else np.empty(0) for values in zip(*found, strict=True))
    return infected, died


def vaccinated(people: Array, days: Array, time: Array) -> Array:
    """Return the share `(k, b, 9)` of each group that has been vaccinated by each `time (k,)`.

    It obeys dC/dt = delta s(t - start) s(1000 (stop - C)), with the logistic function s. Its integral is known: C plus exp(1000
    (C - stop)) / 1000 grows as delta times the softplus of t - start. Wright's omega function solves for C.
    """
    size = people * days[:, None]
    older = np.cumsum(size[:, :0:-1], axis=1)[:, ::-1]  # of groups older than each
    start = DELAY + WILLING * (1.0 + 1e-5) * np.column_stack([older, np.zeros(len(size))])
    pace = np.divide(OFFERED, size, out=np.zeros_like(size), where=np.isfinite(size) & (size > 0.0))
    gone = _softplus(time[:, None, None] - start) - _softplus(FIRST_DAY - start)
    return WILLING + _log_omega(SHARPNESS * (pace * gone - WILLING)) / SHARPNESS


def _softplus(z: Array) -> Array:
    """Return log(1 + exp(z)), without the slow logarithm where z is far from 0."""
    found = np.maximum(z, 0.0)
    near = np.abs(z) < 40.0
    found[near] = np.logaddexp(0.0, z[near])
    return found


def _log_omega(z: Array) -> Array:
    """Return the root y of y + exp(y) = z, the logarithm of Wright's omega function, to 1e-4 at worst; far below 0 it is z."""
    found, far, near = z.copy(), z > 40.0, np.abs(z) <= 40.0
    large = z[far]
    found[far] = np.log(large - np.log(large - np.log(large)))
    omega = scipy.special.wrightomega(z[near])
    found[near] = np.where(z[near] > 1.0, np.log(np.maximum(omega, 0.5)), z[near] - omega)  # the side that does not cancel
    return found


def _batch(who: tuple[Array, Array, Array], contacts: Array, epidemic: Epidemic) -> tuple[Array, Array]:
    """Go through all steps: half a step's vaccination, the epidemic, half a step's vaccination (Strang 1968)."""
    people, days, efficacy = who
    step = (LAST_DAY - FIRST_DAY) / STEPS
    times = np.concatenate([[FIRST_DAY], FIRST_DAY + step * (np.arange(STEPS) + 0.5), [LAST_DAY]])
    doses = np.diff(vaccinated(people, days, times), axis=0)
    rate = _rate(contacts, epidemic)
    carriers = (1.0 - IMMUNE) * epidemic.carriers / 2.0
    susceptible, immune, exposed, infectious = (
        np.tile(row, (len(people), 1)) for row in (1.0 - IMMUNE - carriers, IMMUNE, carriers, carriers)
    )
    unprotected, removed = np.zeros_like(susceptible), np.zeros_like(susceptible)
    for given in doses[:-1]:
        taken = given / (susceptible + immune)
        unprotected = unprotected + (1.0 - efficacy[:, None]) * taken * susceptible
        susceptible, immune = (1.0 - taken) * susceptible, (1.0 - taken) * immune
        at_risk = susceptible + unprotected
        after, exposed, infectious, gone = _spread(at_risk, exposed, infectious, rate, step)
        left = after / at_risk
        susceptible, unprotected = left * susceptible, left * unprotected
        immune, removed = immune + (1.0 - FATALITY) * gone, removed + gone
    ill = infectious + removed - carriers
    return (people * ill).sum(axis=1), (people * FATALITY * removed).sum(axis=1)


def _rate(contacts: Array, epidemic: Epidemic) -> Array:
    """Return the infections `(9, 9)` per day and contact, from a column's carriers to a row's people."""
    radius = float(np.abs(np.linalg.eigvals((1.0 - IMMUNE)[:, None] * contacts)).max())
    return contacts * epidemic.growth * INFECTIOUS / radius


def _spread(u: Array, e: Array, i: Array, rate: Array, h: float) -> tuple[Array, Array, Array, Array]:
    """Make one step of the classical Runge-Kutta method; return also the newly removed, who recovered or died."""

    def slope(u: Array, e: Array, i: Array) -> tuple[Array, Array, Array]:
        caught, fell = (i @ rate.T) * u, LATENT * e
        return -caught, caught - fell, fell - INFECTIOUS * i

    total = u + e + i
    a = slope(u, e, i)
    b = slope(*(x + 0.5 * h * k for x, k in zip((u, e, i), a, strict=True)))
    c = slope(*(x + 0.5 * h * k for x, k in zip((u, e, i), b, strict=True)))
    d = slope(*(x + h * k for x, k in zip((u, e, i), c, strict=True)))
    u, e, i = (x + h / 6.0 * (k + 2.0 * m + 2.0 * n + o) for x, k, m, n, o in zip((u, e, i), a, b, c, d, strict=True))
    return u, e, i, total - u - e - i
