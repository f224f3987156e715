"""What every federation promises, checked over all that are found at run time."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

import fedbo
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array, Costly, Federation, LibraryMissing, Objective, Repeated, cost_of, reports_costs
from fedbo.objectives.catalog import federations
from fedbo.objectives.datasets import data
from fedbo.objectives.derived.mean import BatchFunction
from fedbo.objectives.space import from_unit
from fedbo.tuning.spaces import written_space

SEED = 20
NAMES = list(federations())
SAMPLE_MODULE = "sample_function_of_the_contract"
SAMPLE_TABLE = "FEDBO_SAMPLE_TABLE_OF_THE_CONTRACT"  # where it lies, also for a fresh process
SAMPLE = "def hill(x, agent):\n    return -((x[0] - 0.1 * agent) ** 2) - x[1]\n"
SAMPLE += "def typed(config, agent):\n    return config['x'] - 0.1 * config['n'] - (config['k'] == 'a') * agent\n"
TYPED = written_space({"x": (0.0, 1.0), "n": (1, 5), "k": ["a", "b"]})
SETTINGS: dict[str, dict[str, Any]] = {  # only where the defaults will not do here: there are none, or they take long
    "python_function": {"function": f"{SAMPLE_MODULE}:hill", "low": (0.0, 0.0), "high": (1.0, 1.0), "agents": 3},
    "typed_function": {"function": f"{SAMPLE_MODULE}:typed", "space": TYPED, "agents": 3},
    "writers": {"epochs": 2},
}


def built(name: str) -> Federation:
    settings = {"table": os.environ[SAMPLE_TABLE]} if name == "tabulated" else SETTINGS.get(name, {})
    made: Federation = federations()[name](**settings)
    return made


def objective(federation: Federation, agent: int) -> Objective:
    world, own = Streams(SEED).rng("world"), Streams(SEED, owner=agent).rng("objective")
    return federation.objective(agent, world, own)


def draws(step: int = 0) -> np.random.Generator:
    return Streams(SEED, owner=0, step=step).rng("noise")


def points(federation: Federation, n: int) -> Array:
    """Give both extreme corners and uniform points `(n + 2, d)`."""
    d = len(federation.parameters)
    unit = np.vstack([np.zeros(d), np.ones(d), np.random.Generator(np.random.Philox(1)).random((n, d))])
    return from_unit(federation.parameters, unit)


def judged(one: Objective, x: Array) -> float:
    score = one.score(x)
    return one.evaluate(x, draws()) if score is None else score


def bits(name: str) -> list[str]:
    """Give what one agent in the middle observes, to the last bit."""
    federation = built(name)
    one = objective(federation, federation.n_agents // 2)
    return [one.evaluate(x, draws(i)).hex() for i, x in enumerate(points(federation, 4))]


def print_bits(names: list[str]) -> None:
    """Print the observations of several federations as JSON: what a fresh process runs."""
    print(json.dumps({name: bits(name) for name in names}))


@pytest.fixture(scope="module")
def sample_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    (folder / f"{SAMPLE_MODULE}.py").write_text(SAMPLE)
    fedbo.tabulate("branin", overrides=["agents=3"], points=32, refine=8, out=folder / "branin.table")
    return folder


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, sample_folder: Path) -> None:
    """Let no test reach for the network: data that are not here count as missing at once."""
    monkeypatch.syspath_prepend(sample_folder)
    monkeypatch.setenv(SAMPLE_TABLE, str(sample_folder / "branin.table"))
    for name, known in data.DATA_SETS.items():
        files = tuple(dataclasses.replace(file, address="http://127.0.0.1:9/nothing") for file in known.files)
        monkeypatch.setitem(data.DATA_SETS, name, dataclasses.replace(known, files=files))


@pytest.fixture(params=NAMES)
def federation(request: pytest.FixtureRequest) -> Federation:
    made = built(request.param)
    try:
        objective(made, 0)
    except data.DataMissing:
        pytest.skip(f"the data of {request.param!r} are not here: see `fedbo data list`")
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    return made


def test_the_federations_are_found_by_listing_the_folder() -> None:
    assert {"digits", "landmine", "gp_synthetic", "quadratic", "branin", "python_function"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_settings_can_be_read_from_plain_values(name: str) -> None:
    adapter: TypeAdapter[Federation] = TypeAdapter(federations()[name])
    plain = adapter.dump_python(built(name), mode="json")
    assert adapter.validate_python(plain) == built(name)


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_frozen(name: str) -> None:
    made: Any = built(name)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        made.agents = 3


def test_federations_and_objectives_have_what_the_protocols_ask(federation: Federation) -> None:
    assert isinstance(federation, Federation)
    assert isinstance(objective(federation, 0), Objective)


def test_parameters_have_distinct_names_and_finite_ranges(federation: Federation) -> None:
    parameters = federation.parameters
    assert len({p.name for p in parameters}) == len(parameters) >= 1
    assert all(math.isfinite(p.low) and math.isfinite(p.high) and p.low < p.high for p in parameters)
    assert all(p.low > 0.0 for p in parameters if p.log)


def test_the_metric_turns_values_into_native_ones_and_says_the_direction(federation: Federation) -> None:
    metric = federation.metric
    assert metric.name and metric.sign in (-1, 1)
    worse, better = metric.native(np.array([0.25, 0.5]))
    assert (better > worse) == (metric.direction == "maximise")


def test_observations_inside_the_box_and_on_its_corners_are_finite_floats(federation: Federation) -> None:
    one = objective(federation, 0)
    observed = [one.evaluate(x, draws(i)) for i, x in enumerate(points(federation, 6))]
    assert all(isinstance(value, float) and math.isfinite(value) for value in observed)


def test_the_same_stream_gives_the_same_observation(federation: Federation) -> None:
    one = objective(federation, 0)
    for x in points(federation, 3):
        assert one.evaluate(x, draws()) == one.evaluate(x, draws())


def test_the_score_is_repeatable_and_free_of_noise(federation: Federation) -> None:
    one = objective(federation, 0)
    for x in points(federation, 3):
        assert one.score(x) == one.score(x)
        if one.score(x) is None:
            assert one.evaluate(x, draws(1)) == one.evaluate(x, draws(2))


def test_what_is_given_at_many_points_or_many_times_is_what_is_given_one_by_one(federation: Federation) -> None:
    one, x = objective(federation, 0), points(federation, 2)
    if isinstance(one, BatchFunction):
        np.testing.assert_allclose(one.scores(x), [judged(one, point) for point in x], rtol=1e-10, atol=1e-12)
    if isinstance(one, Repeated):
        singly = draws()
        np.testing.assert_array_equal(one.evaluate_many(x[-1], 3, draws()), [one.evaluate(x[-1], singly) for _ in range(3)])


def test_costs_are_known_before_an_evaluation_and_are_the_same_whenever_they_are_asked_for(federation: Federation) -> None:
    one = objective(federation, 0)
    assert isinstance(one, Costly) or not reports_costs(federation)
    for x in points(federation, 4):
        assert cost_of(one, x) == cost_of(pickle.loads(pickle.dumps(one)), x)
        assert math.isfinite(cost_of(one, x)) and cost_of(one, x) > 0.0


def test_random_search_never_exceeds_the_best_value(federation: Federation) -> None:
    for agent in {0, federation.n_agents - 1}:
        one = objective(federation, agent)
        if one.best_value is not None:
            assert max(judged(one, x) for x in points(federation, 100)) <= one.best_value + 1e-12


def test_agents_have_different_objectives(federation: Federation) -> None:
    x = points(federation, 10)
    values = {tuple(judged(objective(federation, agent), one) for one in x) for agent in range(min(3, federation.n_agents))}
    assert len(values) == min(3, federation.n_agents)


def test_an_objective_is_the_same_whichever_agents_were_built_before(federation: Federation) -> None:
    x = points(federation, 1)[-1]
    first = judged(objective(federation, 0), x)
    for agent in reversed(range(federation.n_agents)):
        objective(federation, agent)
    assert judged(objective(federation, 0), x) == first


def test_an_objective_survives_pickling_to_the_bit(federation: Federation) -> None:
    one = objective(federation, 1)
    other = pickle.loads(pickle.dumps(one))
    for x in points(federation, 2):
        assert other.evaluate(x, draws()) == one.evaluate(x, draws())
    assert other.best_value == one.best_value


def test_an_agent_that_does_not_exist_is_refused(federation: Federation) -> None:
    for agent in (-1, federation.n_agents):
        world, own = Streams(SEED).rng("world"), Streams(SEED).rng("own")
        with pytest.raises(IndexError, match=f"no agent {agent}: there are {federation.n_agents}"):
            federation.objective(agent, world, own)


def test_a_point_outside_the_box_or_of_the_wrong_shape_is_refused(federation: Federation) -> None:
    one = objective(federation, 0)
    high = np.array([p.high for p in federation.parameters])
    for refused in (high + 1.0, np.full_like(high, np.nan)):
        with pytest.raises(ValueError, match=f"{federation.parameters[0].name} = .* is outside"):
            one.evaluate(refused, draws())
    with pytest.raises(ValueError, match="have shape"):
        one.evaluate(np.append(high, 0.5), draws())


def test_a_fresh_process_builds_the_same_objectives_to_the_bit(sample_folder: Path) -> None:
    here = {}
    for name in NAMES:
        try:
            here[name] = bits(name)
        except (data.DataMissing, LibraryMissing):
            continue
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['print_bits'](sys.argv[2:])"
    path = os.pathsep.join([str(sample_folder), os.environ.get("PYTHONPATH", "")])
    child = subprocess.run(
        [sys.executable, "-c", program, __file__, *here],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert json.loads(child.stdout) == here
