"""A study carried out in a given way: in this process, in one that is killed, or on host actors that serve many studies."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import ray

import fedbo
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.coordinator.errors import EndlessError
from fedbo.coordinator.runtime.actor import Coordinator
from fedbo.execution.directory import gather
from fedbo.execution.jobs import learnings, runs
from fedbo.execution.runner import resume_study, run_study
from fedbo.study.study import Study, load_study
from fedbo.surrogates.posterior import Diverged
from tests.random_studies.chaos.knobs import NONE_TURNED, Knobs, turn

LEGAL_ENDS = (EvaluationError, EndlessError, Diverged)
# How a study may end other than well, as a fork reports it: by its own wish, without progress, or by settings of `fn_ucb`.
LEGAL_NAMES = tuple(error.__name__ for error in LEGAL_ENDS)
STRUCK = "struck.txt"
TABLES = ("observations", "events", "histories", "privacy", "privacy_agents")


class Untried(Exception):
    """A study of which nothing is promised, and why."""


def hosted(study: Study, kind: str, workers: int | None = None) -> Study:
    """Give the same study under another hosting."""
    hosting = {"kind": kind, **({} if workers is None else {"workers": workers})}
    return load_study({**study.document(), "hosting": hosting})


def tables(directory: Path, names: Iterable[str] = TABLES) -> dict[str, bytes]:
    """Give the tables of a run as bytes."""
    paths = {name: directory / f"{name}.parquet" for name in names}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


@dataclass(slots=True)
class Hostings:
    """Coordinators in this process by the number of their host actors, which serve one study after the other on Ray."""

    coordinators: dict[int, Coordinator] = field(default_factory=dict)

    def carry_out(self, study: Study, directory: Path, kill: random.Random | None = None, knobs: Knobs = NONE_TURNED) -> str:
        """Carry a study out and put its tables together; give "" or what ended it, where a study may end so.

        With `kill` one of its hosts is killed at a random moment of the first second. Hosts of earlier studies have these
        `knobs` from now on, beside those that they had.
        """
        kind, agents = study.hosting.kind, study.federation().n_agents
        count = {"inline": 0, "dedicated": agents, "packed": min(study.hosting.workers or 1, agents)}[kind]
        coordinator = self.coordinators.setdefault(count, Coordinator())
        parts = directory / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        (directory / "study.toml").write_text(study.to_toml(), encoding="utf-8")
        work = runs(study, parts)
        for host in coordinator.hosts if knobs else ():
            with suppress(ray.exceptions.RayActorError):  # the last study's kill came after its end
                ray.get(host.__ray_call__.remote(lambda _: turn(knobs)))
        try:
            with _killing_one(coordinator, kill if count else None):
                for job in learnings(study, parts):
                    coordinator.learn(job)
                for run in work:
                    coordinator.run(run)
        except LEGAL_ENDS as error:
            return str(error)
        except BaseException:
            del self.coordinators[count]  # its hosts may still be at what went wrong
            raise
        finally:
            gather(study, directory, [run.key for run in work])
        return ""


@contextmanager
def _killing_one(coordinator: Coordinator, kill: random.Random | None) -> Iterator[None]:
    """Kill one host actor of a coordinator at a random moment, if what happens within is not over before."""
    if kill is None:
        yield
        return
    after, choice = kill.uniform(0.0, 1.0), kill.random()

    def strike() -> None:
        if coordinator.hosts:
            ray.kill(coordinator.hosts[int(choice * len(coordinator.hosts))])

    timer = threading.Timer(after, strike)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended: its exit code, or minus the signal that killed it; what it gave, or the error that it raised."""

    code: int
    given: Any = None
    error: str = ""

    @property
    def killed(self) -> bool:
        """Say whether a signal ended it."""
        return self.code < 0


def forked(work: Callable[[], Any], folder: Path, seconds: float, notice: float = 0.0) -> Ending:
    """Do some work in a fork of this process, which must have no threads; it is killed after so many seconds.

    It is told by SIGTERM so many seconds of `notice` before.

    What the work gives must be JSON. The fork has a session of its own, and is really killed.
    """
    answer = folder / f"answer-{os.urandom(4).hex()}.json"
    child = os.fork()
    if child == 0:
        _in_fork(work, answer)
    until = time.monotonic() + seconds
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended:
        if notice and time.monotonic() >= until - notice:
            os.kill(child, signal.SIGTERM)
            notice = 0.0
        if time.monotonic() >= until:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.001)
        ended, status = os.waitpid(child, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status)
    found = json.loads(answer.read_text()) if code >= 0 and answer.exists() else {}
    answer.unlink(missing_ok=True)
    return Ending(code, **found)


def import_for_runs(study: Study, folder: Path) -> None:
    """Import what the run of a study imports, which takes several times as long as a small run, so that forks have it."""

    def imported() -> list[str]:
        run_study(study, folder / "imports")
        import_module("fedbo.execution.compiling")
        return list(sys.modules)

    for name in forked(imported, folder, 600.0).given:
        if name != "__main__":
            with suppress(ImportError):
                import_module(name)


def _in_fork(work: Callable[[], Any], answer: Path) -> None:
    """Do the work, leave what it gave, and end this process without running what its parent has registered."""
    code = 0
    try:
        os.setsid()
        found: dict[str, Any] = {"given": work()}
    except BaseException as error:
        cause = error.__cause__ if isinstance(error, fedbo.errors.RunError) and error.__cause__ else error
        found, code = {"error": f"{type(cause).__name__}: {cause}"}, 1
    draft = answer.with_suffix(".part")
    draft.write_text(json.dumps(found))
    draft.replace(answer)
    os._exit(code)


def dying(folder: Path, before: int | None) -> Callable[[], int]:
    """Kill this process just before its file operation below a folder with this number; return what counts them.

    The path of that operation is added to the file `STRUCK` beside the folder.
    """
    count = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes or event in ("os.rename", "os.remove", "os.mkdir")) and str(folder) in str(arguments[0]):
            count += 1
            if count == before:
                with folder.with_name(STRUCK).open("a") as struck:
                    struck.write(f"{arguments[0]}\n")
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    return lambda: count


def begin_or_go_on(study: Study, directory: Path) -> None:
    """Run a study, or go on with it where somebody finds this directory after a kill."""
    if not (directory / "manifest.json").exists():
        run_study(study, directory)
    elif json.loads((directory / "manifest.json").read_text())["status"] != "complete":
        resume_study(directory)


def differences(expected: dict[str, bytes], found: dict[str, bytes], name: str) -> list[str]:
    """List the tables whose bytes differ, as one fault of what was carried out in the way that is named; empty if none does."""
    other = sorted(table for table in expected.keys() | found.keys() if expected.get(table) != found.get(table))
    return [f"{name}: other bytes in {', '.join(other)}"] if other else []


def words(ended: Ending, what: str, seconds: float) -> str:
    """Say how something ended that should have ended well, within so many seconds."""
    return f"{what} took longer than {seconds:g} s" if ended.killed else f"{what}: {ended.error or ended.given}"
