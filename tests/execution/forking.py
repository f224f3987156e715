"""A program that forks runs of studies and kills them, as `killing.Forks` tells it on standard input."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedbo
import fedbo.execution.runner
from fedbo.execution.directory import versions
from fedbo.execution.replay import replay

WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def carry_out(what: str, arguments: list[str], limits: dict[str, Any]) -> None:
    """Run, resume or replay a study in this process, or try promises."""
    os.setsid()
    warnings.simplefilter("ignore", fedbo.errors.EvaluationWarning)  # what fails in these studies fails on purpose
    folder = arguments[-1] if what == "run" else arguments[0]
    if "before" in limits:
        die_before(limits["before"], folder)
    if "listed" in limits:
        list_operations(limits["listed"], folder)
    if "room" in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["room"], resource.RLIM_INFINITY))
    if what == "run":
        fedbo.run(Path(arguments[0]), out=Path(arguments[1]))
    elif what == "resume":
        fedbo.resume(Path(arguments[0]), overrides=arguments[1:])
    elif what == "promises":
        from tests.random_studies.__main__ import main

        main(arguments)
    else:
        assert replay(Path(arguments[0]), verify=True, trust=True).same


def die_before(number: int, folder: str) -> None:
    """Let this process be killed just before its file operation with this number; its own kind, not a patched function."""
    count = 0

    def look(line: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    at_operations(folder, look)


def list_operations(path: str, folder: str) -> None:
    """Write each file operation of this process as a line of a file."""
    told = os.open(path, os.O_WRONLY | os.O_CREAT)
    at_operations(folder, lambda line: os.write(told, f"{line}\n".encode()))


def at_operations(folder: str, act: Callable[[str], object]) -> None:
    """Do something before each operation of this process that changes a file in a folder; it is told which it is."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                return
        elif event not in WRITES:
            return
        if folder in str(arguments[0]):
            act(f"{event} {str(arguments[0]).removeprefix(folder)}")

    sys.addaudithook(look)


def attempt(what: str, arguments: list[str], limits: dict[str, Any]) -> tuple[int, str]:
    """Fork, wait or kill, and say how it ended."""
    with tempfile.TemporaryFile("w+") as said:
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = 0
            try:
                carry_out(what, arguments, limits)
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException as error:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                print(f"{type(error).__name__}: {error}", flush=True)
                code = 1
            sys.stdout.flush()  # what it has said may still be in memory
            os._exit(code)
        if (after := limits.get("after")) is not None:
            while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) and time.monotonic() - begun < after:
                time.sleep(0.0005)
            os.kill(child, signal.SIGKILL)  # nothing to one that has ended
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def prepare() -> None:
    """Import what a run imports, and check a study, and nothing else: a process with threads should not fork."""
    from killing import TROUBLED

    os.fsync = lambda file: None  # type: ignore[assignment]  # which only a power failure would show
    for name in ("fedbo.execution.compiling", "pandas", "scipy.linalg"):  # which else both would import below
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        if os.fork() == 0:
            fedbo.run({**TROUBLED, "budget": {"iterations": 2}}, out=Path(folder) / "run")
            (Path(folder) / "modules").write_text("\n".join(sys.modules))
            os._exit(0)
        os.wait()
        for name in (Path(folder) / "modules").read_text().splitlines():
            if name != "__main__":
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
    fedbo.load_study(TROUBLED, trust=True).digest()
    versions()


def main() -> None:
    """Do as told, line by line."""
    prepare()
    for line in sys.stdin:
        what, arguments, limits = json.loads(line)
        if what == "import":  # here, and so in all forks from now on
            print(json.dumps([0, str([importlib.import_module(name).__name__ for name in arguments])]), flush=True)
        else:
            print(json.dumps(attempt(what, arguments, limits)), flush=True)


if __name__ == "__main__":
    main()
