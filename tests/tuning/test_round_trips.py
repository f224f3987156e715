"""Every form in which evaluations leave a run starts another tuning, whatever the parameters and the choices are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import fedbo
from fedbo.actors.storage.rows import read_table, write_table
from fedbo.analysis import configurations
from fedbo.analysis.result import Result
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.optuna.export import export_to_optuna
from fedbo.settings.columns import PREFIXES, RESERVED
from fedbo.study.agents.histories import history_sources, observed
from fedbo.tuning.evaluated import evaluated

pytestmark = pytest.mark.usefixtures("undrawn")
VIRTUAL: dict[str, Any] = {"timing": {"clock": "virtual"}, "hosting": {"kind": "inline"}, "evaluation": {"resources": []}}
# The names of all columns, of those of a run's own tables, of a metric, and what the prefixes make of some of them.
NAMES = sorted(
    {*RESERVED, "x", "u", "t_n", "phase", "loss", *(f"{prefix}{name}" for prefix in PREFIXES for name in ("value", "a"))}
)
RANGES = {name: (0.0, 1.0 + place) for place, name in enumerate(["a", "=b", "-c", *NAMES])}
CHOICES = {"none": [None, 1, "auto", 0.5], "text": ["", "one", " two", "=three"], "flag": [True, False], "level": [3, 1, 2.5]}


def tuned(configuration: dict[str, Any]) -> dict[str, float]:
    """Return a value that tells configurations apart, and a metric whose name is that of a parameter."""
    total = sum(value for value in configuration.values() if isinstance(value, float))
    return {"value": total, "loss": -1.0, "a": 7.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("round") / "run"
    return fedbo.tune(tuned, {**RANGES, **CHOICES}, algorithm="random", initial=8, iterations=4, out=out, study=VIRTUAL)


def by_csv(run: Result, folder: Path) -> Any:
    run.trials().to_csv(folder / "t.csv")
    return folder / "t.csv"


def by_pandas_csv(run: Result, folder: Path) -> Any:
    run.trials().to_pandas().to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def by_parquet(run: Result, folder: Path) -> Any:
    write_table(run.trials().to_arrow(), folder / "t.parquet")
    return folder / "t.parquet"


def by_pandas_parquet(run: Result, folder: Path) -> Any:
    run.trials().to_pandas().to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def by_optuna(run: Result, folder: Path) -> Any:
    (name,) = export_to_optuna(run, folder / "journal")
    return optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(str(folder / "journal"))))


def by_agent(run: Result, folder: Path) -> Any:
    with fedbo.Agent(folder / "agent", {**RANGES, **CHOICES}, fedbo.Terms("random"), start=run.directory):
        pass
    return folder / "agent"


WAYS: list[Callable[[Result, Path], Any]] = [
    by_csv, by_pandas_csv, by_parquet, by_pandas_parquet, by_optuna, by_agent,
    lambda run, folder: run.directory, lambda run, folder: run.trials(), lambda run, folder: run.trials().to_pandas(),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_a_run_exports_starts_another_tuning(way: Callable[[Result, Path], Any], run: Result, tmp_path: Path) -> None:
    space = {**RANGES, **CHOICES}
    points, read = evaluated(way(run, tmp_path), space), read_space(written_space(space))
    rows = run.observations.to_pylist()
    expected = [(row["value"], configurations(run).at(row["x"])) for row in rows]
    found = [(point.value, point.configuration) for point in points]
    for (value, mine), (worth, theirs) in zip(sorted(found, key=first), sorted(expected, key=first), strict=True):
        assert value == worth and set(mine) == set(theirs)
        assert read.encode(mine) == pytest.approx(read.encode(theirs), rel=1e-12)  # an Arrow column has 1 as 1.0


def test_a_tuning_starts_from_the_csv_file_of_another(run: Result, tmp_path: Path) -> None:
    start = by_csv(run, tmp_path)
    out, space = tmp_path / "run", {**RANGES, **CHOICES}
    again = fedbo.tune(tuned, space, algorithm="random", initial=1, iterations=1, out=out, study=VIRTUAL, start=start)
    histories = read_table(out / "histories.parquet")
    assert sorted(histories["value"].to_pylist()) == sorted(run.observations["value"].to_pylist())
    points = dict(zip(run.observations["value"].to_pylist(), run.observations["x"].to_pylist(), strict=True))
    for value, x in zip(histories["value"].to_pylist(), histories["x"].to_pylist(), strict=True):
        assert x == pytest.approx(points[value], rel=1e-12)
    assert again.observations.num_rows == 2


def test_a_history_takes_the_columns_of_its_parameters_and_refuses_those_of_other_things(run: Result, tmp_path: Path) -> None:
    names = ["value", "agent", "param_value", "x"]
    objective = {"name": "python_function", "function": "tests.random_studies.functions:flat", "names": names}
    objective |= {"low": [0.0] * 4, "high": [99.0] * 4}
    table = run.trials().to_arrow()
    write_table(table, tmp_path / "t.parquet")
    document = {
        "study": {"name": "s"}, "objective": objective, "budget": {"iterations": 1}, "algorithm": [{"name": "random"}],
        "agents": {"history": {"file": str(tmp_path / "t.parquet"), "warm_start": True}},
    }  # fmt: skip
    study = fedbo.load_study(document, trust=True)
    (rows,) = observed(study, history_sources(study)[0], 0).values()
    columns = ["param_value", "param_agent", "param_param_value", "x"]
    assert [row.x for row in rows] == [[row[name] for name in columns] for row in table.select(columns).to_pylist()]
    for bare in ("observations.parquet", "evaluations.parquet"):
        if (run.directory / bare).exists():
            document["agents"] = {"history": {"file": str(run.directory / bare)}}
            with pytest.raises(fedbo.errors.StudyError, match="it must have param_value"):
                fedbo.load_study(document, trust=True)
            with pytest.raises(fedbo.errors.ArgumentError, match="is one of a run's own tables"):
                evaluated(run.directory / bare, RANGES)


@pytest.mark.parametrize(
    ("head", "row", "words"),
    [
        ("value,x", "0.5,1", "has no column 'loss'"),
        ("value,value,x,loss", "1,2,0.5,3", "has the column 'value' twice"),
        ("loss,x", "0.5,one", "x = 'one': is not one of 1, 1"),
        ("value,loss", "0.5,1", "x: is missing"),
        ("loss,value,x", "1,0.5,1", "may be 1 or '1'; pass start="),
    ],
)
def test_a_file_that_can_be_read_in_two_ways_is_refused(head: str, row: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{head}\n{row}\n")
    with pytest.raises(fedbo.errors.ArgumentError, match=words):
        evaluated(tmp_path / "t.csv", {"value": (0.0, 1.0), "x": [1, "1"]}, value="loss")


def first(pair: tuple[Any, Any]) -> float:
    return float(pair[0])
