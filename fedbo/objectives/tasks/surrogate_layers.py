"""The arrays of a surrogate network: its layers for one point, and how columns are transformed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array

Codes = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
SMALL = 1e-12  # added before a logarithm


class Columns(NamedTuple):
    """How columns are transformed.

    low, width: the range of the transformed columns.
    log: places of the columns on a logarithmic scale.
    nexp, scale: places of the columns that become exp(-x / scale), and their scales.
    """

    low: Array
    width: Array
    log: Codes
    nexp: Codes
    scale: Array

    def before(self, x: Array) -> Array:
        """Transform inputs `(…, c)`; their range is folded into the layer that follows."""
        x = np.array(x, dtype=np.float64)
        x[..., self.log] = np.log(x[..., self.log] + SMALL)
        x[..., self.nexp] = np.exp(-x[..., self.nexp] / self.scale) - SMALL
        return x

    def after(self, y: Array) -> Array:
        """Map outputs `(…, o)` from [0, 1] to their original scales."""
        y = y * self.width + self.low
        y[..., self.log] = np.exp(y[..., self.log]) - SMALL
        y[..., self.nexp] = -np.log(y[..., self.nexp] + SMALL) * self.scale
        return y


class PointLayers(NamedTuple):
    """The layers for one point: b blocks of u units, a hidden vector of length h, c numbers, o outputs.

    `factor` and `offset (b + 1, h)` are the normalisations before each block and before the head. The weights of blocks have 32
    bits, as published: `gate (b, h, u)`, which is cut off at 0, `value (b, u, h)`, which is multiplied with it, `narrow
    (b, u, h)`. `first (c, h)` has the range of the inputs folded in; `embedded` are the rows of all categories, one below the
    other.
    """

    embedded: Array
    first: Array
    first_offset: Array
    factor: Array
    offset: Array
    gate: Weights
    gate_offset: Array
    value: Weights
    value_offset: Array
    narrow: Weights
    narrowed: Array
    head: Array
    head_offset: Array
