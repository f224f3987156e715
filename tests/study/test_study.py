"""Studies that are right: complete, repeatable, swept."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.algorithms.base import Algorithm
from fedbo.algorithms.catalog import algorithms
from fedbo.coordinator.environment.timing import Lognormal
from fedbo.objectives.catalog import federations
from fedbo.objectives.datasets.data import DataMissingError
from fedbo.study.document import StudyError, to_toml
from fedbo.study.study import Study, load_study


def tables(**changes: Any) -> dict[str, Any]:
    return {
        "study": {"name": "small"},
        "objective": {"name": "quadratic", "agents": 4},
        "budget": {"iterations": 5},
        "algorithm": [{"name": "random"}],
        **changes,
    }


def again(study: Study) -> Study:
    return load_study(tomllib.loads(study.to_toml()))


FULL = tables(
    study={"name": "full", "description": 'says "so"\n', "seed": 2**63 - 1, "replicates": 3},
    objective={"name": "quadratic", "noise": 0.25},
    agents={"targets": [2, 0], "initial": 2, "history": {"algorithm": "random", "observations": 9, "fresh": True}},
    budget={"iterations": 4, "time": 12.5},
    algorithm=[{"name": "random"}, {"name": "random", "label": "two at once", "queries": 2}],
    timing={"evaluation": {"model": "lognormal", "sigma": 0.5}, "decision": {"coefficient": 0.1}},
    availability={"model": "bernoulli", "probability": 0.2},
    exchange={"mode": "barrier"},
    hosting={"kind": "packed"},
    sweep={"exchange.mode": ["barrier", "immediate"], "algorithm.two at once.queries": [1, 2, 3]},
)


def test_a_resolved_study_shows_its_defaults() -> None:
    shown = load_study(tables()).document()
    assert shown["timing"]["latency"] == {"model": "constant", "mean": 0.0}
    assert shown["algorithm"] == [{"name": "random", "label": "random", "queries": 1}]
    assert shown["hosting"] == {"kind": "inline", "workers": 0, "package": "wheel", "isolate": False, "labels": {}}
    assert shown["objective"] == {
        "name": "quadratic", "agents": 4, "dimensions": 2, "spread": 0.1, "noise": 0.0, "cost_spread": 0.0,
    }  # fmt: skip
    assert shown["agents"] == {"targets": "all", "initial": 3, "checkpoint": 1}


def test_a_resolved_study_reads_as_itself() -> None:
    for study in (load_study(tables()), load_study(FULL)):
        assert again(study) == study
        assert again(study).digest() == study.digest()
        assert json.loads(json.dumps(study.document())) == study.document()


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_can_be_named_in_a_study_and_comes_back_from_its_file_the_same(name: str) -> None:
    for preset in (None, *algorithms()[name].presets):
        named = [{"name": name, "preset": preset}]
        study = load_study(tables(algorithm=named, budget={"pulls": 50}, exchange={"mode": "barrier"}))
        assert isinstance(study.algorithm[0].make(), Algorithm)
        assert again(study).algorithm[0].make() == study.algorithm[0].make()
        assert study.labels == (f"{name} ({preset})" if preset else name,)


UNNAMED = {"landmine", "python_function", "sites", "typed_function"}  # by nothing but their name


@pytest.mark.parametrize("name", sorted(set(federations()) - UNNAMED))
def test_every_objective_can_be_named_in_a_study_and_comes_back_from_its_file_the_same(name: str) -> None:
    try:
        study = load_study(tables(objective={"name": name}))
    except DataMissingError as error:
        pytest.skip(str(error))
    assert again(study).federation() == study.federation()


def test_a_function_is_named_by_its_place() -> None:
    def inner(x: Any) -> float:
        return 0.0

    objective = {"name": "python_function", "function": np.prod, "low": (0.0,), "high": np.array([1.0])}
    study = load_study(tables(objective=objective))
    assert study.document()["objective"]["function"] == "numpy:prod"
    with pytest.raises(ValueError, match="cannot be written to a study; use numbers, strings, or a function of a module"):
        load_study(tables(objective={**objective, "function": inner}))


def test_noise_is_the_objectives_own_where_it_has_some_and_is_added_where_it_has_none() -> None:
    own = load_study(tables(objective={"name": "quadratic", "noise": 0.25}))
    added = load_study(tables(objective={"name": "digits", "noise": 0.25}))
    assert own.objective.noise == 0.0 and own.document()["objective"]["noise"] == 0.25
    assert added.objective.noise == 0.25 and again(added).objective.noise == 0.25
    with pytest.raises(ValueError, match=r"\[objective\] noise = -1: must be at least 0"):
        load_study(tables(objective={"name": "digits", "noise": -1}))


def test_targets_are_sorted_and_models_are_made() -> None:
    study = load_study(FULL)
    assert study.targets == (0, 2)
    assert study.timing.evaluation.make() == Lognormal(1.0, 0.5, 0.0)
    assert study.agents.history is not None
    assert study.agents.history.algorithm.make() == algorithms()["random"].make()


def test_a_sweep_is_every_combination_of_its_values_each_with_its_own_study() -> None:
    cells = load_study(FULL).cells()
    assert [cell.number for cell in cells] == list(range(6))
    assert [(c.study.exchange.mode, c.study.algorithm[1].settings["queries"]) for c in cells] == [
        (mode, queries) for mode in ("barrier", "immediate") for queries in (1, 2, 3)
    ]
    assert cells[1].title == "exchange.mode = barrier, algorithm.two at once.queries = 2"
    assert not cells[1].study.sweep
    assert len(load_study(tables()).cells()) == 1


def test_sweeping_a_name_does_not_carry_the_defaults_of_one_over_to_the_other() -> None:
    swept = tables(
        objective={"name": "quadratic"},
        sweep={"objective.name": ["quadratic", "digits"], "timing": {"evaluation.model": ["constant", "lognormal"]}},
        timing={"evaluation": {"model": "constant", "mean": 2.0}},
    )
    study = load_study(swept)
    for resolved in (study, again(study)):
        found = [(cell.study.objective.settings, cell.study.timing.evaluation.settings) for cell in resolved.cells()]
        assert "dimensions" in found[0][0] and "alpha" in found[2][0] and "dimensions" not in found[2][0]
        assert [timing for _, timing in found[:2]] == [{"mean": 2.0}, {"mean": 2.0, "sigma": 1.0, "between": 0.0}]


def test_a_swept_preset_leaves_the_label_as_it_is() -> None:
    study = load_study(tables(algorithm=[{"name": "ts"}], sweep={"algorithm.ts.preset": ["faithful"]}))
    cell = again(study).cells()[0]
    assert cell.study.labels == ("ts",)
    assert cell.study.algorithm[0].make() == algorithms()["ts"].make("faithful")


def test_overrides_are_toml_values_at_dotted_keys_and_bare_words_are_strings() -> None:
    overrides = [
        "budget.iterations=9",
        "exchange.mode=barrier",
        "algorithm.random.queries = 3",
        "agents.targets=[1, 2]",
        "sweep.objective.spread=[0.1, 0.2]",
        "timing.evaluation={model = 'lognormal', mean = 3}",
    ]
    study = load_study(tables(), overrides)
    assert (study.budget.iterations, study.exchange.mode, study.targets) == (9, "barrier", (1, 2))
    assert study.algorithm[0].settings == {"queries": 3}
    assert study.sweep == {"objective.spread": [0.1, 0.2]}
    assert study.timing.evaluation.settings["mean"] == 3.0


def test_the_digest_is_of_what_can_change_a_result_and_of_nothing_else() -> None:
    digest = load_study(tables()).digest()
    assert digest == load_study(tables(hosting={"kind": "packed", "workers": 4})).digest()
    assert digest == load_study(tables(study={"name": "other", "description": "why"})).digest()
    assert digest != load_study(tables(study={"name": "small", "seed": 1})).digest()
    assert digest != load_study(tables(budget={"iterations": 6})).digest()


def test_initial_points_come_from_a_file_beside_the_study_and_are_part_of_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(to_toml(tables(agents={"targets": [1], "initial_file": "points.csv"})), encoding="utf-8")
    points = tmp_path / "points.csv"
    points.write_text("agent,replicate,point,x1,x2\n1,0,2,0.3,0.4\n1,0,1,0.1,1\n7,0,0,0,0\n", encoding="utf-8")
    study = load_study(path)
    digest, found = study.digest(), study.initial_points()
    assert found is not None and study.agents.initial == 2
    np.testing.assert_array_equal(found[1, 0], [[0.1, 1.0], [0.3, 0.4]])
    points.write_text("agent,replicate,point,x1,x2\n1,0,2,0.3,0.4\n1,0,1,0.1,0.9\n", encoding="utf-8")
    assert load_study(path).digest() != digest


CHARACTERS = st.characters(exclude_categories=["Cs"])  # those of UTF-8, which Hypothesis finds by trying each
TEXT = st.text(CHARACTERS, max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(CHARACTERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=10)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.dictionaries(TEXT, VALUES, min_size=1)))
def test_whatever_is_written_as_toml_reads_as_what_it_was(document: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(document)) == document


def test_a_study_at_sites_refuses_ends_by_what_stays_there() -> None:
    study = {
        "study": {"name": "sites"},
        "objective": {"name": "sites", "agents": 2, "low": [0.0], "high": [1.0]},
        "algorithm": [{"name": "fts", "every": 1}],
        "timing": {"clock": "wall"},
        "hosting": {"kind": "sites"},
    }
    load_study({**study, "budget": {"iterations": 3}})
    for key, words in (
        ("cost", "counts durations that stay at the sites"),
        ("target", "depends on values that stay at the sites"),
    ):
        with pytest.raises(StudyError, match=rf"\[budget\] {key} = 1.0: {words}"):
            load_study({**study, "budget": {"iterations": 3, key: 1.0}})
