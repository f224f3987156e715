"""Settings with which Gaussian processes are fitted.

The defaults of `GPSettings` are the setting of the authors of FTS (isotropic SE, zero mean, raw y, maximum marginal likelihood
with ten restarts); `ROBUST` suits few inputs, and `SCALED` any number of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedbo.surrogates.kernels import FAMILIES

EXACT = 2.2204460492503131e-09  # SciPy's tolerance


@dataclass(frozen=True, slots=True)
class FittedParameter:
    """One positive hyperparameter: start, bounds, log-normal prior as (median, sd of the log), or fixed at start."""

    start: float
    bounds: tuple[float, float] = (1e-5, 1e5)
    prior: tuple[float, float] | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not 0.0 < low <= self.start <= high:
            raise ValueError(f"need 0 < lower bound <= start <= upper bound; got {low}, {self.start}, {high}")

    def times(self, factor: float) -> FittedParameter:
        """Return the parameter with its start and its median multiplied by a factor."""
        start, prior = self.start * factor, self.prior and (self.prior[0] * factor, self.prior[1])
        return replace(self, start=start, bounds=(self.bounds[0], max(self.bounds[1], start)), prior=prior)


@dataclass(frozen=True, slots=True)
class GPSettings:
    """How a Gaussian process is fitted; the defaults are the setting of the authors of FTS.

    growing: multiply start and median of the length scales by the square root of the number of inputs, as distances grow
      (Hvarfner et al. 2024).
    alike: standard deviation of a normal number that the logarithms of all length scales share. The common scale may then be
      far from its median while the scales stay near each other.
    spread: standard deviation, in log units, of the restarts about the start value where there is no prior.
    noisy: begin two climbs at the start values, one of them with this noise variance, or, where a start is given, one of the
      two, drawn at random. The data may be fine detail, or coarse shape and noise.
    tolerance: a climb ends with a step that gains no more than this (relative beyond 1). The evidence of some tens of values
      differs by less than a hundredth then, which is less than what they tell.
    """

    kernel: str = "se"
    ard: bool = False
    centre: bool = False
    standardise: bool = False
    length_scale: FittedParameter = field(default_factory=lambda: FittedParameter(1.0))
    growing: bool = False
    alike: float = 0.0
    noisy: float = 0.0
    variance: FittedParameter = field(default_factory=lambda: FittedParameter(0.1))
    noise_variance: FittedParameter = field(default_factory=lambda: FittedParameter(1e-4, (1e-8, 1e3)))
    restarts: int = 10
    spread: float = 1.5
    iterations: int = 200
    tolerance: float = EXACT

    def __post_init__(self) -> None:
        if self.kernel not in FAMILIES:
            raise ValueError(f"no kernel {self.kernel!r}; available: {', '.join(FAMILIES)}")

    def parameters(self, dim: int) -> list[FittedParameter]:
        """Return the parameters of a problem with `dim` inputs, in the order of the log hyperparameters."""
        scale = self.length_scale.times(dim**0.5) if self.growing else self.length_scale
        return [scale] * (dim if self.ard else 1) + [self.variance, self.noise_variance]


ROBUST = GPSettings(
    kernel="matern52",
    ard=True,
    standardise=True,
    length_scale=FittedParameter(0.3, (0.03, 3.0), prior=(0.3, 0.7)),
    variance=FittedParameter(1.0, (0.05, 20.0), prior=(1.0, 1.0)),
    noise_variance=FittedParameter(0.01, (1e-4, 1.0), prior=(0.01, 1.4)),
    restarts=1,
    tolerance=1e-5,
)

# For any number of inputs, and for values that may be free of noise.
SCALED = GPSettings(
    kernel="matern52",
    ard=True,
    standardise=True,
    length_scale=FittedParameter(1.0, (0.005, 100.0), prior=(1.0, 0.5)),
    growing=True,
    alike=0.7,
    variance=FittedParameter(1.0, (0.05, 20.0), prior=(1.0, 1.0)),
    noise_variance=FittedParameter(1e-4, (1e-8, 1.0), prior=(1e-4, 3.0)),
    noisy=0.3,
    restarts=0,
    tolerance=1e-5,
)

# For objectives that are smooth, and perhaps free of noise: a squared exponential, and hardly a floor under the noise.
# With a floor of 1e-8 the fit ended on it, and maxima of smooth means were 1e-3 off (ADMM, docs/algorithms/admm.md).
SMOOTH = replace(
    ROBUST,
    kernel="se",
    variance=FittedParameter(1.0, (0.05, 1e3), prior=(1.0, 2.0)),
    noise_variance=FittedParameter(1e-3, (1e-10, 1.0), prior=(1e-3, 4.0)),
    tolerance=EXACT,
)

# In few inputs points are dense enough for fine detail, and real objectives have it near faces.
FINE = replace(SCALED, length_scale=replace(SCALED.length_scale, start=0.3, prior=(0.3, 0.7)), growing=False, alike=0.0)
