"""Numbers of many random streams in one call, with the bits of `numpy.random.Philox` and its generator's methods."""

from __future__ import annotations

from math import exp, log1p
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.random._constants import (
    fe_double,
    fi_double,
    ke_double,
    ki_double,
    we_double,
    wi_double,
    ziggurat_exp_r,
    ziggurat_nor_inv_r,
    ziggurat_nor_r,
)

from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, Tuple, compiled

Array = Any
WORD = types.uint64
NUMBERS = types.Array(INT, 1, "C", readonly=True)
KEY = Tuple((WORD, WORD, WORD))  # seed, replicate and purpose
GAPS = Tuple((FLOAT, FLOAT, FLOAT, FLOAT))
PASSING = Tuple((INT[::1], FLOAT[::1], FLOAT[::1], FLOAT[::1], INT[::1], FLOAT[::1]))
_KI, _WI, _FI = np.array(ki_double), np.array(wi_double), np.array(fi_double)  # the tables of the ziggurat
_KE, _WE, _FE = np.array(ke_double), np.array(we_double), np.array(fe_double)  # those of the exponential one
_OUTER, _INVERSE = float(ziggurat_nor_r), float(ziggurat_nor_inv_r)
_FIRST, _SECOND = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)  # multipliers
_LEFT, _RIGHT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)  # what is added to the key in each turn
_ONE, _SIGN, _INDEX, _SHIFT = np.uint64(1), np.uint64(8), np.uint64(255), np.uint64(11)
_THREE, _FAR = np.uint64(3), float(ziggurat_exp_r)
_REST, _MANTISSA = np.uint64(9), np.uint64(2**52 - 1)


def _upper_half(typing_context: Any, one: Any, other: Any) -> Any:
    """Return the upper 64 bits of a product."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        first, second = (builder.zext(value, wide) for value in arguments)
        return builder.trunc(builder.lshr(builder.mul(first, second), ir.Constant(wide, 64)), ir.IntType(64))

    return WORD(WORD, WORD), generate


upper_half: Any = intrinsic(_upper_half)


@compiled()
def _fill(key: Any, owner: int, step: int, done: int, words: Array, count: int) -> None:
    """Write `count` words of a stream, a multiple of four, after its first `done`: Philox-4x64-10 (Salmon et al. 2011).

    The counter of a stream starts at (0, step, owner + 2, purpose).
    """
    for at in range(0, count, 4):
        a, b, c, d = np.uint64((done + at) // 4 + 1), np.uint64(step), np.uint64(owner + 2), key[2]
        left, right = key[0], key[1]
        for _ in range(10):
            upper, lower = upper_half(_FIRST, a), _FIRST * a
            a = upper_half(_SECOND, c) ^ b ^ left
            b = _SECOND * c
            c = upper ^ d ^ right
            d = lower
            left += _LEFT
            right += _RIGHT
        words[at], words[at + 1], words[at + 2], words[at + 3] = a, b, c, d


@compiled()
def _uniform(word: int) -> float:
    return float(word >> _SHIFT) * (1.0 / 9007199254740992.0)


@compiled(FLOAT(KEY, INT, INT))
def uniform(key: Any, owner: int, step: int) -> float:
    """Return the first uniform number of the stream of `owner` at `step`."""
    words = np.empty(4, np.uint64)
    _fill(key, owner, step, 0, words, 4)
    return float(_uniform(words[0]))


@compiled()
def _normals(key: Any, owner: int, step: int, words: Array, found: Array) -> None:
    """Write normal numbers of a stream, by the ziggurat of Marsaglia and Tsang (2000) as NumPy has it."""
    count = len(words)
    _fill(key, owner, step, 0, words, count)
    done, place = count, 0
    for i in range(len(found)):
        tail, x, rest = False, 0.0, np.uint64(0)
        while True:
            if place + 2 > count:  # a trial takes two words at most
                for left in range(place, count):
                    words[left - place] = words[left]
                kept = count - place
                _fill(key, owner, step, done, words[4:], 4)
                words[kept : kept + 4] = words[4:8]
                done, place, count = done + 4, 0, kept + 4
            word = words[place]
            place += 1
            if tail:
                far, height = -_INVERSE * log1p(-_uniform(word)), -log1p(-_uniform(words[place]))
                place += 1
                if height + height > far * far:
                    x = -(_OUTER + far) if (rest >> _SIGN) & _ONE else _OUTER + far
                    break
                continue
            index, rest = word & _INDEX, (word >> _REST) & _MANTISSA
            x = float(rest) * _WI[index]
            if (word >> _SIGN) & _ONE:
                x = -x
            if rest < _KI[index]:
                break
            tail = index == 0
            if not tail:
                below = (_FI[index - _ONE] - _FI[index]) * _uniform(words[place]) + _FI[index]
                place += 1
                if below < exp(-0.5 * x * x):
                    break
        found[i] = x


@compiled(types.void(KEY, NUMBERS, NUMBERS, NUMBERS, BOOL, FLOAT[::1]))
def numbers(key: Any, owners: Array, steps: Array, counts: Array, normal: bool, found: Array) -> None:
    """Write the first `counts (k,)` numbers, uniform or `normal`, of the streams of `owners (k,)` at `steps (k,)`, in a row."""
    at = 0
    words = np.empty(8 + 4 * (counts.max() // 4) if len(counts) else 0, np.uint64)
    for i in range(len(owners)):
        count = 8 + 4 * (counts[i] // 4)
        if normal:
            _normals(key, owners[i], steps[i], words[:count], found[at : at + counts[i]])
        else:
            _fill(key, owners[i], steps[i], 0, words, count)
            for j in range(counts[i]):
                found[at + j] = _uniform(words[j])
        at += counts[i]


@compiled()
def _word(key: Any, owner: int, words: Array, place: int) -> Any:
    """Return a word of a stream at step 0, where `words` has those of its block but for the first of one."""
    if place % 4 == 0:
        _fill(key, owner, 0, place, words, 4)
    return words[place % 4]


@compiled()
def _exponential(key: Any, owner: int, words: Array, place: int) -> tuple[float, int]:
    """Return an exponential number of a stream from its word `place` on, and the place after it, as NumPy's ziggurat does."""
    while True:
        word = _word(key, owner, words, place) >> _THREE
        index, rest = word & _INDEX, word >> _SIGN
        x = float(rest) * _WE[index]
        place += 1
        if rest < _KE[index]:
            return x, place
        uniform = _uniform(_word(key, owner, words, place))
        place += 1
        if index == 0:
            return _FAR - log1p(-uniform), place
        if (_FE[index - _ONE] - _FE[index]) * uniform + _FE[index] < exp(-x):
            return x, place


@compiled(types.void(KEY, NUMBERS, INT[::1], GAPS, PASSING, FLOAT))
def pass_times(key: Any, owners: Array, due: Array, gaps: Any, state: Any, now: float) -> None:
    """Go on in the random times of some of the `owners`, at the places `due`, until the next one is after `now`.

    `gaps` and `state` are those of `Passing`, with the words that are used and the sum of the gaps.
    """
    number, last, ends, following, used, raw = state
    even, odd, share, lasting = gaps
    words = np.empty(4, np.uint64)
    for place in due:
        owner, at = owners[place], used[place]
        if at % 4:
            _fill(key, owner, 0, at - at % 4, words, 4)
        while following[place] <= now:
            time = following[place]
            starts_away = False
            if number[place] < 0:
                time = 0.0
                if share > 0.0:
                    starts_away = not _uniform(_word(key, owner, words, at)) * share < even
                    at += 1
            else:
                last[place], ends[place] = time, time + lasting
                raw[place] += lasting
            number[place] += 1
            if not starts_away:
                gap, at = _exponential(key, owner, words, at)
                raw[place] += gap * (odd if number[place] % 2 else even)
            following[place] = time + (raw[place] - time)
        used[place] = at
