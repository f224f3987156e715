"""Published test functions with their extremes: each a formula over a box, negated if its source minimises it.

Every function takes points `(n, d)` in native units and returns values `(n,)` to be maximised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from fedbo.objectives.base import Array, Metric, Parameter


@dataclass(frozen=True, eq=False)
class Formula:
    """A function over a box, its largest value with the places `maximisers (k, d)` in native units, and a lower bound.

    `worst` bounds the values over the box from below; it is the least value itself wherever that has a closed form. `cusps`
    are the places on a line where the function has a cusp that points upwards, which no search finds to the last digit.
    """

    function: Callable[[Array], Array] = field(repr=False)
    parameters: tuple[Parameter, ...]
    best: float
    worst: float
    maximisers: Array
    metric: Metric = Metric("value", sign=-1)
    cusps: tuple[float, ...] = ()

    @cached_property
    def box(self) -> tuple[Array, Array]:
        """Return the lower ends `(d,)` of the box, and its widths `(d,)`."""
        low, high = (np.array([getattr(parameter, end) for parameter in self.parameters]) for end in ("low", "high"))
        return low, high - low

    @property
    def peak(self) -> tuple[Array, float]:
        """Return the maximiser `(d,)` in the unit cube that is farthest from its faces, and its distance."""
        low, width = self.box
        unit = (self.maximisers - low) / width
        margins = np.minimum(unit, 1.0 - unit).min(axis=1)
        chosen = int(np.argmax(margins))
        return unit[chosen], float(margins[chosen])


def garland() -> Formula:
    """Return the garland of Valko, Carpentier and Munos 2013 (StoSOO, section 4) on [0, 1].

    It has a cusp of exponent 1/2 at each zero of sin(60 x), and the best is the one next to 1/2, at pi / 6. A grid of a million
    points finds only 0.996857 of it.
    """
    box, top = (Parameter("x", 0.0, 1.0),), np.pi / 6.0
    cusps = tuple(np.pi * k / 60.0 for k in range(20))
    return Formula(
        _garland, box, 4.0 * top * (1.0 - top), worst=0.0, maximisers=np.array([[top]]), metric=Metric("value"), cusps=cusps
    )


def _garland(x: Array) -> Array:
    z = x[:, 0]
    made: Array = 4.0 * z * (1.0 - z) * (1.0 - 0.25 * np.sqrt(np.abs(np.sin(60.0 * z))))
    return made


def double_sine(rho1: float, rho2: float, tmax: float) -> Formula:
    """Return the difficult function of Grill, Valko and Munos 2015 (POO, section 4) on [0, 1]: 0 at `tmax`, negative elsewhere.

    It lies between -u^-log2(rho2) and -u^-log2(rho1), u = 2 |x - tmax|, and touches both again and again as u halves.
    """
    far = 2.0 * max(tmax, 1.0 - tmax)
    worst = -max(far**-power for power in np.log2([rho1, rho2]))
    function = partial(_double_sine, rho1=rho1, rho2=rho2, tmax=tmax)
    return Formula(
        function,
        (Parameter("x", 0.0, 1.0),),
        0.0,
        worst=float(worst),
        maximisers=np.array([[tmax]]),
        metric=Metric("value"),
        cusps=(tmax,),
    )


def _double_sine(x: Array, rho1: float, rho2: float, tmax: float) -> Array:
    u = 2.0 * np.abs(x[:, 0] - tmax)
    away = np.where(u > 0.0, u, 1.0)
    wave = 0.5 * (1.0 + np.sin(np.pi * np.log2(away)))
    upper, lower = away ** -np.log2(rho1), away ** -np.log2(rho2)
    return np.where(u > 0.0, wave * (lower - upper) - lower, 0.0)


def himmelblau() -> Formula:
    """Return minus Himmelblau's function (1972) on [-5, 5]^2: four maximisers of 0; the worst corner is (5, 5)."""
    others = (
        (-2.805118086952745, 3.131312518250573),
        (-3.779310253377747, -3.28318599128617),
        (3.584428340330492, -1.848126526964404),
    )
    return Formula(_himmelblau, _box(2, 5.0), 0.0, -890.0, np.array([(3.0, 2.0), *others]))


def _himmelblau(x: Array) -> Array:
    made: Array = -((x[:, 0] ** 2 + x[:, 1] - 11.0) ** 2) - (x[:, 0] + x[:, 1] ** 2 - 7.0) ** 2
    return made


ACKLEY_REACH = 32.768


def ackley(d: int) -> Formula:
    """Return minus Ackley's function (1987) with a = 20, b = 0.2, c = 2 pi on [-32.768, 32.768]^d: 0 at the origin."""
    worst = -20.0 * (1.0 - np.exp(-0.2 * ACKLEY_REACH)) - np.e + np.exp(-1.0)  # the cosines are -1 nowhere farther out
    return Formula(_ackley, _box(d, ACKLEY_REACH), 0.0, float(worst), np.zeros((1, d)))


def _ackley(x: Array) -> Array:
    bowl = -20.0 * np.expm1(-0.2 * np.sqrt((x * x).mean(axis=1)))
    made: Array = -bowl - np.e + np.exp(np.cos(2.0 * np.pi * x).mean(axis=1))
    return made


RASTRIGIN_WORST = -40.3532901938397  # of one coordinate, at 4.52299366


def rastrigin(d: int) -> Formula:
    """Return minus Rastrigin's function (1974) with A = 10 on [-5.12, 5.12]^d: 0 at the origin."""
    return Formula(_rastrigin, _box(d, 5.12), 0.0, RASTRIGIN_WORST * d, np.zeros((1, d)))


def _rastrigin(x: Array) -> Array:
    made: Array = -(x * x + 10.0 * (1.0 - np.cos(2.0 * np.pi * x))).sum(axis=1)
    return made


def branin() -> Formula:
    """Return minus the Branin function (Dixon and Szegö 1978) on its usual box: three maximisers; worst corner (-5, 0)."""
    box = (Parameter("x1", -5.0, 10.0), Parameter("x2", 0.0, 15.0))
    places = np.array([[np.pi, 2.275], [-np.pi, 12.275], [3.0 * np.pi, 2.475]])
    worst = float(branin_values(np.array([[-5.0, 0.0]]))[0])
    return Formula(branin_values, box, -10.0 / (8.0 * np.pi), worst, places)


def branin_values(x: Array) -> Array:
    """Return minus the Branin function at points `(n, 2)`, in the box or not."""
    first, second = x[:, 0], x[:, 1]
    valley = second - 5.1 / (4.0 * np.pi**2) * first**2 + 5.0 / np.pi * first - 6.0
    made: Array = -(valley**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(first) + 10.0)
    return made


HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
# Dixon and Szegö 1978: for each number of dimensions A `(4, d)`, P `(4, d)` in units of 1e-4, and the maximiser, which we
# found by Newton's method from the published digits.
HARTMANN = {
    3: (
        np.array([[3.0, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]]),
        np.array([[3689.0, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]),
        np.array([[0.11458887665506896, 0.5556488946169301, 0.8525469846866774]]),
    ),
    6: (
        np.array(
            [[10.0, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
        ),
        np.array(
            [
                [1312.0, 1696, 5569, 124, 8283, 5886],
                [2329, 4135, 8307, 3736, 1004, 9991],
                [2348, 1451, 3522, 2883, 3047, 6650],
                [4047, 8828, 8732, 5743, 1091, 381],
            ]
        ),
        np.array(
            [[0.201689511006705, 0.150010691823458, 0.476873974221897, 0.275332430494056, 0.311651616600113, 0.657300534065620]]
        ),
    ),
}


def hartmann(d: int) -> Formula:
    """Return minus the Hartmann function (Dixon and Szegö 1978) on [0, 1]^d, d = 3 or 6; all its values are above 0."""
    widths, centres, places = HARTMANN[d]
    function = partial(_hartmann, widths=widths, centres=centres)
    parameters = tuple(Parameter(f"x{i + 1}", 0.0, 1.0) for i in range(d))
    return Formula(function, parameters, float(function(places)[0]), 0.0, places)


def _hartmann(x: Array, widths: Array, centres: Array) -> Array:
    gap = x[:, None, :] - 1e-4 * centres
    return np.asarray(np.exp(-(widths * gap * gap).sum(axis=2)) @ HEIGHTS)


def _box(d: int, reach: float) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"x{i + 1}", -reach, reach) for i in range(d))
