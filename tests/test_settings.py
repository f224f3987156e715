"""Ranges that are declared on fields: how they are written, and what `check` refuses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf, nan
from typing import Annotated, Literal, get_args, get_type_hints

import pytest
from annotated_types import Ge, Gt, Le, Lt

from fedbo.objectives.catalog import federations
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check, marks_of, range_of
from fedbo.settings.sums import plain_sum


@dataclass(frozen=True)
class Marked:
    count: Annotated[int, Ge(1)] = 1
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    width: Annotated[float, Ge(0), Lt(inf)] | None = None
    scale: Annotated[float, Gt(0), "a millimetre is enough"] = 1.0
    kind: Annotated[str, OneOf(("left", "right"))] = "left"
    sides: Literal[3, 6] = 3
    free: float = -1.0

    def __post_init__(self) -> None:
        check(self)


class Narrower(Marked):
    """A subclass that declares nothing more."""


def test_a_range_is_written_in_words() -> None:
    assert {name: range_of(marks) for name, marks in marks_of(Marked).items()} == {
        "count": "at least 1",
        "share": "in (0, 1]",
        "width": "at least 0 and finite",
        "scale": "above 0",
        "kind": "one of left, right",
        "sides": "one of 3, 6",
    }
    assert range_of((Le(1_000_000),)) == "at most 1000000"


@pytest.mark.parametrize("declared", [Marked, Narrower])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "count must be at least 1, not 0"),
        ({"share": 0.0}, "share must be in (0, 1], not 0.0"),
        ({"share": 1.5}, "share must be in (0, 1], not 1.5"),
        ({"share": nan}, "share must be in (0, 1], not nan"),
        ({"width": inf}, "width must be at least 0 and finite, not inf"),
        ({"scale": -1.0}, "scale must be above 0, not -1.0; a millimetre is enough"),
        ({"sides": 4}, "no sides '4'; available: 3, 6"),
        ({"kind": "lift"}, "no kind 'lift'; did you mean 'left'? available: left, right"),
    ],
)
def test_what_is_outside_is_refused_with_name_range_and_value(
    declared: type[Marked], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingError) as caught:
        declared(**settings)
    assert str(caught.value) == message
    assert caught.value.path == tuple(settings)


def test_every_number_among_the_settings_of_an_objective_declares_its_range() -> None:
    free = {("python_function", name) for name in ("low", "high", "best")} | {
        ("typed_function", "best")
    }  # a user's own function
    free |= {("sites", "low"), ("sites", "high")}
    for name, declared in federations().items():
        hints = get_type_hints(declared)
        numbers = {one.name for one in fields(declared) if {int, float} & {hints[one.name], *get_args(hints[one.name])}}
        assert {(name, number) for number in numbers - set(marks_of(declared))} <= free


def test_the_ends_of_a_range_and_none_pass() -> None:
    Marked(count=1, share=1.0, width=0.0, kind="right")
    Marked(width=None)


def test_numbers_are_added_up_as_in_every_version_of_python() -> None:
    """From Python 3.12 on, `sum` gives 1.0."""
    assert plain_sum([0.1] * 10) == 0.9999999999999999
    assert plain_sum(()) == 0.0
