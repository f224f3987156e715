"""Where the output of a command goes: a full disk, a terminal without Unicode and a closed pipe are one line or none."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedbo.cli import main

# The schema takes half a second each time; the listing is JSON as well.
SCHEMA = pytest.param(["schema"], marks=pytest.mark.long)
COMMANDS = (["--help"], ["run", "--help"], ["list"], ["data", "list"], ["list", "--format", "json"], SCHEMA, ["examples"])
SMALL = """study = { name = "s" }
objective = { name = "quadratic", agents = 2 }
budget = { iterations = 2 }
hosting = { kind = "inline" }
algorithm = [{ name = "random" }]
"""
IDS = ["--help", "run --help", "list", "data list", "list --format json", "schema", "examples"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is full")
@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_an_output_that_cannot_be_written_is_one_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(command) == 1
        assert capsys.readouterr().err == "the output cannot be written (No space left on device); write it somewhere else\n"


@pytest.mark.parametrize("command", COMMANDS[2:], ids=IDS[2:])  # the parser of arguments writes UTF-8 in any case
def test_what_an_encoding_lacks_is_a_question_mark_and_json_loses_nothing(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="ascii") as narrow:
        monkeypatch.setattr(sys, "stdout", narrow)
        assert main(command) == 0 and capsys.readouterr().err == ""
        said = written.getvalue().decode("ascii")
    if "json" in command or command == ["schema"]:
        monkeypatch.undo()
        assert main(command) == 0
        assert json.loads(said) == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("command", "code"), [(["--help"], 0), (["list", "--format", "json"], 0), (["nosuch"], 2)])
def test_streams_that_are_closed_change_no_exit_code(command: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)  # as Python makes it of a closed descriptor
    assert main(command) == code
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


@pytest.mark.parametrize("command", [["validate", "study.toml"], ["run", "study.toml"]])
def test_a_working_directory_that_was_removed_is_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(command) == 1
    assert capsys.readouterr().err == "the working directory no longer exists; change to another one with cd\n"


@pytest.mark.long
def test_a_limit_of_the_system_is_one_line(tmp_path: Path) -> None:
    study = 'study = { name = "limited" }\nobjective = { name = "quadratic", agents = 1 }\nbudget = { iterations = 2 }\n'
    (tmp_path / "limited.toml").write_text(f'{study}algorithm = [{{ name = "random" }}]\nhosting = {{ workers = 0 }}\n')
    assert main(["run", str(tmp_path / "limited.toml"), "--out", str(tmp_path / "run"), "-q"]) == 0
    command = f"ulimit -f 1; '{sys.executable}' -m fedbo replay run --verify"
    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 1 and ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("File too large; free space, raise the limit (ulimit)")


@pytest.mark.long
def test_what_is_printed_to_a_closed_output_gets_into_no_file_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "printing.py").write_text("import os\n\n\ndef f(x):\n    os.write(1, b'printed')\n    return float(x[0])\n")
    study = 'study = {{ name = "closed" }}\nbudget = {{ iterations = 2 }}\nalgorithm = [{{ name = "random" }}]\n{}'
    objective = 'objective = { name = "python_function", function = "printing:f", low = [0.0], high = [1.0], agents = 1 }\n'
    (tmp_path / "closed.toml").write_text(study.format(objective))
    for streams in ("", " <&- >&- 2>&-"):
        command = f"'{sys.executable}' -m fedbo run closed.toml --out 'out{streams}'{streams}"
        assert subprocess.run(["sh", "-c", command], cwd=tmp_path, timeout=200).returncode == 0
    assert main(["show", str(tmp_path / "out <&- >&- 2>&-")]) == 0
    tables = [(tmp_path / f"out{streams}" / "observations.parquet").read_bytes() for streams in ("", " <&- >&- 2>&-")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("printed", [[], ["--format", "json"]])
def test_a_run_whose_figures_cannot_be_written_is_told_to_be_complete(
    printed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fedbo.analysis.result.Result.plot", lambda result: result.directory / "overview.png")
    monkeypatch.setattr("fedbo.figures.page.page.write_report", full)
    (tmp_path / "s.toml").write_text(SMALL)
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), "--quiet", *printed]) == 1
    said, complaint = capsys.readouterr()
    assert re.match(r"the run is complete, but no report was written: OSError: .*; try fedbo report \S+out\n$", complaint)
    if printed:
        assert (json.loads(said)["figures"], json.loads(said)["report"]) == ([str(tmp_path / "out" / "overview.png")], None)
    else:
        assert said.endswith(f"results: {tmp_path / 'out'}\nfigure:  {tmp_path / 'out' / 'overview.png'}\n")


@pytest.mark.long
def test_a_reader_that_has_seen_enough_is_told_nothing() -> None:
    command = f"'{sys.executable}' -m fedbo list | head -n 1"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100)
    assert (ran.stderr, ran.stdout) == ("", ran.stdout.splitlines()[0] + "\n")


@pytest.mark.long
def test_arithmetic_that_cannot_be_interpreted_says_so() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", "import fedbo.surrogates.compiled.jit"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert ran.stderr.splitlines()[-1].startswith("ImportError: NUMBA_DISABLE_JIT is set") and ran.returncode == 1


def test_a_benchmark_of_one_method_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "suite", "--quick", "--algorithms", "ts"]) == 2
    assert "names one algorithm; name two or more to compare" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
