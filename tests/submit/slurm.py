"""A stand-in for SLURM: `sbatch`, `srun`, `scontrol` and `scancel` that really start, signal and kill processes here.

Each of these commands starts this file. A job is a process of its own that waits for the jobs on which it depends, starts the
script, tells its shell before the end, and kills all that the script has started at its end. The folder `SLURM_STANDIN` has a
file `ID.pid` of each job that has begun, and `ID.end` with the code of each that has ended. A minute of a walltime takes
`SLURM_STANDIN_MINUTE` seconds.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("sbatch", "srun", "scontrol", "scancel")
MARK = "SLURM_JOB_MARK"


def install(folder: Path, minute: float) -> dict[str, str]:
    """Put the commands into a folder, and return the environment in which they are found."""
    (folder / "bin").mkdir(parents=True)
    (folder / "state").mkdir()
    for name in NAMES:
        place = folder / "bin" / name
        place.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n', encoding="utf-8")
        place.chmod(0o755)
    state, path = str(folder / "state"), f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "SLURM_STANDIN": state, "SLURM_STANDIN_MINUTE": str(minute)}


def kill(folder: Path, name: str) -> None:
    """Kill all that a job has started, without a signal before."""
    mark = f"{MARK}={folder / 'state' / name}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                os.kill(int(path.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile


def _state() -> Path:
    return Path(os.environ["SLURM_STANDIN"])


def _options(script: Path, given: list[str]) -> dict[str, str]:
    lines = re.findall(r"^#SBATCH (--\S+)", script.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(line.removeprefix("--").partition("=")[::2] for line in [*lines, *given])


def sbatch(arguments: list[str]) -> int:
    """Queue a script, with its arguments; print the number of the job."""
    options = [each for each in arguments if each.startswith("--")]
    script, *rest = [each for each in arguments if not each.startswith("--")]
    asked = _options(Path(script), options)
    number = 1 + len([*_state().glob("*.job")])
    while True:
        try:
            (_state() / f"{number}.job").touch(exist_ok=False)
            break
        except FileExistsError:
            number += 1
    low, _, high = asked.get("array", "").partition("-")
    tasks = [f"{number}_{task}" for task in range(int(low), int(high or low) + 1)] if low else [str(number)]
    environment = {key: value for key, value in os.environ.items() if key != MARK}  # a job may queue the next one
    for name in tasks:
        subprocess.Popen(
            [sys.executable, __file__, "control", name, script, *rest, *options], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    print(number)
    return 0


def control(arguments: list[str]) -> int:
    """Carry one job out."""
    name, script, *more = arguments
    asked = _options(Path(script), [each for each in more if each.startswith("--")])
    rest = [each for each in more if not each.startswith("--")]
    end = _state() / f"{name}.end"
    before = asked.get("dependency", "").removeprefix("afterany:")
    while before and not (_state() / f"{before}.end").exists():
        if end.exists():
            return 0  # cancelled
        time.sleep(0.05)
    if end.exists():
        return 0
    number, _, task = name.partition("_")
    count = int(asked.get("nodes", "1"))
    environment = {
        **os.environ,
        MARK: str(_state() / name),
        "SLURM_JOB_ID": number,
        "SLURM_ARRAY_JOB_ID": number,
        "SLURM_ARRAY_TASK_ID": task,
        "SLURM_JOB_NODELIST": f"n[1-{count}]",
        "SLURM_CPUS_ON_NODE": "1",
    }
    said = Path(asked["output"].replace("%j", number).replace("%A", number).replace("%a", task))
    with said.open("ab") as log:
        shell = subprocess.Popen(["bash", script, *rest], env=environment, stdout=log, stderr=log, start_new_session=True)
    (_state() / f"{name}.pid").write_text(str(shell.pid))
    minute = float(os.environ["SLURM_STANDIN_MINUTE"])
    kind, _, notice = asked["signal"].removeprefix("B:").partition("@")
    limit = minute * float(asked["time"])
    try:
        code = shell.wait(max(0.0, limit - minute * float(notice) / 60))
    except subprocess.TimeoutExpired:
        shell.send_signal(getattr(signal, f"SIG{kind}"))
        try:
            code = shell.wait(minute * float(notice) / 60)
        except subprocess.TimeoutExpired:
            code = -9
    kill(_state().parent, name)
    end.write_text(str(code))
    return 0


def srun(arguments: list[str]) -> int:
    """Start a command once for each task, here, and wait for all."""
    options = {}
    while arguments and arguments[0].startswith("--"):
        key, _, value = arguments.pop(0).partition("=")
        options[key] = value
    started = [subprocess.Popen(arguments) for _ in range(int(options.get("--ntasks", "1")))]
    signal.signal(signal.SIGTERM, lambda number, frame: [each.send_signal(number) for each in started] and None)
    return max(each.wait() for each in started)


def scontrol(arguments: list[str]) -> int:
    """Print the hosts of a list such as n[1-3]."""
    (count,) = re.findall(r"-(\d+)\]", arguments[-1])
    print("\n".join(f"n{number}" for number in range(1, int(count) + 1)))
    return 0


def scancel(arguments: list[str]) -> int:
    """End jobs, those that wait and those that run."""
    for name in arguments:
        (_state() / f"{name}.end").write_text("cancelled")
        kill(_state().parent, name)
    return 0


if __name__ == "__main__":
    sys.exit(
        {"sbatch": sbatch, "control": control, "srun": srun, "scontrol": scontrol, "scancel": scancel}[sys.argv[1]](
            sys.argv[2:]
        )
    )
