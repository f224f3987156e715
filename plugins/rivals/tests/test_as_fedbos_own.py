"""The tests of fedbo's own methods, carried out with those of the plug-in that they concern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_hostile_messages
import test_newest_messages
import test_reveals
import test_supposed_values
import test_typed_search
from scipy.optimize import least_squares

from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.kernel.exchange import Barrier, Deadline, FirstK
from fedbo.sites.errors import DocumentError
from fedbo.sites.terms import load_terms, public_terms
from fedbo.surrogates.features import phi
from tests.algorithms.collaborative import test_collaborative
from tests.fast import test_windows
from tests.sites import test_message_cost as costs
from tests.tuning import test_ask_tell, test_hostile_meeting, test_small_spaces

ENSEMBLES = pytest.mark.parametrize("name", ["rgpe", pytest.param("taf", marks=pytest.mark.long)])
SENDING = pytest.mark.parametrize(
    "name",
    ["rgpe", *(pytest.param(name, marks=pytest.mark.long) for name in ("taf", "quantile_transfer", "guide", "dp_guide"))],
)


def found_in_span(residual: Any, starts: int = 24) -> Array:
    """Find the points `(k, 2)` of the unit cube at which a residual is 0, by descents from random places."""
    rng = np.random.default_rng(0)
    ends = [least_squares(residual, rng.random(2), bounds=(0.0, 1.0), xtol=1e-12, gtol=1e-12) for _ in range(starts)]
    return np.array([one.x for one in ends if one.cost < 1e-10])


@pytest.mark.parametrize(
    "name", ["rgpe", *(pytest.param(each, marks=pytest.mark.long) for each in ("taf", "quantile_transfer"))]
)
def test_the_points_are_found_in_sums_of_features(name: str) -> None:
    """Sums over three points have rank three: a point is where phi(x) lies in their span, and nowhere else."""
    message, run, true = test_reveals.attacked(name)
    if name in ("rgpe", "taf"):  # Sigma^-1: what Sigma adds to noise I has the same span
        values, vectors = np.linalg.eigh(np.linalg.inv(message["inverse"]))
        features = run.states[test_reveals.ATTACKER].features
    else:
        values, vectors = np.linalg.eigh(message["gram"])
        features = run.algorithm.shared(Streams(test_reveals.SEED), 2)
    span = vectors[:, np.argsort(values)[-3:]]

    def residual(x: Array) -> Array:
        row = phi(features, x[None])[0]
        return np.asarray(row - span @ (span.T @ row))

    found = found_in_span(residual)
    assert all(np.abs(found - point).max(axis=1).min() < 1e-4 for point in true)


def test_messages_of_taf_hold_the_best_value() -> None:
    test_reveals.test_messages_that_are_said_to_hold_observations_do("taf", {"centre": False}, "best")


def test_a_meeting_refuses_an_ensemble_that_was_not_accepted_by_name(tmp_path: Path) -> None:
    test_reveals.test_a_meeting_refuses_what_was_not_accepted_by_name("rgpe", "computable", tmp_path)


@SENDING
@pytest.mark.parametrize("message", test_hostile_messages.FEW)
def test_a_message_that_is_as_declared_ends_no_study(name: str, message: str) -> None:
    test_hostile_messages.check(name, message)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rgpe", "taf", "quantile_transfer", "guide"])
def test_hostile_files_end_nothing(name: str, tmp_path: Path) -> None:
    test_hostile_meeting.check(name, test_hostile_meeting.FEW, tmp_path)


def test_ten_messages_of_a_fast_agent_count_as_its_newest_one() -> None:
    test_newest_messages.test_ten_messages_of_a_fast_agent_count_as_its_newest_one("quantile_transfer")


@ENSEMBLES
def test_each_configuration_of_a_small_space_is_asked_once(name: str, tmp_path: Path) -> None:
    test_small_spaces.test_an_agent_asks_every_configuration_once_and_then_none(name, tmp_path)
    test_small_spaces.test_what_repeats_gives_way_to_the_best_of_what_is_left(name)


def test_where_all_has_failed_decisions_differ_and_keep_away() -> None:
    test_supposed_values.test_where_all_has_failed_decisions_differ_and_keep_away("rgpe")


@SENDING
def test_points_that_failed_change_no_message(name: str) -> None:
    test_supposed_values.test_no_message_holds_anything_of_a_failure(name)


@ENSEMBLES
def test_decisions_fit_a_typed_space_and_points_under_way(name: str) -> None:
    test_typed_search.test_what_is_asked_in_a_typed_space_can_be_evaluated(name)
    test_typed_search.test_points_under_way_are_not_asked_again(name)


@pytest.mark.parametrize("name", ["quantile_transfer", pytest.param("guide", marks=pytest.mark.long)])
def test_points_under_way_are_not_asked_again(name: str) -> None:
    test_typed_search.test_points_under_way_are_not_asked_again(name)


def test_quantile_transfer_uses_its_answers() -> None:
    test_collaborative.test_agents_that_begin_with_nothing_gain_from_those_who_know_the_same_function("quantile_transfer")
    test_collaborative.test_with_answers_too_what_is_asked_in_a_typed_space_can_be_evaluated_and_is_new("quantile_transfer")


@pytest.mark.parametrize(("method", "exchange"), [("dp_guide", Barrier()), ("dp_guide", Deadline(2.0)), ("guide", FirstK(1))])
def test_messages_and_answers_of_any_length_leave_the_same_with_windows(method: str, exchange: Any) -> None:
    test_windows.test_messages_and_answers_of_any_length_leave_the_same_with_windows(method, exchange)


def test_messages_with_next_to_no_noise_count_as_messages_without_any(tmp_path: Path) -> None:
    weak = {"name": "dp_guide", "noise_multiplier": 1e-12}
    costs.test_messages_with_next_to_no_noise_count_as_messages_without_any(weak, costs.SECURE, tmp_path)


@pytest.mark.parametrize("name", ["taf", pytest.param("rgpe", marks=pytest.mark.long)])
def test_those_that_rank_points_decide_with_some_under_way_and_some_failed(name: str, tmp_path: Path) -> None:
    test_ask_tell.test_those_that_learn_of_others_decide_with_some_under_way_and_some_failed(name, tmp_path)


def test_sites_carry_out_a_method_of_an_installed_plug_in_in_the_version_of_the_terms() -> None:
    terms = public_terms(costs.study_of({"name": "dp_guide"}, **costs.SECURE))
    assert terms["plugins"] == {"algorithms.dp_guide": "fedbo-rivals 0.1.0"}
    with pytest.raises(DocumentError, match="of another version of fedbo or a plug-in; install that one"):
        load_terms({**terms, "plugins": {"algorithms.dp_guide": "fedbo-rivals 0.0.9"}})
