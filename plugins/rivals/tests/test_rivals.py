"""The plug-in as a whole: fedbo finds its methods, and they keep fedbo's contracts and run in studies."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import fedbo
from fedbo.algorithms.catalog import entry
from fedbo.study.study import load_study
from fedbo.testing.algorithm_contract import check_algorithm
from fedbo.testing.plugin_contract import check_plugin, plugins_of

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SILENT = ("guide_alone", "guide_centre")  # controls without messages
NAMES = sorted(PROJECT["entry-points"]["fedbo.algorithms"])


CONTROLS = ("guide_noise", "guide_shuffled", "dp_guide_noise")  # that differ from their method by a line
FEWER = {"guide": {"draws": 20, "features": 20, "candidates": 50}}  # of which a contract takes a quarter as long


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CONTROLS])
def test_methods_keep_the_contract_of_fedbo(name: str) -> None:
    check_algorithm(entry(name).make(**FEWER.get(name, {})))


@pytest.mark.parametrize("name", ["flora", *(pytest.param(name, marks=pytest.mark.long) for name in NAMES if name != "flora")])
def test_plugins_keep_the_contracts_of_fedbo_with_every_preset(name: str) -> None:
    (plugin,) = (each for each in plugins_of("fedbo-rivals") if each.name == name)
    check_plugin(plugin)


def test_fedbo_finds_all_methods_of_the_package() -> None:
    assert sorted(each.name for each in plugins_of("fedbo-rivals")) == NAMES
    for name in NAMES:
        assert all(entry(name).make(preset) != entry(name).make() for preset in entry(name).presets)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SILENT])
def test_what_agents_send_arrives_in_a_run(name: str, tmp_path: Path) -> None:
    study = {
        "study": {"name": "rivals"},
        "objective": {"name": "quadratic", "agents": 3, "dimensions": 2},
        "agents": {"initial": 2},
        "budget": {"iterations": 2},
        "timing": {"evaluation": {"model": "lognormal", "mean": 1.0}},
        "algorithm": [{"name": name}],
    }
    result = fedbo.run(study, out=tmp_path / "run")
    assert len(result.observations) == 3 * 4
    assert "arrived" in result.events["kind"].to_pylist() and "rejected" not in result.events["kind"].to_pylist()
    assert result.manifest["plugins"], "the manifest names the distribution"


def test_a_message_of_flora_has_room_for_the_observations_of_a_warm_start(tmp_path: Path) -> None:
    study = {
        "study": {"name": "earlier"},
        "objective": {"name": "quadratic", "agents": 2, "dimensions": 2},
        "agents": {"initial": 3},
        "budget": {"iterations": 12},
        "algorithm": [{"name": "random"}],
    }
    fedbo.run(study, out=tmp_path / "run")
    history = {"run": str(tmp_path / "run"), "warm_start": True}
    warm = {"agents": {"initial": 1, "history": history}, "budget": {"iterations": 2}, "algorithm": [{"name": "flora"}]}
    kinds = fedbo.run(study | warm, out=tmp_path / "warm").events["kind"].to_pylist()
    assert "arrived" in kinds and "rejected" not in kinds


EXAMPLES = [*(ROOT / "examples").glob("*.toml"), *(Path(fedbo.__file__).parent / "examples" / "papers").glob("fts_fig*.toml")]


@pytest.mark.parametrize("path", sorted(EXAMPLES), ids=lambda path: path.stem)
def test_every_example_is_a_valid_study(path: Path) -> None:
    try:
        load_study(path)
    except fedbo.errors.DataMissingError:
        pytest.skip(f"{path.name} needs a data set that is not here: set FEDBO_DATA to the folder that has it")
