"""Fronts and hypervolumes of several objectives, as `fedbo.surrogates.fronts` computes them."""

from fedbo.surrogates.fronts import hypervolume, hypervolumes, non_dominated

__all__ = ["hypervolume", "hypervolumes", "non_dominated"]
