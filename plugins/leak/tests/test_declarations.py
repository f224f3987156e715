"""What methods declare to reveal is checked by attacks: all of fedbo's own hold, and planted ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import catalogue, entry
from fedbo.algorithms.reveals import Reveals
from fedbo.testing.contract import ContractBroken
from fedbo_leak.declarations import check_declaration, declared_and_measured

HERE = Path(__file__).resolve().parent
CONTROLS = ("_noise", "_uniform", "_shuffled", "_alone")
PROBLEM = Problem(2, 4, tuple(range(4)), 0, 30, pulls=30)
SENDING = [
    name for name in catalogue() if not name.endswith(CONTROLS) and entry(name).make().upload(PROBLEM) is not None
]  # fmt: skip
QUICK = ("share_best", "fts", "dp_fts_de", "fed1_ucb")


@pytest.mark.parametrize("name", QUICK)
def test_a_method_reveals_no_more_than_it_declares(name: str) -> None:
    """Law: t intervals of 6 runs at 95 % for each of some 6 targets; seed 3."""
    check_declaration(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SENDING if name not in QUICK])
def test_every_method_reveals_no_more_than_it_declares(name: str) -> None:
    """Law: as above."""
    check_declaration(name)


def test_points_that_are_said_nearly_are_no_draws() -> None:
    with pytest.raises(ContractBroken, match="declares reveals = 'draws', but attacks find 'observations'"):
        check_declaration({"name": f"{HERE / 'planted_methods.py'}:Blurred", "every": 1})


def test_draws_are_no_noisy_sums() -> None:
    with pytest.raises(ContractBroken, match="declares reveals = 'noisy sums', but attacks find"):
        check_declaration(f"{HERE / 'planted_methods.py'}:Silent")


def test_sums_of_features_are_found_to_be_computable() -> None:
    assert declared_and_measured("fn_ucb", runs=5, agents=3).measured == Reveals.COMPUTABLE
