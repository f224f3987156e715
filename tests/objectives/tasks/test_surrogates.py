"""Surrogate networks in NumPy: against the values of onnxruntime, and how points become their inputs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.objectives.base import Array
from fedbo.objectives.datasets.data import DataMissingError, locate
from fedbo.objectives.space import from_unit
from fedbo.objectives.tasks.collections import LCBENCH, XGBOOST
from fedbo.objectives.tasks.scenarios import Scenario
from fedbo.objectives.tasks.surrogate_network import read_graph, read_network
from fedbo.objectives.tasks.tuning_tasks import LCBench, XGBoostTasks

SOURCES = {"lcbench": LCBENCH.source, "rbv2_xgboost": XGBOOST.source}
TUNED = {"val_accuracy", "val_balanced_accuracy", "test_balanced_accuracy", "acc", "bac", "auc"}
LARGEST_TIMES = {"lcbench": 46_790.7, "rbv2_xgboost": 2_540.6}  # the ranges of the networks' outputs, in seconds
# Codes, numbers and outputs of onnxruntime 1.32 at some of the 10,000 configurations below.
KNOWN: dict[str, tuple[tuple[list[int], list[float], list[float]], ...]] = {
    "lcbench": (
        (
            [31],
            [16.0, 106.0, 0.0837057456, 0.751702011, 0.0136424778, 2.0, 561.0, 0.188034743],
            [232.28407, 82.040512, 0.56572229, 0.81642842, 1.6879876, 0.82650614],
        ),
        (
            [20],
            [7.0, 374.0, 0.0191294495, 0.857775331, 0.00100903236, 2.0, 754.0, 0.0223617759],
            [35.893814, 87.940773, 0.29414582, 0.86386776, 0.46297002, 0.85229999],
        ),
        (
            [22],
            [18.0, 128.0, 0.00108560827, 0.563175023, 0.0722929016, 4.0, 201.0, 0.323188126],
            [988.26422, 66.147362, 0.68088424, 0.64697617, 0.68413413, 0.63784051],
        ),
    ),
    "rbv2_xgboost": (
        (
            [109, 2, 2],
            [96.0, 0.0, 0.0, 15.219676, 40.933548, 0.566649258, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.677575171, 3.0],
            [0.55310208, 0.33675689, 0.52420419, 0.54730195, 0.00017376263, 0.96144557, 60.502419, 0.99323463, 0.59964836],
        ),
        (
            [106, 3, 3],
            [
                553.0,
                0.127657205,
                0.642888606,
                2.02470946,
                716.466614,
                0.83858335,
                12.0,
                55.3605461,
                0.431807637,
                0.865200162,
                0.0,
                0.0,
                0.238602519,
                2.0,
            ],
            [0.49865308, 0.49936584, 0.51418382, 0.2503266, 0.54591495, 0.65971708, 2.2473648, 0.18699397, 406.97488],
        ),
        (
            [19, 3, 1],
            [
                223.0,
                0.515341878,
                0.00131935359,
                147.806702,
                0.00587319629,
                0.347544521,
                4.0,
                10.85849,
                0.813408554,
                0.251825839,
                0.0,
                0.0,
                0.813996971,
                8.0,
            ],
            [0.56080365, 0.45451128, 0.82103986, 0.56496823, 0.00016845691, 1.0947045, 9.8539057, 0.34270096, 432.89117],
        ),
        (
            [106, 1, 1],
            [
                153.0,
                0.00148174493,
                0.122249231,
                5.67938757,
                0.00107859774,
                0.176524356,
                4.0,
                84.2839966,
                0.799838126,
                0.339916587,
                0.923688531,
                0.729019344,
                0.254558057,
                6.0,
            ],
            [0.58551079, 0.50205576, 0.47228187, 0.23841316, 0.74871087, 0.66962808, 3.6010435, 0.23501891, 348.02689],
        ),
    ),
}


@pytest.fixture(params=SOURCES)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    source = SOURCES[request.param]
    assert isinstance(source, Scenario)
    try:
        locate(f"yahpo/{source.name}")
    except DataMissingError:
        pytest.skip(f"the data set yahpo/{source.name} is not here: see `fedbo data list`")
    return source


def check(scenario: Scenario, found: Array, expected: Array) -> None:
    """What can be tuned agrees to 1e-5, as a share; a time, of which onnxruntime has float32, to 1e-5 of its range."""
    scales = {"val_accuracy": 100.0, scenario.seconds: LARGEST_TIMES[scenario.name]}
    for place, name in enumerate(scenario.outputs):
        if name in TUNED or name == scenario.seconds:
            gap = np.abs(found[..., place] - expected[..., place]).max()
            assert gap <= 1e-5 * scales.get(name, 1.0), f"{name}: {gap}"


def test_outputs_are_those_of_onnxruntime(scenario: Scenario) -> None:
    for codes, numbers, outputs in KNOWN[scenario.name]:
        check(scenario, scenario.network(np.array(codes), np.array(numbers)), np.array(outputs))


def test_a_point_becomes_the_inputs_of_its_configuration(scenario: Scenario) -> None:
    coding = json.loads((locate(f"yahpo/{scenario.name}") / "encoding.json").read_text())
    federation = LCBench() if scenario.name == "lcbench" else XGBoostTasks()
    for codes, numbers, outputs in KNOWN[scenario.name]:
        words = {
            name: {code: word for word, code in coding[name].items()}[code]
            for name, code in zip(scenario.categories, codes, strict=True)
        }
        data_set = words.pop(scenario.categories[0])
        given = words | dict(zip(scenario.numbers, numbers, strict=True))
        x = np.array([_native(scenario, axis, given) for axis in range(len(scenario.space.parameters))])
        assert {k: v for k, v in scenario.space.configuration(x).items() if v != given[k]} == {}
        fidelity = np.array([given[name] for name in scenario.fidelities])
        check(scenario, federation.task(data_set).outputs(x, fidelity), np.array(outputs))


def _native(scenario: Scenario, axis: int, given: dict[str, Any]) -> float:
    parameter, choices = scenario.space.parameters[axis], scenario.space.choices[axis]
    if choices is not None:
        return float(choices.index(given[parameter.name]))
    return float(np.clip(given[parameter.name], parameter.low, parameter.high))  # an inactive one is 0


def test_the_collections_have_the_publishers_data_sets(scenario: Scenario) -> None:
    declared = json.loads((locate(f"yahpo/{scenario.name}") / "config_space.json").read_text())["hyperparameters"]
    (named,) = [each for each in declared if each["name"] == scenario.categories[0]]
    collection = {"lcbench": LCBENCH, "rbv2_xgboost": XGBOOST}[scenario.name]
    assert collection.data_sets == tuple(named["choices"])
    assert set(collection.development) < set(collection.data_sets)


def test_what_a_condition_makes_inactive_changes_nothing(scenario: Scenario) -> None:
    federation = LCBench(agents=2) if scenario.name == "lcbench" else XGBoostTasks(agents=2)
    task = federation.task(federation.data_sets[1])
    u = np.random.default_rng(3).random((200, len(federation.parameters)))
    moved = np.where(scenario.space.inactive(u), 0.25, u)
    assert np.array_equal(
        task.scores(from_unit(federation.parameters, u)), task.scores(from_unit(federation.parameters, moved))
    )


@pytest.mark.long
def test_one_point_by_compiled_code_is_as_by_numpy(scenario: Scenario) -> None:
    federation = LCBench(agents=3) if scenario.name == "lcbench" else XGBoostTasks(agents=3)
    task, rng = federation.task(federation.data_sets[2]), np.random.default_rng(5)
    points = from_unit(federation.parameters, rng.random((200, len(federation.parameters))))
    fidelities = rng.uniform(1.0, 10.0, (200, len(scenario.fidelities)))
    found = np.array([task.outputs_at(x, tuple(fidelity)) for x, fidelity in zip(points, fidelities, strict=True)])
    assert found == pytest.approx(task.outputs(points, fidelities), rel=1e-9, abs=1e-12)
    quantity, seconds = (scenario.outputs.index(name) for name in (task.quantity, scenario.seconds))
    assert [task.evaluate(points[0], rng), task.cost(points[0])] == [
        task.outputs_at(points[0], task.fidelity)[place] for place in (quantity, seconds)
    ]


def test_an_epoch_more_takes_longer_and_is_another_value() -> None:
    try:
        early, late = (LCBench(agents=1, epoch=epoch).task("3945") for epoch in (3, 52))
        x = from_unit(early.scenario.space.parameters, np.full(7, 0.4))
    except DataMissingError:
        pytest.skip("the data set yahpo/lcbench is not here: see `fedbo data list`")
    rng = np.random.default_rng(0)
    assert early.cost(x) < 0.2 * late.cost(x) and early.evaluate(x, rng) < late.evaluate(x, rng)
    assert len(pickle.dumps(late)) < 10_000  # the network is read where it is needed
    assert late.evaluate_at(x, 3, rng) == early.evaluate(x, rng) and late.evaluate_at(x, 52, rng) == late.evaluate(x, rng)
    both = late.outputs(np.array([x, x]), np.array([[3.0], [52.0]]))
    assert both[:, 0] == pytest.approx([early.cost(x), late.cost(x)])


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x3a\x7fshort")
    with pytest.raises(ValueError, match="is not a supported model"):
        read_graph(tmp_path / "model.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"\x3a\x00")
    with pytest.raises(ValueError, match="is not a supported network"):
        read_network(tmp_path / "empty.onnx")


def test_ten_thousand_configurations_agree_with_onnxruntime(scenario: Scenario) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed, which networks are compared with")
    rng, count = np.random.default_rng(7), 10_000
    points = from_unit(scenario.space.parameters, rng.random((count, len(scenario.space.parameters))))
    inputs = scenario.inputs
    active = inputs.active[points[:, inputs.parent].astype(int) if inputs.parent is not None else np.zeros(count, int)]
    numbers = np.zeros((count, len(scenario.numbers)), dtype=np.float32)
    numbers[:, inputs.columns] = np.where(active, points, 0.0)[:, inputs.axes]
    ends = {"epoch": (1, 52), "trainsize": (0.03, 1.0), "repl": (1, 10)}
    for column, name in zip(inputs.fidelities, scenario.fidelities, strict=True):
        numbers[:, column] = rng.uniform(*ends[name], count) if name == "trainsize" else rng.integers(*ends[name], count)
    codes = np.column_stack(
        [rng.choice(list(inputs.data_sets.values()), count), *[t[points[:, a].astype(int)] for a, t in inputs.codes]]
    )
    session = runtime.InferenceSession(str(locate(f"yahpo/{scenario.name}") / "model.onnx"))
    (expected,) = session.run(None, {"x_cat": codes.astype(np.int32), "x_cont": numbers})
    check(scenario, scenario.network(codes, numbers.astype(np.float64)), expected)
    each = [scenario.network.at(code, number) for code, number in zip(codes, numbers.astype(np.float64), strict=True)]
    check(scenario, np.array(each), expected)
