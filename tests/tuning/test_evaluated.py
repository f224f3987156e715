"""What was evaluated before, from CSV files and Optuna studies, as the beginning of an agent's history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ConfigSpace as CS
import numpy as np
import pytest

import fedbo
from fedbo.tuning.evaluated import Evaluated, evaluated, evaluated_in_csv, evaluated_in_study

HEAD = "date,kind,layers,rate,loss\n"


def space() -> CS.ConfigurationSpace:
    made = CS.ConfigurationSpace({"kind": ["tree", "net"], "layers": (1, 4), "rate": (0.0, 1.0)})
    made.add(CS.EqualsCondition(made["layers"], made["kind"], "net"))
    return made


def table(folder: Path, *lines: str) -> Path:
    path = folder / "old.csv"
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_an_agent_begins_with_the_rows_of_a_csv_file(tmp_path: Path) -> None:
    path = table(tmp_path, "monday,net,3,0.25,1.5", "tuesday,tree,,0.5,0.75", "friday,tree,,0.125,")
    points = evaluated_in_csv(path, space(), value="loss")
    assert points == [
        Evaluated({"kind": "net", "layers": 3, "rate": 0.25}, 1.5, "old.csv/2"),
        Evaluated({"kind": "tree", "rate": 0.5}, 0.75, "old.csv/3"),
    ]
    with fedbo.Agent(tmp_path / "agent", space(), fedbo.Terms("ts", mode="min")) as agent:
        assert [agent.add(*point) for point in points * 2] == [True, True, False, False]
        assert agent.best() == ({"kind": "tree", "rate": 0.5}, 0.75)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("m,bush,,0.5,1", "line 2: kind = 'bush': is not one of tree, net"),
        ("m,tree,,much,1", "line 2: rate = 'much': is not a number"),
        ("m,tree,,0.5,well", "line 2: loss = 'well': is not a number"),
        ("m,tree,,1.5,1", "line 2: rate = 1.5: must be a number in"),
        ("m,net,,0.5,1", "line 2: layers: is missing"),
        ("m,tree,2,0.5,1", "line 2: layers: is not active in this configuration; remove it"),
        ("m,net,2.5,0.5,1", "line 2: layers = 2.5: must be a whole number in"),
    ],
)
def test_a_row_that_will_not_do_is_named(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        evaluated_in_csv(table(tmp_path, line), space(), value="loss")


def test_a_file_without_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no column 'value'; available: date, kind, layers, rate, loss"):
        evaluated_in_csv(table(tmp_path), space())


def test_an_agent_begins_with_the_trials_of_an_optuna_study(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="needs Optuna: pip install optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def loss(trial: Any) -> float:
        kind, rate = trial.suggest_categorical("kind", ["tree", "net"]), trial.suggest_float("rate", 0.0, 1.0)
        layers = trial.suggest_int("layers", 1, 4) if kind == "net" else 0
        if trial.number == 2:
            raise optuna.TrialPruned
        return float(rate + layers + trial.suggest_float("elsewhere", 0.0, 1.0))

    study = optuna.create_study(study_name="old", sampler=optuna.samplers.RandomSampler(3))
    study.optimize(loss, n_trials=6)
    points = evaluated_in_study(study, space(), mode="min")
    assert [point.name for point in points] == ["old/0", "old/1", "old/3", "old/4", "old/5"]
    assert [point.value for point in points] == [trial.value for trial in study.trials if trial.value is not None]
    with fedbo.Agent(tmp_path, space(), fedbo.Terms("gp_ei", mode="min")) as agent:
        for point in points:
            agent.add(*point)
        best = agent.best()
        assert best is not None and best[1] == study.best_value
    with pytest.raises(ValueError, match="study 'old': has direction 'min', not 'max'"):
        evaluated_in_study(study, space(), mode="max")
    with pytest.raises(ValueError, match="trial [01]: kind = 'tree': is not one of .'bush', 'net'."):
        evaluated_in_study(study, {"kind": ["bush", "net"]})
    several = optuna.create_study(directions=["minimize", "maximize"], study_name="both")
    with pytest.raises(ValueError, match="study 'both': has 2 objectives; use a study with one objective"):
        evaluated_in_study(several, space())


def test_an_agent_begins_with_dictionaries_or_a_data_frame_of_values_of_any_kind() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas: pip install pandas")
    mixed = {"kind": ["a", None, 3, True], "model": {"n": (1, 9)}, "x": (0.0, 1.0)}
    rows = [
        {"kind": "a", "model": {"n": 2}, "x": 0.5, "value": 1.0, "seconds": 3},
        {"x": 0.25, "kind": True, "model": {"n": 9}, "value": 2},
        {"kind": 3, "model": {"n": 1}, "x": 0.0, "value": None},
    ]
    found = evaluated(rows, mixed)
    first = {"kind": "a", "model.n": 2, "x": 0.5}
    assert found == [
        Evaluated(first, 1.0, "start/1"),
        Evaluated({"kind": True, "model.n": 9, "x": 0.25}, 2.0, "start/2"),
    ]
    flat = [{**row, **{"model.n": row["model"]["n"]}} for row in rows]  # type: ignore[index]
    frame = pandas.DataFrame(flat).drop(columns="model")
    assert evaluated(frame, mixed) == found
    assert evaluated(frame.rename(columns={"kind": "param_kind"}), mixed) == found
    with fedbo.Agent(None, mixed, fedbo.Terms("ts"), start=rows) as agent:
        assert agent.best() == ({"kind": True, "model": {"n": 9}, "x": 0.25}, 2.0)
    with pytest.raises(fedbo.errors.ArgumentError, match=r"^start, row 1: x = 5: must be a number in \[0, 1\]"):
        evaluated([{**first, "x": 5, "value": 1.0}], mixed)
    with pytest.raises(fedbo.errors.ArgumentError, match="'start': has no column 'value'; available: kind, model.n, x"):
        evaluated([first], mixed)


def test_tables_of_optuna_and_ray_tune_name_parameters_with_their_prefixes() -> None:
    rows = [{"number": 0, "value": 0.5, "params_number": 7, "params_x": 0.25, "state": "COMPLETE"}]
    found = [Evaluated({"number": 7, "x": 0.25}, 0.5, "start/1")]
    assert evaluated(rows, {"number": (1, 9), "x": (0.0, 1.0)}) == found, "the number is not that of the trial"
    assert evaluated([{"config/model/n": 2, "loss": 0.5}], {"model": {"n": (1, 9)}}, "loss")[0][:2] == ({"model.n": 2}, 0.5)
    both = {"x": (0.0, 1.0), "params_x": (0.0, 1.0)}
    assert evaluated([{"x": 0.1, "params_x": 0.2, "value": 1.0}], both)[0].configuration == {"x": 0.1, "params_x": 0.2}
    with pytest.raises(fedbo.errors.ArgumentError, match=r"^start = array\(\[\[0., 0.\], \[0., 0.\]\]\): pass pairs"):
        evaluated(np.zeros((2, 2)), both)
