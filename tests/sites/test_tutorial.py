"""The tutorial "three hospitals", command by command, with a process for the university and for each hospital."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import pages
from tests.sites.loopback import free_port

HOSPITALS = ("north", "east", "west")
PAGE = "docs/tutorials/three_hospitals.md"


def commands() -> list[str]:
    """List the commands of the page, without the installation."""
    lines = [line for block in pages.blocks("sh") if block.page == PAGE for line in block.text.splitlines()]
    assert lines[0].startswith("python -m pip install")
    return lines[1:]


class Machines:
    """All machines of the tutorial, each with a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.words: dict[str, str] = {}
        for name in ("university", *HOSPITALS):
            (folder / name).mkdir()

    def start(self, where: str, line: str) -> subprocess.Popen[str]:
        line = line.replace("coordinator.example:7443", f"localhost:{self.port}").replace(
            "0.0.0.0:7443", f"localhost:{self.port}"
        )
        line = re.sub(r"\b(NORTH|EAST|WEST|STUDY)\b", lambda found: self.words[found[1]], line)
        program, *arguments = shlex.split(line)
        assert program == "fedbo"
        return subprocess.Popen(
            [sys.executable, "-m", "fedbo", *arguments],
            cwd=self.folder / where,
            env={**os.environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def tried(self, where: str, line: str) -> tuple[int, str]:
        process = self.start(where, line)
        told, _ = process.communicate(timeout=120)
        return process.returncode, told

    def run(self, where: str, line: str) -> str:
        code, told = self.tried(where, line)
        assert code == 0, f"{where}: {line}\n{told}"
        return told

    def mail(self, source: str, to: str) -> None:
        """Carry a file from one machine to another."""
        (self.folder / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.folder / source, self.folder / to)


@pytest.mark.long
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    machines, lines = Machines(tmp_path), commands()
    (new, site, *approve, accept, preflight, serve, join, sent, show, replay, rotate, revoke) = lines
    machines.run("university", new)
    for name in HOSPITALS:
        told = machines.run(name, site.replace("north", name))
        machines.words[name.upper()] = told.split("its key: ")[1].split()[0]
        machines.mail(f"{name}/{name}/request.json", f"university/{name}/request.json")
        machines.mail("university/doses.py", f"{name}/doses.py")
        objective = tmp_path / name / "doses.py"
        objective.write_text(objective.read_text().replace("SECONDS = 1.0", "SECONDS = 0.05"))
    assert len(approve) == len(HOSPITALS)
    for name, line in zip(HOSPITALS, approve, strict=True):
        told = machines.run("university", line)
        assert "not compared" not in told
        machines.words["STUDY"] = told.split("of the study: ")[1].split()[0]
        machines.mail(f"university/doses.sites/approvals/{name}.json", f"{name}/{name}.json")
    for name in HOSPITALS:
        machines.run(name, accept.replace("north", name))
    processes = {"university": machines.start("university", serve)}
    try:
        for _ in range(30):  # the server is about to start
            code, told_first = machines.tried("north", preflight)
            if code == 0:
                break
        assert code == 0 and "coordinator" in told_first, told_first
        for name in HOSPITALS:
            processes[name] = machines.start(name, join.replace("north", name))
        told = {name: process.communicate(timeout=300)[0] for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    for agent, name in enumerate(HOSPITALS):
        assert processes[name].returncode == 0, told[name]
        assert f"agent {agent}: 13 evaluations" in told[name]
    assert processes["university"].returncode == 0, told["university"]
    left = machines.run("north", sent)
    assert "step 10: omega" in left and "observations" not in left
    assert "fts" in machines.run("university", show)
    assert "no difference" in machines.run("university", replay)
    machines.run("north", rotate)
    request = json.loads((tmp_path / "north/north/request.json").read_text())
    assert request["replaces"] is not None
    assert "the key of 'east' is revoked" in machines.run("university", revoke)
