"""`fedbo tabulate`: the same table however it was made, never lost, and never taken for another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import countable
import numpy as np
import pyarrow.parquet as pq
import pytest

import fedbo
from fedbo.cli import FAILED, INTERRUPTED, OK, WRONG_INPUT, main
from fedbo.study.document import to_toml
from fedbo_tables.sources import source
from fedbo_tables.table import POINTS
from fedbo_tables.tabulation import TableRequest, tabulate_objective
from fedbo_tables.worker import TableJob, TablePlan, Tabulator, rows_of, sobol

HILL = ["function=countable:hill", "low=[0.0, 0.0]", "high=[1.0, 1.0]", "agents=2"]
SIZE: dict[str, Any] = {"points": 24, "refine": 20}
TOTAL = 2 * 44


@pytest.fixture(autouse=True)
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(countable.COUNT, str(tmp_path / "count"))
    return tmp_path / "count"


def made(folder: str, sets: Sequence[str] = HILL, **size: Any) -> Path:
    fedbo.tabulate("python_function", overrides=sets, out=folder, **(size or SIZE))
    return Path(folder)


def bits(folder: Path) -> tuple[bytes, Any]:
    """Give everything of a table that its making must not change."""
    facts = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    assert facts["status"] == "complete" and not (folder / "parts").exists()
    return (folder / "points.parquet").read_bytes(), [facts["agents"], facts["points_sha256"], facts["first_failure"]]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = WRONG_INPUT) -> str:
    assert main(["tabulate", *arguments, "--quiet"]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.rstrip()


def test_a_table_holds_every_agents_values_at_the_same_sobol_points(tmp_path: Path) -> None:
    folder = made("t", points=24)
    table = pq.read_table(folder / "points.parquet")
    assert table.schema == POINTS and len(table) == 2 * 24
    u = np.array(table["u"].to_pylist()).reshape(2, 24, 2)
    assert (u == u[0]).all() and (u[0] == sobol(0, 2, 24)).all()
    assert table["value"].to_numpy()[:2] != pytest.approx(table["value"].to_numpy()[24:26])


def test_a_sobol_design_covers_the_cube_is_nested_and_depends_on_its_seed() -> None:
    whole = sobol(3, 2, 64)
    assert (sobol(3, 2, 23) == whole[:23]).all() and not (sobol(4, 2, 64) == whole).any()
    cells = {(int(a), int(b)) for a, b in whole * 8}
    assert len(cells) == 64, "a Sobol sequence puts one of 64 points into each of 64 squares"


def test_chunks_of_any_size_in_any_order_give_the_same_bits(tmp_path: Path) -> None:
    whole = made("whole")
    origin, _ = source("python_function", HILL)
    folder = tmp_path / "pieces"
    helper = Tabulator(TablePlan(folder, origin.federation, 0, 0))
    chunks = [TableJob("design", agent, first, min(first + 7, 24)) for agent in range(2) for first in range(0, 24, 7)]
    for job in reversed(chunks):
        helper.work(job)
    for agent, first, stop in [(1, 0, 3), (0, 0, 20), (1, 3, 11), (1, 11, 20)]:
        helper.work(TableJob("refine", agent, first, stop))
    assert rows_of(folder).equals(rows_of(whole))


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.long), 70])
@pytest.mark.long
def test_a_table_whose_maker_died_is_gone_on_with_to_the_same_bits(
    number: int, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bits(made("whole"))
    counted.unlink()
    monkeypatch.setenv(countable.ORDER, f"die {number}")
    with pytest.raises(KeyboardInterrupt):
        made("cut")
    left = sorted(Path("cut/parts").glob("*.parquet"))
    Path("cut/parts/.agent-00000-design-00000000-00000009.parquet.77.part").write_bytes(b"half a part")
    if len(left) > 2:
        left[1].unlink()
    made("cut")
    assert bits(Path("cut")) == whole
    assert counted.stat().st_size <= TOTAL + number, "what was in a part has been evaluated again"


@pytest.mark.long
def test_a_maker_that_is_killed_loses_only_what_was_in_flight(counted: Path) -> None:
    whole = bits(made("whole"))
    counted.unlink()
    sets = [word for text in HILL for word in ("--set", text)]
    command = ["tabulate", "python_function", *sets, "--points", "24", "--refine", "20", "--out", "cut", "--quiet"]
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])  # where the plug-in is declared too
    environment = {**os.environ, "PYTHONPATH": paths, countable.ORDER: "SIGKILL 60"}
    killed = subprocess.run([sys.executable, "-m", "fedbo.cli", *command], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(rows_of(Path("cut"))) >= 48 and json.loads(Path("cut/table.json").read_text())["status"] == "running"
    assert main(command) == OK
    assert bits(Path("cut")) == whole and counted.stat().st_size <= TOTAL + 20


def test_ctrl_c_keeps_every_evaluation_and_the_same_command_goes_on(
    counted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = bits(made("whole"))
    counted.unlink()
    monkeypatch.setenv(countable.ORDER, "SIGINT 50")
    sets = [word for text in HILL for word in ("--set", text)]
    command = ["python_function", *sets, "--points", "24", "--refine", "20", "--out", "cut"]
    assert complaint(capsys, *command, code=INTERRUPTED).startswith("interrupted; partial results are in cut; run the same")
    assert len(pq.read_table("cut/points.parquet")) == 50
    with pytest.raises(
        ValueError, match=r"cut': is not complete \(interrupted\); continue with: fedbo tabulate python_function"
    ):
        fedbo.load_study(on("cut"))
    assert main(["tabulate", *command, "--quiet"]) == OK
    assert bits(Path("cut")) == whole and counted.stat().st_size == TOTAL


@pytest.mark.long
def test_more_points_and_more_steps_keep_the_old_bits(counted: Path) -> None:
    folder = made("t", points=13)
    old = pq.read_table(folder / "points.parquet").to_pylist()
    made("t", points=24)
    assert [row for row in pq.read_table(folder / "points.parquet").to_pylist() if row["index"] < 13] == old
    made("t", points=24, refine=5)
    made("t", points=24, refine=20)
    assert counted.stat().st_size == TOTAL, "something was evaluated twice"
    assert bits(folder) == bits(made("direct"))
    made("t", points=8)
    assert bits(folder) == bits(Path("direct")), "what there is was taken away"


@pytest.mark.long
def test_agents_may_be_tabulated_one_after_the_other() -> None:
    made("t", agents=[1], **SIZE)
    with pytest.raises(ValueError, match="has no evaluations of 1 agents; tabulate agents 0 into the same folder"):
        fedbo.load_study(on("t"))
    made("t", agents=[0], **SIZE)
    assert bits(Path("t")) == bits(made("whole"))


@pytest.mark.long
def test_refinement_finds_better_points_than_the_design() -> None:
    sets = ["agents=3"]
    plain = fedbo.tabulate("branin", overrides=sets, points=64, out="plain")
    refined = fedbo.tabulate("branin", overrides=sets, points=64, refine=128, out="refined")
    for before, after in zip(plain["agents"].values(), refined["agents"].values(), strict=True):
        assert after["best"]["origin"] == "refine" and after["best"]["value"] > before["best"]["value"]
        assert after["best"]["value"] == pytest.approx(-0.397887, abs=0.1)
        assert (before["evaluated"], after["evaluated"]) == (64, 192)


def test_values_are_those_that_a_study_with_this_seed_and_replicate_sees(tmp_path: Path) -> None:
    fedbo.tabulate("branin", overrides=["agents=2", "noise=0.5"], points=4, seed=9, replicate=1, out="t")
    table = pq.read_table("t/points.parquet")
    lines = [
        f"{row['agent']},{replicate},{row['index']},{row['u'][0]!r},{row['u'][1]!r}"
        for replicate in range(2)
        for row in table.to_pylist()
    ]
    Path("points.csv").write_text("\n".join(["agent,replicate,point,x1,x2", *lines]), encoding="utf-8")
    study = {
        "study": {"name": "same", "seed": 9, "replicates": 2},
        "objective": {"name": "branin", "agents": 2, "noise": 0.5},
        "agents": {"initial_file": "points.csv"},
        "budget": {"iterations": 1},
        "algorithm": [{"name": "random"}],
    }
    seen = fedbo.run(study, out=tmp_path / "run").observations.to_pylist()
    scores = [row["score"] for row in seen if row["phase"] == "initial" and row["replicate"] == 1]
    assert scores == table["value"].to_pylist()
    assert scores != [row["score"] for row in seen if row["phase"] == "initial" and row["replicate"] == 0]


def test_failing_evaluations_are_rows_with_their_reason_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "function=countable:holed", "--set", "low=[0.0, 0.0]", "--set", "high=[1.0, 1.0]"]
    assert main(["tabulate", "python_function", *sets, "--points", "16", "--out", "t", "--quiet"]) == OK
    out, err = capsys.readouterr()
    assert err == "8 of 16 evaluations failed; first error: RuntimeError: a hole\n" and "best value" in out
    table = pq.read_table("t/points.parquet")
    errors = table["error"].to_pylist()
    assert errors.count("RuntimeError: a hole") == 4 == errors.count("the objective returned inf, not a finite number")
    assert [bool(error) for error in errors] == np.isnan(table["value"].to_numpy()).tolist()
    everywhere = [*sets, "--set", "high=[0.4, 0.4]"]
    assert main(["tabulate", "python_function", *everywhere, "--points", "4", "--refine", "3", "--out", "n", "-q"]) == FAILED
    assert capsys.readouterr().err.startswith("7 of 7 evaluations failed")


def test_a_study_file_lends_its_objective_its_seed_and_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    study = {
        "study": {"name": "s", "seed": 5},
        "objective": {"name": "branin", "agents": 3, "spread": 0.5},
        "budget": {"iterations": 2},
        "algorithm": [{"name": "random"}],
    }
    Path("study.toml").write_text(to_toml(study), encoding="utf-8")
    assert main(["tabulate", "study.toml", "--set", "objective.agents=2", "--points", "8", "--format", "json", "-q"]) == OK
    facts = json.loads(capsys.readouterr().out)
    assert (facts["federation"], facts["seed"], sorted(facts["agents"])) == ("branin", 5, ["0", "1"])
    assert facts["settings"]["spread"] == 0.5 and facts["directory"] == str(Path("branin.table").resolve())
    sets = ["agents=2", "spread=0.5"]
    assert bits(Path("branin.table")) == bits(_branin("named", sets, seed=5))
    line = complaint(capsys, "study.toml", "--set", "sweep.objective.spread=[0.1, 0.2]")
    assert '[sweep] "objective.spread": a table has one objective' in line


def _branin(folder: str, sets: Sequence[str], **more: Any) -> Path:
    fedbo.tabulate("branin", overrides=sets, points=8, out=folder, **more)
    return Path(folder)


def test_a_folder_of_something_else_is_left_alone_and_the_difference_named(capsys: pytest.CaptureFixture[str]) -> None:
    _branin("t", ["agents=2"])
    before = (Path("t") / "table.json").read_bytes()
    small = ("--points", "8", "--out", "t")
    for arguments, words in (
        (["--set", "agents=3"], "contains another table, with agents = 2, not 3; set another folder with --out"),
        (["--set", "agents=2", "--seed", "1"], "with seed = 0, not 1"),
        (["--set", "agents=2", "--replicate", "1"], "with replicate = 0, not 1"),
    ):
        assert words in complaint(capsys, "branin", *arguments, *small)
    assert 'with federation = "branin", not "quadratic"' in complaint(capsys, "quadratic", *small)
    assert (Path("t") / "table.json").read_bytes() == before
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert "is not empty and contains no table" in complaint(capsys, "branin", "--points", "8", "--out", "full")
    assert "is a file; set a folder" in complaint(capsys, "branin", "--points", "8", "--out", "full/notes.txt")
    fedbo.tabulate("branin", overrides=["agents=2"], points=8, refine=1, out="r")
    assert "agent 0 was refined from 8 points" in complaint(
        capsys, "branin", "--set", "agents=2", "--points", "9", "--out", "r"
    )


def test_what_is_damaged_is_named_and_never_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(countable.ORDER, "die 60")
    with pytest.raises(KeyboardInterrupt):
        made("cut")
    part = sorted(Path("cut/parts").glob("*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"design-00000000-0.*parquet': is damaged \(.*\); delete it and repeat the command"):
        made("cut")
    part.unlink()
    assert bits(made("cut")) == bits(made("whole"))
    points = Path("cut/points.parquet")
    points.write_bytes(points.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"points.parquet': is damaged"):
        made("cut")
    Path("cut/table.json").write_text("{")
    with pytest.raises(ValueError, match=r"table.json': is damaged \(.*\); create the table again in another folder"):
        made("cut")


def test_a_table_is_made_by_one_process_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    from fedbo.study.paths import locked

    _branin("t", ["agents=2"])
    with locked(Path("t")):
        line = complaint(capsys, "branin", "--set", "agents=2", "--points", "16", "--out", "t")
    assert "is open in this process; wait until its run has ended" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["brannin"], "no objective 'brannin'; did you mean 'branin'?"),
        (["branin", "--set", "agnts=3"], "--set: [objective] agnts = 3: no such key; did you mean 'agents'?"),
        (["branin", "--agents", "0,x"], "--agents 0,x: is not a list of agents; write, for example, --agents 0,1,5"),
        (["branin", "--agents", "10"], "--agents: no agent 10; use agents 0 to 9"),
        (["branin", "--points", "0"], "--points"),
        (["tabulated"], "[objective] table: is missing"),
        (
            ["tabulated", "--set", "table=nowhere"],
            "nowhere': contains no table: it has no table.json; create one with: fedbo tabulate",
        ),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in complaint(capsys, *arguments)
    assert not list(Path().iterdir())


def test_the_summary_shows_each_agents_best_place_and_the_errors_of_its_twin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tabulate", "branin", "--set", "agents=2", "--points", "64", "--out", "t"]) == OK
    out, err = capsys.readouterr()
    assert "error: gp" in out and "table: t" in out and "x2" in out
    assert "agent 1: 100%, best value" in err
    facts = json.loads(Path("t/table.json").read_text(encoding="utf-8"))
    best = facts["agents"]["1"]["best"]
    assert f"{-best['value']:.5g}" in out and f"{best['x'][0]:.4g}" in out
    values = pq.read_table("t/points.parquet")["value"].to_numpy()
    assert best["value"] == values[64:].max()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_ray_workers_give_the_same_bits() -> None:
    fedbo.tabulate("branin", overrides=["agents=3"], out="alone", **SIZE)
    fedbo.tabulate("branin", overrides=["agents=3"], out="spread", workers=2, **SIZE)
    assert bits(Path("spread")) == bits(Path("alone"))


def test_the_same_from_python_with_wanted_agents_and_points() -> None:
    origin, hosting = source("branin", ["agents=3"])
    assert (hosting.workers, hosting.address) == (0, None)
    facts = tabulate_objective(origin, Path("t"), TableRequest(points=8, agents=(1,)))
    assert list(facts["agents"]) == ["1"] and facts["agents"]["1"]["evaluated"] == 8


def on(table: str) -> dict[str, Any]:
    """Give a small study on the twin."""
    return {
        "study": {"name": "twin"},
        "objective": {"name": "tabulated", "table": table},
        "budget": {"iterations": 2},
        "algorithm": [{"name": "random"}],
    }
