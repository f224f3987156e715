"""The sampler of fedbo as a package of OptunaHub."""

from fedbo.optuna import Sampler as Sampler
