"""Random studies in real time, with evaluations that overlap, live faults and a host that is killed; each must replay."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.execution.replay import replay
from fedbo.execution.runner import run_study
from fedbo.study.study import Study, StudyError, load_study
from fedbo_hunt.surroundings import Draws
from tests.random_studies.carrying_out import LEGAL_ENDS
from tests.random_studies.invariants import violations
from tests.random_studies.studies import TRIES, draw_document

Document = dict[str, Any]
_SCALE = 0.05  # seconds for one unit of the virtual time that is drawn
# What is measured in units of time, wherever it stands in a document.
_TIMES = frozenset(
    ("absence", "absent", "at", "by", "cost", "day", "duration", "end", "length", "mean", "present", "restart", "start")
)


def draw_real_time_study(seed: int) -> Study:
    """Draw a study in real time that the checks accept, of a few seconds; the same for the same seed.

    RuntimeError when hardly anything that is drawn is accepted.
    """
    for number in range(TRIES):
        rng = np.random.default_rng([seed, number, 1])
        document = _in_real_time(draw_document(rng), Draws(rng))
        document["study"] |= {"name": f"real time {seed}", "replicates": 1}
        try:
            return load_study(document)
        except StudyError:
            continue
    raise RuntimeError(f"seed {seed}: all of {TRIES} drawn studies were refused")


def _in_real_time(drawn: Document, draws: Draws) -> Document:
    """Turn a study in virtual time into one of seconds, at times with evaluations that overlap."""
    document: Document = {name: _scaled(table) for name, table in drawn.items() if name != "sweep"}
    timing = document.get("timing", {})
    document["timing"] = {"clock": "wall", **{key: timing[key] for key in ("latency",) if key in timing}}
    document["hosting"] = draws.one_of({"kind": "dedicated"}, {"kind": "dedicated"}, {"kind": "packed", "workers": 2})
    document["network"] = {**document.get("network", {}), "retry": 0.2}
    document["budget"]["time"] = 20.0
    for group in document.get("group", ()):
        for key in ("evaluation", "speed", "decision"):
            group.pop(key, None)
    document.pop("cluster", None)
    document["fault"] = [fault for fault in document.get("fault", ()) if fault["kind"] != "preemption"]
    for key in ("parallel", "prefetch", "wait", "resources"):
        document.get("evaluation", {}).pop(key, None)
    if document["objective"]["name"] == "python_function" and draws.chance(0.7):
        document["objective"]["function"] = "tests.random_studies.functions:slow"
    if draws.chance(0.4):
        document["evaluation"] = {**document.get("evaluation", {}), "parallel": draws.whole(2, 3)}
        document["evaluation"] |= draws.keep(0.5, parallel=1, prefetch=draws.whole(1, 2))
        document["budget"] |= draws.keep(0.3, evaluations=draws.whole(3, 12))
        document.pop("fault", None)
        document.get("agents", {}).pop("history", None)
    return document


def _scaled(value: Any, name: str = "") -> Any:
    """Give a value of a document with all times in it in seconds."""
    if isinstance(value, dict):
        return {key: _scaled(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_scaled(one, name) for one in value]
    if name == "rate" and isinstance(value, float):
        return value / _SCALE
    return value * _SCALE if name in _TIMES and isinstance(value, float) else value


def broken_in_real_time(study: Study, folder: Path, seed: int) -> list[str]:
    """Run a study on Ray, with a host killed in every third one, check its tables and replay it; list what was broken."""
    directory = folder / "run"
    rng = random.Random(seed)
    try:
        with _killing_a_host(directory, rng if rng.random() < 1 / 3 else None):
            run_study(study, directory)
    except fedbo.errors.RunError as error:
        return [] if isinstance(error.__cause__, LEGAL_ENDS) else [f"the run: {type(error.__cause__).__name__}: {error}"]
    again = replay(directory, verify=True, trust=True)
    return violations(study, directory) + ([] if again.same else [f"the replay: {again.difference}"])


@contextmanager
def _killing_a_host(directory: Path, rng: random.Random | None) -> Iterator[None]:
    """Kill the process of a host by SIGKILL at a random moment of its work, where a generator is given."""
    over = threading.Event()

    def kill() -> None:
        assert rng is not None
        while not over.wait(0.05):
            found = sorted({int(path.name.split("-")[2]) for path in directory.glob("parts/*/log-*.jsonl")})
            if found:
                time.sleep(rng.uniform(0.0, 0.5))
                if not over.is_set():
                    _kill_host(rng.choice(found))
                return

    thread = threading.Thread(target=kill)
    if rng is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if rng is not None:
            thread.join()


def _kill_host(process: int) -> None:
    """Kill a process if it still is a host of agents."""
    try:
        if "ray::Host" in Path(f"/proc/{process}/cmdline").read_text().replace("\0", " "):
            os.kill(process, signal.SIGKILL)
    except OSError:
        pass  # it has ended by itself
