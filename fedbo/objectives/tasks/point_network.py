"""The network of `surrogate_network` at one point, compiled by Numba: `outputs`.

At one point the products are with vectors, and most of the time goes into reading the matrices. Weights are therefore read as
the published 32 bits. A block multiplies two halves, and the half without the gate is computed only where the gate is open.
Sums have a fixed order on every processor. Import this module where it is called, since Numba takes half a second to import.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import Any, TypeVar, cast

import numba
import numpy as np

from fedbo.objectives.tasks.surrogate_layers import SMALL, Columns, PointLayers

Array = Any
Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compile a function at its first call, unless the cache on disk has it."""
    return cast(Function, numba.njit(cache=True, error_model="numpy")(function))


@_compiled
def outputs(numbers: Array, rows: Array, layers: PointLayers, inputs: Columns, ends: Columns) -> Array:
    """Return the outputs `(o,)` at numbers `(c,)` and `rows (k,)` of the embedded categories; `numbers` are overwritten."""
    for column in inputs.log:
        numbers[column] = log(numbers[column] + SMALL)
    for place, column in enumerate(inputs.nexp):
        numbers[column] = exp(-numbers[column] / inputs.scale[place]) - SMALL
    hidden = layers.first_offset.copy()
    for column in range(len(numbers)):
        _add(hidden, numbers[column], layers.first[column])
    for row in rows:
        _add(hidden, 1.0, layers.embedded[row])
    units = layers.gate.shape[2]
    normal, gate, alive, sums = np.empty(len(hidden)), np.empty(units), np.empty(units, np.int64), np.empty((units, 16))
    for block in range(len(layers.gate)):
        _block(hidden, layers, block, normal, gate, alive, sums)
    last = layers.head_offset.copy()
    for k in range(len(hidden)):
        _add(last, max(hidden[k] * layers.factor[-1, k] + layers.offset[-1, k], 0.0), layers.head[k])
    for k in range(len(last)):
        last[k] = 1.0 / (1.0 + exp(-last[k])) * ends.width[k] + ends.low[k]
    for column in ends.log:
        last[column] = exp(last[column]) - SMALL
    for place, column in enumerate(ends.nexp):
        last[column] = -log(last[column] + SMALL) * ends.scale[place]
    return last


@_compiled
def _add(total: Array, factor: float, row: Array) -> None:
    """Add a row times a factor."""
    for k in range(len(total)):
        total[k] += factor * row[k]


@_compiled
def _block(hidden: Array, layers: PointLayers, block: int, normal: Array, gate: Array, alive: Array, sums: Array) -> None:
    """Add a block's output to `hidden (h,)`; the other arrays are overwritten."""
    for k in range(len(hidden)):
        normal[k] = hidden[k] * layers.factor[block, k] + layers.offset[block, k]
        hidden[k] += layers.narrowed[block, k]
    _gate(gate, normal, layers.gate[block], layers.gate_offset[block])
    count = 0
    for unit in range(len(gate)):
        alive[count] = unit
        count += gate[unit] > 0.0
    for place in range(count):
        _products(normal, layers.value[block, alive[place]], sums[place])
    for place in range(count):
        unit = alive[place]
        # A place is not beyond its unit, so that no gate is overwritten which is still to be read.
        gate[place] = (_sum(sums[place]) + layers.value_offset[block, unit]) * gate[unit]
    _add_rows(hidden, gate[:count], layers.narrow[block], alive)


@_compiled
def _gate(gate: Array, normal: Array, weights: Array, offset: Array) -> None:
    """Write the gate `(u,)` before its cut-off at 0, of weights `(h, u)`, eight rows at a time."""
    for unit in range(len(gate)):
        gate[unit] = offset[unit]
    for k in range(0, len(normal), 8):
        n0, n1, n2, n3 = normal[k], normal[k + 1], normal[k + 2], normal[k + 3]
        n4, n5, n6, n7 = normal[k + 4], normal[k + 5], normal[k + 6], normal[k + 7]
        w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        w4, w5, w6, w7 = weights[k + 4], weights[k + 5], weights[k + 6], weights[k + 7]
        for unit in range(len(gate)):
            low = (n0 * w0[unit] + n1 * w1[unit]) + (n2 * w2[unit] + n3 * w3[unit])
            high = (n4 * w4[unit] + n5 * w5[unit]) + (n6 * w6[unit] + n7 * w7[unit])
            gate[unit] += low + high


@_compiled
def _products(x: Array, row: Array, sums: Array) -> None:
    """Write the product of two vectors of length 128, as 16 sums of eight products each."""
    for i in range(16):
        first = (x[i] * row[i] + x[i + 16] * row[i + 16]) + (x[i + 32] * row[i + 32] + x[i + 48] * row[i + 48])
        second = (x[i + 64] * row[i + 64] + x[i + 80] * row[i + 80]) + (x[i + 96] * row[i + 96] + x[i + 112] * row[i + 112])
        sums[i] = first + second


@_compiled
def _sum(sums: Array) -> float:
    """Add 16 numbers, which are overwritten, halves first."""
    for i in range(8):
        sums[i] += sums[8 + i]
    return float(((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7])))


@_compiled
def _add_rows(total: Array, factors: Array, rows: Array, chosen: Array) -> None:
    """Add the chosen rows times their factors, one after the other; eight are read at once."""
    whole = len(factors) // 8 * 8
    for k in range(0, whole, 8):
        f0, f1, f2, f3 = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        f4, f5, f6, f7 = factors[k + 4], factors[k + 5], factors[k + 6], factors[k + 7]
        r0, r1, r2, r3 = rows[chosen[k]], rows[chosen[k + 1]], rows[chosen[k + 2]], rows[chosen[k + 3]]
        r4, r5, r6, r7 = rows[chosen[k + 4]], rows[chosen[k + 5]], rows[chosen[k + 6]], rows[chosen[k + 7]]
        for i in range(len(total)):
            half = (((total[i] + f0 * r0[i]) + f1 * r1[i]) + f2 * r2[i]) + f3 * r3[i]
            total[i] = (((half + f4 * r4[i]) + f5 * r5[i]) + f6 * r6[i]) + f7 * r7[i]
    for k in range(whole, len(factors)):
        _add(total, factors[k], rows[chosen[k]])
