"""The coordinator's door: what a message weighs, and which ones are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedbo.algorithms.base import LARGEST, Field
from fedbo.algorithms.messages import declared_size, decode, encode, fault, size, varies

DECLARED = {"omega": Field((3,)), "sender": Field((1,), "int64")}
GOOD = {"omega": np.array([1.0, -2.0, 3.5]), "sender": np.array([4])}


def test_a_message_weighs_what_it_is_serialised_to() -> None:
    assert size(GOOD) == len(encode(GOOD, DECLARED)) == 3 * 8 + 8


def test_a_serialised_message_reads_back_to_the_bit() -> None:
    back = decode(encode(GOOD, DECLARED), DECLARED)
    assert back.keys() == GOOD.keys()
    for name in GOOD:
        assert back[name].dtype == GOOD[name].dtype
        np.testing.assert_array_equal(back[name], GOOD[name])


@pytest.mark.parametrize(
    ("change", "complaint"), [(lambda b: b[:-1], "ends inside"), (lambda b: b + b"x", "32 bytes are decl")]
)
def test_a_serialised_message_of_another_length_is_refused(change, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode(change(encode(GOOD, DECLARED)), DECLARED)


def test_a_message_as_declared_has_no_fault() -> None:
    assert fault(GOOD, DECLARED) is None
    assert fault({**GOOD, "omega": np.full(3, 1e300)}, DECLARED) is None, "squares that overflow are no fault"


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({**GOOD, "y": np.ones(2)}, "undeclared field 'y'"),
        ({"omega": GOOD["omega"]}, "field 'sender' is missing"),
        ({**GOOD, "omega": np.ones(4)}, "field 'omega' has shape (4,), declared (3,)"),
        ({**GOOD, "omega": np.ones((3, 1))}, "field 'omega' has shape (3, 1), declared (3,)"),
        ({**GOOD, "omega": np.array([1.0, np.nan, 2.0])}, "field 'omega' contains a value that is not finite"),
        ({**GOOD, "omega": np.array([1.0, np.inf, 2.0])}, "field 'omega' contains a value that is not finite"),
        ({**GOOD, "omega": np.ones(3, np.float32)}, "field 'omega' is float32, declared float64"),
        ({**GOOD, "omega": [1.0, 2.0, 3.0]}, "field 'omega' is a list, not an array"),
        ({**GOOD, "omega": np.array([object(), 1, 2])}, "field 'omega' is object, declared float64"),
        (b"pickle", "payload is a bytes, not named arrays"),
    ],
)
def test_a_message_that_is_not_as_declared_is_refused_with_the_reason(payload, complaint) -> None:
    assert fault(payload, DECLARED) == complaint


@pytest.mark.parametrize("finite", [True, False])
def test_a_number_so_large_that_its_receivers_would_overflow_is_refused_at_the_door(finite: bool) -> None:
    declared = {"omega": Field((3,), finite=finite)}
    assert fault({"omega": np.array([1.0, -LARGEST, 2.0])}, declared, LARGEST) is None
    for damaged in (1.001 * LARGEST, -1e300):
        wrong = fault({"omega": np.array([1.0, damaged, 2.0])}, declared, LARGEST)
        assert wrong == "field 'omega' contains a value that is too large: beyond 1e+60"


def test_a_matrix_that_is_declared_positive_is_refused_when_it_is_not() -> None:
    declared, rows = {"inverse": Field((4, 4), positive=True)}, np.random.default_rng(0).standard_normal((2, 4))
    for healthy in (np.eye(4), rows.T @ rows, np.zeros((4, 4)), np.diag([1e-30, 1.0, 1e30, 0.0])):
        assert fault({"inverse": healthy}, declared, LARGEST) is None
    crooked, negative = np.eye(4), np.diag([1.0, 1.0, -1e-3, 1.0])
    crooked[0, 3] = 1e-3
    for damaged in (crooked, negative, np.ones((4, 4)) - 0.5 * np.eye(4)):
        wrong = fault({"inverse": damaged}, declared, LARGEST)
        assert wrong == "field 'inverse' is not a symmetric positive semi-definite matrix, as declared"


VARYING = {"phase": Field((1,), "int64"), "means": Field((None,)), "boxes": Field((2, None), "int32")}


def varied(length: int) -> dict[str, np.ndarray]:
    boxes = np.arange(2 * length, dtype=np.int32).reshape(2, length)
    return {"phase": np.array([3]), "means": np.linspace(0.0, 1.0, length), "boxes": boxes}


@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_message_of_varying_length_reads_back_from_its_bytes_alone(length: int) -> None:
    payload = varied(length)
    data = encode(payload, VARYING)
    assert fault(payload, VARYING) is None
    assert len(data) == size(payload) == declared_size(VARYING, length) == 8 + 16 * length
    for name, array in decode(data, VARYING).items():
        assert array.dtype == payload[name].dtype
        np.testing.assert_array_equal(array, payload[name])


def test_bytes_that_no_length_would_give_are_refused() -> None:
    for data in (encode(varied(3), VARYING)[:-1], b"1234"):
        with pytest.raises(ValueError, match="does not match any length of its variable fields"):
            decode(data, VARYING)


def test_lengths_that_vary_vary_together_and_nothing_else_varies() -> None:
    assert varies(VARYING) and not varies(DECLARED) and not varies(None)
    for change, complaint in (
        (
            {"boxes": varied(4)["boxes"]},
            r"field 'boxes' has shape \(2, 4\), declared \(2, None\) with one common variable length",
        ),
        ({"boxes": np.zeros((3, 5), np.int32)}, r"field 'boxes' has shape \(3, 5\)"),
        ({"means": np.zeros((5, 1))}, r"field 'means' has shape \(5, 1\), declared \(None,\)"),
        ({"phase": np.array([1, 2])}, r"field 'phase' has shape \(2,\), declared \(1,\)"),
    ):
        found = fault({**varied(5), **change}, VARYING)
        assert found is not None and re.match(complaint, found)
