"""What methods declare to reveal is checked by attacks: all of fedbo's own hold, and planted ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_methods import Blurred

from fedbo.algorithms.catalog import entry
from fedbo.algorithms.reveals import Reveals
from fedbo.testing.algorithm_contract import check_algorithm
from fedbo.testing.contract import ContractBroken
from fedbo_leak.declarations import check_declaration, declared_and_measured
from fedbo_leak.table import sending

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("name", sending())
def test_a_method_reveals_no_more_than_it_declares(name: str) -> None:
    """Law: t intervals of 6 runs at 95 % for each of some 6 targets; seeds 0 to 5."""
    check_declaration(name)


def test_the_contract_of_algorithms_attacks_where_this_plug_in_is_installed() -> None:
    check_algorithm(entry("share_best").make())
    with pytest.raises(ContractBroken, match="Blurred: it declares reveals = 'draws', but attacks find 'observations'"):
        check_algorithm(Blurred(every=1))


def test_points_that_are_said_nearly_are_no_draws() -> None:
    with pytest.raises(ContractBroken, match="declares reveals = 'draws', but attacks find 'observations'"):
        check_declaration({"name": f"{HERE / 'planted_methods.py'}:Blurred", "every": 1})


def test_draws_are_no_noisy_sums() -> None:
    with pytest.raises(ContractBroken, match="declares reveals = 'noisy sums', but attacks find"):
        check_declaration(f"{HERE / 'planted_methods.py'}:Silent")


@pytest.mark.parametrize("name", ["share_best", "trust_best"])
def test_coarse_messages_tell_where_the_best_point_is_and_no_evaluated_point(name: str) -> None:
    found = declared_and_measured({"name": name, "preset": "coarse"})
    assert (found.declared, found.measured) == (Reveals.COMPUTABLE, Reveals.DRAWS)


def test_sums_of_features_are_found_to_be_computable() -> None:
    assert declared_and_measured("fn_ucb", runs=5, agents=3).measured == Reveals.COMPUTABLE
