"""The search spaces of GPU kernels of the BAT benchmark hub: their choices, and which combinations its authors left out.

The conditions are the publisher's. The configurations that they allow are those of its tables (tests/objectives/tasks).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbo.objectives.base import Parameter
from fedbo.objectives.typed_spaces.typed import Rule, Space

Choices = dict[str, tuple[int, ...]]
Condition = tuple[tuple[str, ...], Callable[..., bool]]
MOST_THREADS = 1024  # in a block
_NEWER = ("A100", "A4000", "A6000", "MI250X", "W6600", "W7800")
_OLDER = ("RTX_2080_Ti", "RTX_3060_laptop", "RTX_3090", "RTX_Titan")


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel that was measured on several GPUs.

    choices: the choices of each parameter, in ascending order.
    gpus: the GPUs, each of which is a site.
    conditions: names of parameters, and whether their values may be combined.
    unordered: parameters whose choices are names in disguise.
    needs: pairs of a parameter that is active only where the other one is above its first choice.
    """

    name: str
    choices: Choices
    gpus: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    unordered: tuple[str, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()

    @cached_property
    def space(self) -> Space:
        """Return the typed space; every parameter is an ordinal or a category. The default is the first that is allowed."""
        names, sizes = list(self.choices), [len(each) for each in self.choices.values()]
        listed = (dict(zip(names, one, strict=True)) for one in itertools.product(*self.choices.values()))
        default = next(tuple(one.values()) for one in listed if self._is_allowed(one))
        return Space(
            tuple(Parameter(name, 0.0, size - 1.0, whole=True) for name, size in zip(names, sizes, strict=True)),
            tuple(self.choices.values()),
            tuple(float(each.index(value)) for value, each in zip(default, self.choices.values(), strict=True)),
            conditions=tuple((names.index(child), self._above_first(parent)) for child, parent in self.needs),
            forbidden=tuple(rule for condition in self.conditions for rule in self._forbidden(condition)),
            unordered=tuple(names.index(name) for name in self.unordered),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Count the choices of each parameter."""
        return tuple(len(each) for each in self.choices.values())

    def _is_allowed(self, values: dict[str, int]) -> bool:
        return all(holds(*(values[name] for name in names)) for names, holds in self.conditions)

    def _above_first(self, name: str) -> Rule:
        return Rule("in", list(self.choices).index(name), values=tuple(np.arange(1.0, len(self.choices[name])).tolist()))

    def _forbidden(self, condition: Condition) -> list[Rule]:
        """Return the clauses of a condition: one for each combination of its parameters but the last."""
        names, holds = condition
        axes, last, found = [list(self.choices).index(name) for name in names], self.choices[names[-1]], []
        for places in itertools.product(*(range(len(self.choices[name])) for name in names[:-1])):
            values = [self.choices[name][place] for name, place in zip(names[:-1], places, strict=True)]
            wrong = tuple(float(place) for place, value in enumerate(last) if not holds(*values, value))
            if wrong:
                each = [*((float(place),) for place in places), wrong]
                parts = tuple(Rule("in", axis, values=some) for axis, some in zip(axes, each, strict=True))
                found.append(Rule("all", parts=parts))
        return found


def _shared_memory_suffices(shared: int, block_x: int, tile_x: int, block_y: int, tile_y: int) -> bool:
    """Return whether the part of the image that a block reads, with the edge of its filter of 15 by 15, fits."""
    return not shared or (block_x * tile_x + 14) * (block_y * tile_y + 14) < 12 * 1024


_BLOCK = ("block_size_x", "block_size_y")
CONVOLUTION = Kernel(
    "convolution",
    {
        "block_size_x": (1, 2, 4, 8, 16, 32, 48, 64, 96, 112, 128),
        "block_size_y": (1, 2, 4, 8, 16, 32),
        "read_only": (0, 1),
        "tile_size_x": tuple(range(1, 9)),
        "tile_size_y": tuple(range(1, 9)),
        "use_padding": (0, 1),
    },
    _OLDER,
    ((_BLOCK, lambda x, y: 64 <= x * y <= MOST_THREADS), (("tile_size_x", "tile_size_y"), lambda x, y: x * y < 30)),
)
PNPOLY = Kernel(
    "pnpoly",
    {
        "between_method": (0, 1, 2, 3),
        "block_size_x": tuple(range(32, 993, 32)),
        "tile_size": (1, *range(2, 21, 2)),
        "use_method": (0, 1, 2),
    },
    _OLDER,
    unordered=("between_method", "use_method"),
)
CONVOLUTION_MILO = Kernel(
    "convolution_milo",
    {
        "block_size_x": tuple(range(16, 257, 16)),
        "block_size_y": (1, 2, 4, 8, 16),
        "tile_size_x": (1, 2, 3, 4),
        "tile_size_y": (1, 2, 3, 4),
        "read_only": (0, 1),
        "use_padding": (0, 1),
        "use_shmem": (0, 1),
    },
    _NEWER,
    (
        (_BLOCK, lambda x, y: x * y <= MOST_THREADS),
        (("use_padding", "block_size_x"), lambda padding, x: not padding or x % 32 != 0),
        (("use_padding", "use_shmem"), lambda padding, shared: not padding or shared),
        (("use_shmem", "block_size_x", "tile_size_x", "block_size_y", "tile_size_y"), _shared_memory_suffices),
    ),
)
DEDISPERSION_MILO = Kernel(
    "dedispersion_milo",
    {
        "block_size_x": (1, 2, 4, 8, 16, 32),
        "block_size_y": tuple(range(32, 257, 8)),
        "tile_size_x": (1, 2, 3, 4),
        "tile_size_y": tuple(range(1, 9)),
        "tile_stride_x": (0, 1),
        "tile_stride_y": (0, 1),
    },
    _NEWER,
    ((_BLOCK, lambda x, y: 32 <= x * y <= MOST_THREADS),),
    needs=(("tile_stride_x", "tile_size_x"), ("tile_stride_y", "tile_size_y")),
)
KERNELS = {one.name: one for one in (CONVOLUTION, PNPOLY, CONVOLUTION_MILO, DEDISPERSION_MILO)}
