"""A method whose messages are refused is said at the end of its run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import fedbo
from fedbo.analysis.described import refusals
from fedbo.cli import main

STUDY = """
[study]
name = "refused"
[objective]
name = "branin"
agents = 3
[budget]
iterations = 2
[[algorithm]]
name = "my_refused.py:MyRefused"
"""


def messages(**counts: int) -> Any:
    """Make a run with a table of messages: so many that arrived, and so many refused for each reason."""
    rows = [
        {"algorithm": "mine", "kind": "arrived" if reason == "arrived" else "rejected", "reason": reason, "message": None}
        for reason, count in counts.items()
        for _ in range(count)
    ]
    text = pa.string()
    names = ("algorithm", "kind", "reason", "message")
    return SimpleNamespace(events=pa.Table.from_pylist(rows, pa.schema([(name, text) for name in names])))


def test_only_most_messages_refused_for_a_fault_are_a_line() -> None:
    assert refusals(messages(arrived=9, malformed=8, duplicate=20, given_up=3)) == []
    (line,) = refusals(messages(arrived=2, malformed=3, stale=1))
    assert line.startswith("4 of 6 messages of 'mine' were refused: malformed;")
    assert refusals(messages(arrived=0)) == []


def test_a_coordinator_half_that_raises_is_said_on_standard_error_and_warned_of_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "algorithm", "my_refused"]) == 0
    file = tmp_path / "my_refused.py"
    file.write_text(
        file.read_text().replace('message.sender: message.payload["x"]', 'message.sender: message.payload["lenght"]')
    )
    (tmp_path / "study.toml").write_text(STUDY)
    assert main(["run", "study.toml", "--out", "run", "--quiet"]) == 0
    words = "all 6 messages of 'MyRefused' were refused: KeyError: 'lenght'; fedbo show --trouble counts them"
    assert words in capsys.readouterr().err.splitlines()
    with pytest.warns(RuntimeWarning, match="all 6 messages of 'MyRefused' were refused"):
        fedbo.run("study.toml", out="again")
