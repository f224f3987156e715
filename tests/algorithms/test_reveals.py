"""What methods declare that their messages reveal, against attacks that know the method, its settings and one message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares
from test_algorithm_contract import Small

import fedbo
from fedbo.algorithms.bandits.arms import grid
from fedbo.algorithms.bandits.fn_ucb import FNUCB, inward
from fedbo.algorithms.bandits.neural import jacobian
from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.reveals import Reveals, meaning_of, revealed_by
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.features import phi
from fedbo.testing.algorithm_contract import check_algorithm, numbers_of_observations, started
from fedbo.testing.contract import ContractBroken

SEED, VICTIM, ATTACKER = 5, 1, 0
EVERY = [(name, preset) for name, found in algorithms().items() for preset in (None, *found.presets)]


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_every_method_of_the_catalogue_declares(name: str, preset: str | None) -> None:
    assert isinstance(entry(name).make(preset).reveals, Reveals)  # type: ignore[attr-defined]


def test_a_method_that_declares_nothing_counts_as_revealing_observations() -> None:
    assert revealed_by(object()) is Reveals.OBSERVATIONS
    assert meaning_of("of a later version") == "not known to this version"

    class Wrong:
        reveals = "little"

    with pytest.raises(ValueError, match="reveals = 'little': no choice 'little'; available: computable, draws, noisy sums"):
        revealed_by(Wrong())


def test_the_contract_finds_a_number_of_an_observation_in_a_message() -> None:
    class Secretive(Small):  # whose message is the best value that was told
        reveals = "draws"

    class Quiet(Small):
        reveals = "nothing"

    check_algorithm(Small())
    with pytest.raises(ContractBroken, match="a message holds a number of an observation, but reveals is 'draws'"):
        check_algorithm(Secretive())
    with pytest.raises(ContractBroken, match="reveals must not be 'nothing' where an upload is declared"):
        check_algorithm(Quiet())


@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        pytest.param("admm_allocation", {}, "use", marks=pytest.mark.long),
        ("admm_consensus", {}, "x"),
        ("fed1_ucb", {}, "mean"),
        ("fed_pne", {}, "means"),
        ("pooled", {"coordinates": "plain"}, "x"),
        ("pooled", {}, "y"),
        ("share_best", {"values": True}, "x"),
        ("share_best", {"values": True}, "value"),
    ],
)
def test_messages_that_are_said_to_hold_observations_do(name: str, settings: dict[str, Any], field: str) -> None:
    run = started(entry(name).make(**settings), history=False).run(1)
    assert field in {each for _, each in numbers_of_observations(run)}


def attacked(name: str, **settings: Any) -> tuple[Any, Any, Array]:
    """Return the first message of a victim after three points, an attacker's state, and the points in coordinates."""
    algorithm = entry(name).make(**settings)
    run = started(algorithm, history=False, seed=SEED)
    own = getattr(algorithm, "own", None)
    return run.sent[0][VICTIM], run, to_coordinates(run.initial[VICTIM], own.coordinates if own is not None else "plain")


def test_the_arms_are_found_in_sums_of_gradients() -> None:
    run = started(FNUCB(), history=False, seed=SEED).run(3)
    message, arms = run.sent[3][VICTIM], grid(2, FNUCB().arms)
    rows = jacobian(run.states[ATTACKER].initial, inward(arms))
    values, vectors = np.linalg.eigh(message["precision"])
    span = vectors[:, values > 1e-9 * values.max()]
    inside = np.linalg.norm(rows - rows @ span @ span.T, axis=1) < 1e-6 * np.linalg.norm(rows, axis=1)
    played = {tuple(decisions[VICTIM].x[0].tolist()) for decisions in run.decisions}
    assert {tuple(arm) for arm in arms[inside].tolist()} == played


def test_one_message_of_fed_prior_has_a_certainty_from_which_points_are_found() -> None:
    """Certainty at 100 places is a function of the points, a length scale for each input and the noise: eight unknowns."""
    message, run, _ = attacked("fed_prior", coordinates="plain")
    algorithm, true = run.algorithm, run.initial[VICTIM]
    from fedbo.algorithms.learned_prior.prior_space import common_points
    from fedbo.surrogates.kernels import make_kernel

    design = common_points(algorithm.points, 2, None)
    family = run.states[VICTIM].fitted[0].hyper.family

    def certainty(v: Array) -> Array:
        points, kernel = v[:6].reshape(3, 2), make_kernel(family, tuple(np.exp(v[6:8])), 1.0)
        gram = kernel(points, points) + np.exp(v[8]) * np.eye(3)
        across = kernel(design, points)
        return np.asarray(np.einsum("ij,ij->i", across @ np.linalg.inv(gram), across) - message["certainty"])

    rng, best = np.random.default_rng(1), None
    for _ in range(40):
        start = np.concatenate([rng.random(6), np.log([0.5, 0.5, 0.01])])
        end = least_squares(certainty, start, max_nfev=300)
        best = end if best is None or end.cost < best.cost else best
        if best.cost < 1e-18:
            break
    found = best.x[:6].reshape(3, 2)
    assert all(np.abs(found - point).max(axis=1).min() < 1e-3 for point in true), (best.cost, found, true)


def points_in_a_draw(omega: Array, run: Any, normals: Array, starts: int) -> Array:
    """Find three points whose features, with the draw's own normal numbers, make up all of it; none where there are none."""
    features = run.states[ATTACKER].features
    rng, best = np.random.default_rng(0), None

    def residual(v: Array) -> Array:
        columns = np.column_stack([normals, phi(features, v.reshape(3, 2)).T])
        return np.asarray(omega - columns @ np.linalg.lstsq(columns, omega, rcond=None)[0])

    for _ in range(starts):
        end = least_squares(residual, rng.random(6), max_nfev=60)
        best = end if best is None or end.cost < best.cost else best
        if best.cost < 1e-16:
            break
    return np.asarray(best.x.reshape(3, 2)) if best is not None and best.cost < 1e-16 else np.empty((0, 2))


def test_a_draw_reveals_the_points_to_who_knows_its_seed() -> None:
    """Matheron's rule: a draw is its normal numbers and a sum of the features of the points (times the scale of the values)."""
    message, run, true = attacked("fts")
    normals = Streams(SEED).of(VICTIM).rng("message").standard_normal(100)
    found = points_in_a_draw(message["omega"], run, normals, 60)
    assert len(found) and all(np.abs(found - point).max(axis=1).min() < 1e-6 for point in true)
    guessed = Streams(SEED + 1).of(VICTIM).rng("message").standard_normal(100)
    assert not len(points_in_a_draw(message["omega"], run, guessed, 5))


def test_agents_of_a_meeting_draw_messages_with_a_secret(tmp_path: Any) -> None:
    """Two agents that are alike in all but their folders send unlike draws, though all sites know the seed."""
    space, terms = {"x": (0.0, 1.0)}, fedbo.Terms("fts", agents=2, initial=2)
    sent = []
    for name in ("one", "other"):
        with fedbo.Agent(tmp_path / name, space, terms, 0, fedbo.Meeting(tmp_path / f"{name}-meeting")) as agent:
            for value in (1.0, 2.0):
                agent.tell(agent.ask()[0].token, value)
        assert (tmp_path / name / "draws.key").stat().st_mode & 0o777 == 0o600
        sent.append({path.name for path in (tmp_path / f"{name}-meeting").iterdir()})
    assert len(sent[0]) == len(sent[1]) == 1 and sent[0] != sent[1]


@pytest.mark.parametrize(("name", "word"), [("share_best", "observations"), ("fed_prior", "computable")])
def test_a_meeting_refuses_what_was_not_accepted_by_name(name: str, word: str, tmp_path: Any) -> None:
    space, terms = {"x": (0.0, 1.0)}, fedbo.Terms(name, agents=2)
    with pytest.raises(ValueError, match=f"algorithm = '{name}': .*; open the meeting with reveals = '{word}' to accept that"):
        fedbo.Agent(tmp_path / "refused", space, terms, 0, fedbo.Meeting(tmp_path / "meeting"))
    assert not (tmp_path / "refused").exists()
    fedbo.Agent(tmp_path / "taken", space, terms, 0, fedbo.Meeting(tmp_path / "meeting", reveals=word)).close()
    fedbo.Agent(tmp_path / "alone", space, terms, 0).close()
    with pytest.raises(ValueError, match="reveals = 'all': no choice 'all'"):
        fedbo.Meeting(tmp_path / "meeting", reveals="all")


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_a_method_of_the_catalogue_reveals_nothing_exactly_if_it_sends_nothing(name: str, preset: str | None) -> None:
    made = entry(name).make(preset)
    silent = made.upload(Problem(2, 3, range(3), 2, 4, pulls=60)) is None
    assert (revealed_by(made) is Reveals.NOTHING) == silent
