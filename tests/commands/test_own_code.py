"""An error in a method or an objective of a user: one line with its place, the traceback in the run, and advice that works."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fedbo.algorithms.catalog import catalogue
from fedbo.cli import main
from fedbo.settings.own_code import code_words

METHODS = (
    "__post_init__",
    "sends",
    "upload",
    "agent_init",
    "ask",
    "tell",
    "outbox",
    "server_init",
    "broadcast",
)  # each is called
SMALL = ["--set", "study.replicates=1", "--set", "objective.agents=2", "--set", "budget.iterations=2", "--quiet"]
BEFORE_THE_RUN = ("__post_init__", "sends", "upload")


def broken(text: str, method: str) -> str:
    """Return the text of a method's file in which one of its functions raises."""
    begin = text.index(f"    def {method}(")
    body = text.index("        ", text.index(":\n", text.index(")", begin)) + 1)
    return f"{text[:body]}        raise RuntimeError('bang')\n{text[body:]}"


# Of the four that run at agents and of the two at the coordinator, one stands for the others.
LATER = ("agent_init", "tell", "outbox", "server_init")


@pytest.mark.parametrize("method", [pytest.param(one, marks=[pytest.mark.long] * (one in LATER)) for one in METHODS])
def test_an_error_in_each_part_of_a_method_names_its_place_and_is_mended(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"own_{method.strip('_')}"
    assert main(["new", "algorithm", name]) == 0
    whole = Path(f"{name}.py").read_text()
    Path(f"{name}.py").write_text(broken(whole, method))
    before = method in BEFORE_THE_RUN
    capsys.readouterr()
    try:
        assert main(["run", f"{name}.toml", *SMALL, "--out", "run"]) == (2 if before else 1)
        (line,) = capsys.readouterr().err.splitlines()
        step = r"( \(agent \d+, step \d+\))" + ("?" if method in ("broadcast", "server_init", *BEFORE_THE_RUN) else "")
        assert re.match(rf"({name}.toml: )?{name}\.py:\d+ in {method}{step}: RuntimeError: bang", line), line
        if before:
            assert not Path("run").exists()
            return
        (raised,) = re.findall(r"in (\S*/traceback.txt); fix the code, then continue with: fedbo resume (\S+),", line)
        assert Path(raised[0]).read_text().endswith("RuntimeError: bang\n")
        del sys.modules[name]
        catalogue.cache_clear()  # both as in a new process
        Path(f"{name}.py").write_text(whole)
        monkeypatch.setattr("fedbo.figures.page.page.write_report", lambda *_: "report")
        monkeypatch.setattr("fedbo.analysis.result.Result.plot", lambda *_, **__: "figure")
        assert main(["resume", raised[1], "--quiet"]) == 0
        assert not Path(raised[0]).exists()
    finally:
        sys.modules.pop(name, None)


def test_the_place_is_in_the_users_code_and_not_in_a_library_that_it_calls() -> None:
    import json

    def own() -> None:
        json.loads("{")

    try:
        own()
    except ValueError as error:
        assert re.match(r"test_own_code\.py:\d+ in own: JSONDecodeError: ", str(code_words(error)))
    try:
        json.loads("{")
    except ValueError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # this test itself is a user's code
        assert code_words(error) is None
