"""A file of times whose ids are more than the agents: one line says that no agent follows the largest of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedbo.analysis.cost import unused_ids
from fedbo.cli import main
from fedbo.study.study import load_study

WINDOWS = "agent,start,end\n0,0,5\n1,1,9\n7,2,30\n"
FEDSCALE = json.dumps({name: {"active": [0], "inactive": [5], "finish_time": 9} for name in ("0", "1", "7")})
DEVICES = json.dumps({name: {"computation": 1.0, "communication": 2.0} for name in ("0", "1", "7")})
DURATIONS = "agent,duration\n0,1\n1,2\n7,3\n"


def document(agents: int, **tables: Any) -> dict[str, Any]:
    of = {"study": {"name": "s"}, "objective": {"name": "quadratic", "agents": agents}, "budget": {"iterations": 1}}
    return {**of, "algorithm": [{"name": "random"}], **tables}


CASES = [
    (WINDOWS, "times.csv", {"availability": {"model": "trace"}}, "[availability]: "),
    (FEDSCALE, "times.json", {"availability": {"model": "trace", "format": "fedscale"}}, "[availability]: "),
    (DURATIONS, "times.csv", {"timing": {"evaluation": {"model": "empirical"}}}, "[timing] evaluation: "),
    (DURATIONS, "times.csv", {"timing": {"latency": {"model": "empirical"}}}, "[timing] latency: "),
    (DEVICES, "times.json", {"timing": {"devices": None}}, "[timing] devices: "),
    (WINDOWS, "times.csv", {"group": [{"name": "slow", "agents": [0], "availability": {"model": "trace"}}]}, "'slow': "),
    (DURATIONS, "times.csv", {"group": [{"name": "slow", "agents": [0], "evaluation": {"model": "empirical"}}]}, "'slow': "),
]


def with_file(value: Any, file: str) -> Any:
    """Return tables in which every model of a file, and `devices`, name this one."""
    if isinstance(value, dict):
        named = {"file": file} if value.get("model") in ("trace", "empirical") else {}
        return named | {key: file if item is None else with_file(item, file) for key, item in value.items()}
    return [with_file(item, file) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("text", "name", "tables", "where"), CASES, ids=[f"{name}-{where}" for _, name, _, where in CASES])
def test_ids_that_no_agent_follows_are_told(text: str, name: str, tables: Any, where: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    of_two, of_three = (load_study(document(agents, **with_file(tables, str(tmp_path / name)))) for agents in (2, 3))
    line = unused_ids(of_two)
    assert line is not None and line.endswith("the file has 3 ids for 2 agents; only the 2 smallest are used")
    assert where in line
    assert unused_ids(of_three) is None


def test_validate_and_run_print_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "times.csv").write_text(WINDOWS)
    study = tmp_path / "s.toml"
    study.write_text(
        '[study]\nname = "s"\n[objective]\nname = "quadratic"\nagents = 2\n[budget]\niterations = 1\n'
        '[availability]\nmodel = "trace"\nfile = "times.csv"\n[[algorithm]]\nname = "random"\n'
    )
    for command in (["validate", str(study)], ["run", str(study), "--out", str(tmp_path / "run"), "--quiet"]):
        assert main(command) == 0
        assert "warning: [availability]: the file has 3 ids for 2 agents" in capsys.readouterr().err
