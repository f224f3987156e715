"""Functions that are tuned in tests; importable in every process."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

SPACE: dict[str, Any] = {"rate": (1e-4, 1.0), "n": (1, 30), "kind": ["a", "b"]}


def loss(config: dict[str, Any], agent: int) -> dict[str, float]:
    """Give a loss that is least near rate = 0.01, n = 10 + agent, kind = b."""
    time.sleep(0.05)
    far = (math.log10(config["rate"]) + 2) ** 2 + 0.01 * (config["n"] - 10 - agent) ** 2
    return {"loss": far + (config["kind"] == "a"), "seconds": 0.05}


def meeting(config: dict[str, Any], agent: int) -> dict[str, float]:
    """Give the loss once two evaluations of this agent have begun, so that they overlap on however busy a machine."""
    folder, until = Path(os.environ["FEDBO_TEST_MEETING"]), time.monotonic() + 120
    (folder / f"{agent}-{config['rate']!r}").touch()
    while len([*folder.glob(f"{agent}-*")]) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    return loss(config, agent)


def alone(config: dict[str, Any], agent: int) -> dict[str, float]:
    """Give the loss; FileExistsError while another evaluation of this agent runs."""
    place = Path(os.environ["FEDBO_TEST_MEETING"]) / f"alone-{agent}"
    place.touch(exist_ok=False)
    try:
        return loss(config, agent)
    finally:
        place.unlink()


def slow(config: dict[str, Any], agent: int) -> float:
    """Take half a second, and write down that it was called."""
    with Path(os.environ["FEDBO_CALLS"]).open("a") as file:
        file.write(f"{agent} {config['rate']!r}\n")
    time.sleep(0.5)
    return float(config["rate"])


def moody(config: dict[str, Any], agent: int) -> float:
    """Fail for one kind, hang for a large n, end its process for a small one."""
    if config["n"] > 25:
        time.sleep(60)
    if config["n"] < 4:
        os._exit(3)
    if config["kind"] == "a":
        raise RuntimeError("not this kind")
    return float(config["n"])


def reporting(config: dict[str, Any], report: Any) -> float:
    """Report three times; then hang for some n, fail for others."""
    for epoch in range(1, 4):
        report(config["n"] / epoch, epoch)
    if config["n"] % 3 == 0:
        time.sleep(60)
    if config["n"] % 3 == 1:
        raise RuntimeError("not this n")
    return float(config["n"])


def waiting(config: dict[str, Any], agent: int) -> float:
    """Take a third of a second."""
    time.sleep(0.3)
    return -abs(config["n"] - 10)


def training(config: dict[str, Any], report: Any) -> float:
    """Come to n / 30 by four steps, and return what it has when it is told to stop."""
    value = 0.0
    for step in range(1, 5):
        value = config["n"] / 30 * step / 4
        if report(value, step) == "stop":
            break
    return value


def stubborn(config: dict[str, Any], report: Any) -> float:
    """Go on reporting whatever is answered."""
    for step in range(1, 5):
        report(config["n"] / 30 * step / 4, step)
    return 99.0


def pausing(config: dict[str, Any], report: Any, restore: Any) -> float:
    """Come to n by nine steps whose values cross, from a checkpoint if there is one; write down each step that is made."""
    value, done, found = 0.0, 0, restore()
    if found is not None:
        done = int(Path(found).read_text())
    for step in range(done + 1, 10):
        with Path(os.environ["FEDBO_CALLS"]).open("a") as file:
            file.write(f"{config['rate']!r} {step}\n")
        value = curve(config["rate"], step)
        mine = Path(os.environ["FEDBO_CALLS"]).parent / f"mine-{config['rate']!r}"
        mine.write_text(str(step))
        if report(value, step, checkpoint=mine) == "stop":
            break
    return value


def curve(rate: float, step: int) -> float:
    """Return the value of a step, whose order among rates changes from step to step."""
    return math.sin(1e4 * rate + 0.3 * step) + 0.1 * step


def forgetful(config: dict[str, Any], report: Any, restore: Any) -> float:
    """Do the same, from the beginning after each pause."""
    return pausing(config, lambda value, step, checkpoint: report(value, step), lambda: None)


def dying(config: dict[str, Any], report: Any, restore: Any) -> float:
    """Do the same, and kill its process at step 5 the first time."""

    def reporting(value: float, step: int, checkpoint: Path) -> Any:
        answer, once = report(value, step, checkpoint), Path(os.environ["FEDBO_CALLS"]).parent / "died"
        if step == 5 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return pausing(config, reporting, restore)
