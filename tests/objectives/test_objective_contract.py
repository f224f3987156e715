"""Every federation of the folder, found by name at run time, is held to the contract; and the contract finds what breaks it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from fedbo.objectives.base import Federation, LibraryMissingError, Metric, Parameter, require_agent
from fedbo.objectives.catalog import federations
from fedbo.objectives.datasets import data
from fedbo.objectives.outcome import outcome_of
from fedbo.objectives.space import inside
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.trust import admit, places_in
from fedbo.testing.contract import ContractBroken
from fedbo.testing.objective_contract import built, check_federation, evaluable, noise, points

NAMES = [name for name in federations() if name != "sites"]  # whose objectives are elsewhere
# Those that take long and are of a kind with others (more settings of one data set, wearables as `har`), or that have
# quick tests of their own: `test_compressors.py`, `test_vaccine.py` and `tasks/test_fedavg_training.py`.
COSTLY = {"landmine_auc", "wisdm", "compressors", "vaccine", "fedavg_training"}
SAMPLE_MODULE = "sample_function_of_the_contract"
SAMPLE = "def hill(x, agent):\n    return -((x[0] - 0.1 * agent) ** 2) - x[1]\n"
SAMPLE += "def typed(config, agent):\n    return config['x'] - 0.1 * config['n'] - (config['k'] == 'a') * agent\n"
TYPED = written_space({"x": (0.0, 1.0), "n": (1, 5), "k": ["a", "b"]})
SETTINGS: dict[str, dict[str, Any]] = {  # only where the defaults will not do here: there are none, or they take long
    "python_function": {"function": f"{SAMPLE_MODULE}:hill", "low": (0.0, 0.0), "high": (1.0, 1.0), "agents": 3},
    "typed_function": {"function": f"{SAMPLE_MODULE}:typed", "space": TYPED, "agents": 3},
    "writers": {"epochs": 2},
}


def made(name: str) -> Federation:
    settings = SETTINGS.get(name, {})
    admit(places_in(settings))
    federation: Federation = federations()[name](**settings)
    return federation


def bits(name: str) -> list[str]:
    """Give what one agent in the middle observes, to the last bit."""
    federation = made(name)
    objective = built(federation, federation.n_agents // 2)
    tried = evaluable(federation, objective, points(federation, 4))
    return [float(outcome_of(objective.evaluate(x, noise(i))).value).hex() for i, x in enumerate(tried)]


def print_bits(names: list[str]) -> None:
    """Print the observations of several federations as JSON: what a fresh process runs."""
    print(json.dumps({name: bits(name) for name in names}))


@pytest.fixture(scope="module")
def sample_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    (folder / f"{SAMPLE_MODULE}.py").write_text(SAMPLE)
    return folder


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, sample_folder: Path) -> None:
    """Let no test reach for the network: data that are not here count as missing at once."""
    monkeypatch.syspath_prepend(sample_folder)
    for name, known in data.DATA_SETS.items():
        files = tuple(dataclasses.replace(file, address="http://127.0.0.1:9/nothing") for file in known.files)
        monkeypatch.setitem(data.DATA_SETS, name, dataclasses.replace(known, files=files))


def test_the_federations_are_found_by_listing_the_folder() -> None:
    assert {"digits", "landmine", "gp_synthetic", "quadratic", "branin", "python_function"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_settings_can_be_read_from_plain_values(name: str) -> None:
    adapter: TypeAdapter[Federation] = TypeAdapter(federations()[name])
    plain = adapter.dump_python(made(name), mode="json")
    assert adapter.validate_python(plain) == made(name)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in COSTLY)) for name in NAMES])
def test_a_federation_keeps_to_the_contract(name: str) -> None:
    try:
        check_federation(made(name))
    except data.DataMissingError:
        pytest.skip(f"the data of {name!r} are not here: see `fedbo data list`")
    except LibraryMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("stride", [15, pytest.param(1, marks=pytest.mark.long)])
def test_a_fresh_process_builds_the_same_objectives_to_the_bit(stride: int, sample_folder: Path) -> None:
    here = {}
    for name in NAMES[::stride]:
        try:
            here[name] = bits(name)
        except (data.DataMissingError, LibraryMissingError):
            continue
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['print_bits'](sys.argv[2:])"
    path = os.pathsep.join([str(sample_folder), os.environ.get("PYTHONPATH", "")])
    child = subprocess.run(
        [sys.executable, "-c", program, __file__, *here],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == here


@dataclasses.dataclass(frozen=True)
class Slope:
    """A small federation that keeps to the contract; `fault` breaks one promise."""

    fault: str = ""
    random_per_replicate = False
    n_agents = 3
    parameters = (Parameter("x", 0.0, 1.0),)
    metric = Metric("height")

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Any:
        if self.fault != "any agent":
            require_agent(agent, self.n_agents)
        return SlopeAgent(0 if self.fault == "alike" else agent, self.fault)


@dataclasses.dataclass
class SlopeAgent:
    agent: int
    fault: str
    calls: int = 0

    @property
    def best_value(self) -> float:
        return 0.3 if self.fault == "best" else 1.0 + self.agent

    def score(self, x: Any) -> float | None:
        return None if self.fault == "noise" else float(x[0]) + self.agent

    def evaluate(self, x: Any, rng: np.random.Generator) -> float:
        self.calls += 1
        x = x if self.fault == "anywhere" else inside(Slope.parameters, x)
        shift = self.calls if self.fault == "counts" else 0.0
        value = float(x[0]) + self.agent + 0.1 * rng.standard_normal() + shift
        return float("nan") if self.fault == "nan" else value


def test_the_contract_accepts_a_small_federation() -> None:
    check_federation(Slope())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("best", "random search found"),
        ("alike", "two agents have the same objective"),
        ("any agent", "objective must say: no agent -1"),
        ("noise", "values have noise, but score is None"),
        ("anywhere", "must refuse x outside"),
        ("counts", "the same stream gives another value"),
        ("nan", "a finite float, or an Outcome of one, not nan"),
    ],
)
def test_the_contract_names_what_is_broken(fault: str, said: str) -> None:
    with pytest.raises(ContractBroken, match=said):
        check_federation(Slope(fault))
