"""Tables of GPU kernels: spaces against the publisher's counts, a small table of our own, and the published ones if present."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from fedbo.objectives.base import ConfigurationFailedError
from fedbo.objectives.datasets.data import DataMissingError, locate, without_fetching
from fedbo.objectives.space import from_unit, to_unit
from fedbo.objectives.tasks import gpu_kernels
from fedbo.objectives.tasks.gpu_kernels import GPUKernels, KernelTask, read_table, table_of
from fedbo.objectives.tasks.kernel_spaces import CONVOLUTION_MILO, KERNELS, Kernel
from fedbo.objectives.typed_spaces.allowed import moved_singly
from fedbo.objectives.typed_spaces.typed import _combinations
from fedbo.settings.errors import SettingError

SMALL = Kernel("small", {"a": (1, 2, 4), "b": (0, 1)}, ("GPU",), ((("a", "b"), lambda a, b: a * b < 4),))


def entry(a: int, b: int, time: float | str, times: list[float] | None = None) -> dict[str, object]:
    measured = {} if times is None else {"times": times}
    return {"a": a, "b": b, "constant": 15, "time": time, "compile_time": 100.0 * a, "benchmark_time": 50.0, **measured}


ENTRIES = {
    "1,0": entry(1, 0, 2.0, [1.0, 3.0]),
    "1,1": entry(1, 1, 4.0, [4.0, 4.0]),
    "2,0": entry(2, 0, "CompilationFailedConfig"),
    "2,1": entry(2, 1, 0.5, [0.5, 0.5]),
    "4,0": entry(4, 0, "RuntimeFailedConfig", [9.0, 9.0]),
}
TEXT = json.dumps({"device_name": "GPU", "cache": ENTRIES})


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> KernelTask:
    table = table_of(SMALL, TEXT)
    monkeypatch.setitem(KERNELS, "small", SMALL)
    monkeypatch.setattr(gpu_kernels, "read_table", lambda kernel, gpu: table)
    return KernelTask("small", "GPU")


def test_values_are_minus_logarithms_of_raw_times_and_scores_of_their_mean(task: KernelTask) -> None:
    rng, at = np.random.default_rng(0), np.array([0.0, 0.0])
    assert {task.evaluate(at, rng) for _ in range(30)} == {0.0, -math.log(3.0)}
    assert task.score(at) == pytest.approx(-math.log(2.0)) and task.best_value == pytest.approx(math.log(2.0))
    assert task.cost(at) == pytest.approx(0.15) and task.cost(np.array([2.0, 0.0])) == pytest.approx(0.45)
    exact = KernelTask("small", "GPU", noisy=False)
    assert exact.score(at) is None and exact.evaluate(at, rng) == pytest.approx(-math.log(2.0))


def test_a_configuration_that_does_not_run_is_a_failed_evaluation(task: KernelTask) -> None:
    for x, word in (([1.0, 0.0], "CompilationFailedConfig"), ([2.0, 0.0], "RuntimeFailedConfig")):
        with pytest.raises(ConfigurationFailedError, match=f"{word}: this configuration does not run on GPU"):
            task.evaluate(np.array(x), np.random.default_rng(0))


def test_a_forbidden_configuration_is_replaced_by_the_nearest_allowed_one(task: KernelTask) -> None:
    # of (4, 1), half of the axis b is to (4, 0), and a third of the axis a to (2, 1)
    assert task.score(np.array([2.0, 1.0])) == task.score(np.array([1.0, 1.0])) == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("cut", [TEXT[:-1], TEXT[:-2], TEXT[:-2] + ",\n"])
def test_a_table_without_its_last_brackets_is_read(cut: str) -> None:
    lost, whole = table_of(SMALL, cut), table_of(SMALL, TEXT)
    assert np.array_equal(lost.times, whole.times, equal_nan=True) and lost.failure == whole.failure


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("pnpoly", 4092),
        *(pytest.param(*one, marks=pytest.mark.long) for one in (("convolution", 6768), ("convolution_milo", 4362))),
    ],
)
def test_the_conditions_allow_as_many_configurations_as_the_publisher_lists(name: str, count: int) -> None:
    kernel = KERNELS[name]
    cells = np.array(list(itertools.product(*(range(size) for size in kernel.sizes))), dtype=np.float64)
    reached = kernel.space.project(to_unit(kernel.space.parameters, cells))
    assert len(np.unique(reached, axis=0)) == count


def test_the_nearest_allowed_configurations_are_those_of_a_search_for_each_point() -> None:
    space, rng = CONVOLUTION_MILO.space, np.random.default_rng(1)
    x = from_unit(space.parameters, rng.random((40, 7)))
    axes, combined = _combinations(space)
    searched = axes, combined, to_unit(tuple(space.parameters[axis] for axis in axes), combined)
    singly = moved_singly(x, space._wrong, searched, space.defaults)
    assert np.array_equal(space._repaired(x), singly) and not np.array_equal(singly, x)


def test_more_agents_than_gpus_are_refused() -> None:
    with pytest.raises(SettingError, match="use 1 to 4, the GPUs of this kernel"):
        GPUKernels("pnpoly", agents=5)
    assert GPUKernels("convolution_milo").agent_names[3] == "MI250X" and GPUKernels(agents=2).n_agents == 2


@pytest.mark.parametrize(
    "name", ["pnpoly", *(pytest.param(name, marks=pytest.mark.long) for name in KERNELS if name != "pnpoly")]
)
def test_the_allowed_configurations_are_those_of_the_published_tables(name: str) -> None:
    kernel = KERNELS[name]
    try:
        with without_fetching():
            locate(f"kernels/{name}")
    except DataMissingError as missing:
        pytest.skip(str(missing))
    cells = np.array(list(itertools.product(*(range(size) for size in kernel.sizes))), dtype=np.float64)
    space = kernel.space
    reached = from_unit(space.parameters, np.unique(space.project(to_unit(space.parameters, cells)), axis=0)).astype(int)
    rows = np.unique(np.ravel_multi_index(tuple(reached.T), kernel.sizes))
    for agent, gpu in enumerate(kernel.gpus[:2]):
        table = read_table(name, gpu)
        assert np.array_equal(rows, np.flatnonzero(table.place >= 0))
        assert np.isfinite(table.times[np.isfinite(table.time)]).all() and (table.seconds > 0.0).all()
        task = GPUKernels(name).objective(agent, np.random.default_rng(), np.random.default_rng())
        best = int(np.nanargmin(table.time))
        cell = np.unravel_index(int(np.flatnonzero(table.place == best)[0]), kernel.sizes)
        assert task.score(np.array(cell, dtype=np.float64)) == task.best_value == -math.log(table.time[best])
