"""Plants small faults at random in the core, the actors, the algorithms and some rooms, and counts those that no test notices.

    python benchmarks/mutation.py record           which test calls which function, and how long it takes: once, some minutes
    python benchmarks/mutation.py run --mutants 200 --seed 1
    python benchmarks/mutation.py run --rooms fedbo/coordinator/kernel fedbo/sites
    python benchmarks/mutation.py run --suite long    the survivors again, with the tests marked long

A mutant changes one operator, constant, condition, return value or call of one function. The tests that call the function
run in a fork, fastest first, until one fails or the time of `--seconds` is over. Processes that a test starts load the changed
source too.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from source_changes import ROOMS, ROOT, Mutant, changed, mutants

FOLDER = ROOT / "build" / "mutation"
SUITES = {"quick": "not ray and not long", "long": "long and not ray"}
PLACES = ("tests/testing", "tests/execution", "tests/prediction", *(room.replace("fedbo", "tests") for room in ROOMS))
MEMORY = 4 << 30  # bytes of data until a mutant that never stops to allocate fails
COUNTED = 30  # calls of a function whose lines are recorded: the others cost too much

# Loaded by every process that a test starts: it gives one file another source.
CUSTOMIZE = """
import os
if os.environ.get("FEDBO_MUTANT"):
    from importlib.machinery import SourceFileLoader
    path, source = os.environ["FEDBO_MUTANT"].split("|")
    plain = SourceFileLoader.get_code
    def get_code(self, name):
        if os.path.realpath(self.path) != path:
            return plain(self, name)
        return compile(open(source, encoding="utf-8").read(), self.path, "exec")
    SourceFileLoader.get_code = get_code
"""


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def plant(mutant: Mutant, folder: Path) -> None:
    """Change the function in this process, and the source for those that it starts."""
    tree, path = changed(mutant), str((ROOT / mutant.path).resolve())
    (new,) = [code for code in _codes(compile(tree, path, "exec")) if code.co_qualname == mutant.function]
    importlib.import_module(mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))  # at first use else
    gc.unfreeze()  # the tests freeze what is there when they begin, and `get_objects` does not list that
    found = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_qualname == mutant.function]
    found = [one for one in found if os.path.realpath(one.__code__.co_filename) == path]
    if not found:
        raise ValueError(f"{mutant.path} has no function {mutant.function} in this process")
    for one in found:
        one.__code__ = new
    (folder / "sitecustomize.py").write_text(CUSTOMIZE, encoding="utf-8")
    (folder / "changed.py").write_text(ast.unparse(tree), encoding="utf-8")
    os.environ["FEDBO_MUTANT"] = f"{path}|{folder / 'changed.py'}"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(folder))


class Recorder:
    """A plug-in that notes which functions every test calls, on which lines, and how long the test takes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tests: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, set[int]] = defaultdict(set)
        self.called: set[CodeType] = set()
        self.counts: dict[CodeType, int] = defaultdict(int)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep so many cases of each test, those in the middle of every part of them."""
        cases: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            cases[item.nodeid.split("[")[0]].append(item)
        n = self.most
        kept = [c if len(c) <= n else [c[len(c) * (2 * i + 1) // (2 * n)] for i in range(n)] for c in cases.values()]
        items[:] = [item for some in kept for item in some]

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        code = frame.f_code
        self.called.add(code)
        self.counts[code] += 1
        return self._line if self.counts[code] <= COUNTED and _relative(code) else None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        self.lines[_relative(frame.f_code)].add(frame.f_lineno)
        return self._line

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.called, begun = set(), time.process_time() + sum(os.times()[2:4])
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        yield
        threading.settrace(None)
        sys.settrace(None)
        seconds = time.process_time() + sum(os.times()[2:4]) - begun
        found = {(_relative(code), ".".join(code.co_qualname.split(".<locals>")[:1])) for code in self.called}
        functions = sorted(f"{path}:{name}" for path, name in found if path)
        self.tests[item.nodeid] = {"seconds": round(seconds, 3), "functions": functions}

    def write(self, path: Path) -> None:
        """Write what was found."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = {name: sorted(found) for name, found in self.lines.items()}
        path.write_text(json.dumps({"tests": self.tests, "lines": lines}), encoding="utf-8")


_known: dict[str, str] = {}


def _relative(code: CodeType) -> str:
    """Give the path of a function's file below the root, if it is in one of the rooms."""
    name = code.co_filename
    if name not in _known:
        real = os.path.realpath(name)
        inside = real.startswith(tuple(f"{ROOT / room}{os.sep}" for room in ROOMS))
        _known[name] = os.path.relpath(real, ROOT) if inside else ""
    return _known[name]


class Runner:
    """A plug-in that runs, in place of the tests once, those that call a mutant's function, for each mutant in a fork."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.told = FOLDER / f"{given.suite}.jsonl"
        recorded = json.loads((FOLDER / "record.json").read_text(encoding="utf-8"))
        self.tests, self.lines = recorded["tests"], recorded["lines"]

    def chosen(self) -> list[Mutant]:
        """Draw mutants on lines that the tests reach; of the long suite, those that the quick one let live."""
        if self.given.suite == "long":
            rows = [json.loads(line) for line in (FOLDER / "quick.jsonl").read_text(encoding="utf-8").splitlines()]
            return [Mutant(*row["mutant"]) for row in rows if row["end"] == "survived"]
        called = {name for test in self.tests.values() for name in test["functions"]}
        found = [
            one
            for one in mutants(self.given.rooms)
            if f"{one.path}:{one.function}" in called and one.line in self.lines.get(one.path, ())
        ]
        return random.Random(self.given.seed).sample(found, min(self.given.mutants, len(found)))

    def covering(self, mutant: Mutant, items: dict[str, pytest.Item]) -> list[tuple[float, pytest.Item]]:
        """List the tests that call a function, fastest first; of long ones, all in the files of those."""
        name = f"{mutant.path}:{mutant.function}"
        calling = [test for test, found in self.tests.items() if name in found["functions"]]
        if self.given.suite == "quick":
            timed = sorted((self.tests[test]["seconds"], test) for test in calling if test in items)
            return [(seconds, items[test]) for seconds, test in timed]
        files = {test.split("::")[0] for test in calling}
        return [(1.0, item) for test, item in items.items() if test.split("::")[0] in files]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        ends: dict[str, int] = defaultdict(int)
        begun = time.monotonic()
        with self.told.open("w", encoding="utf-8") as told:
            for mutant in self.chosen():
                end, test = self.tried(mutant, self.covering(mutant, items))
                ends[end] += 1
                told.write(json.dumps({"mutant": mutant, "end": end, "test": test}) + "\n")
                told.flush()
                words = f"{mutant.path}:{mutant.line} {mutant.words}"
                print(f"{end:9} {words if end == 'survived' else f'{words}  by {test}'}", flush=True)
        count = sum(ends.values())
        print(f"{count} mutants, {dict(ends)}; {(time.monotonic() - begun) / max(1, count):.1f} s each")
        return True

    def tried(self, mutant: Mutant, tests: list[tuple[float, pytest.Item]]) -> tuple[str, str]:
        """Run tests in a fork, and say how it ended, and by which test."""
        left, run = self.given.seconds, list[pytest.Item]()
        for seconds, item in tests:
            left -= seconds
            if left < 0 and run:
                break
            run.append(item)
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
            child = os.fork()
            if child == 0:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                for number in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
                os._exit(self.child(mutant, run, Path(folder), said))
            code = _waited(child, self.given.limit)
            said.seek(0)
            test = said.read()
        if code is None:
            return "timed out", test
        return {0: "survived", 1: "killed"}.get(code, "invalid"), test

    def child(self, mutant: Mutant, run: list[pytest.Item], folder: Path, said: Any) -> int:
        """Run tests until one fails; 1 then, 0 if none does, 2 if the mutant cannot be planted."""
        try:
            plant(mutant, folder)
        except (ValueError, SyntaxError):
            return 2
        for item, following in zip(run, [*run, None][1:], strict=True):
            said.seek(0)
            said.truncate()
            said.write(item.nodeid)
            said.flush()
            failed = list[Any]()
            item.config.pluginmanager.register(_Failures(failed), "failures")
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            except BaseException:
                return 1
            item.config.pluginmanager.unregister(name="failures")
            if failed:
                return 1
        return 0


class _Failures:
    def __init__(self, failed: list[Any]) -> None:
        self.failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _waited(child: int, limit: float) -> int | None:
    """Wait for a process, and kill it with all that it started when it takes too long."""
    until, ended, status = time.monotonic() + limit, 0, 0
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass  # nothing is left
    if not ended:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Record, or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "run"))
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS), help="folders whose functions are changed")
    parser.add_argument("--suite", choices=tuple(SUITES), default="quick")
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit for all tests of a mutant")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds until a hanging test is killed")
    parser.add_argument("--cases", type=int, default=10**6, help="largest number of recorded cases of a parametrised test")
    parser.add_argument("--tests", nargs="*", default=list(PLACES))
    given = parser.parse_args()
    os.chdir(ROOT)
    options = ["-p", "no:cacheprovider", "-q", "-m", SUITES[given.suite], *given.tests]
    if given.what == "run":
        sys.exit(pytest.main([*options, "-s"], plugins=[Runner(given)]))
    recorder = Recorder(given.cases)
    pytest.main(options, plugins=[recorder])
    recorder.write(FOLDER / "record.json")


if __name__ == "__main__":
    main()
