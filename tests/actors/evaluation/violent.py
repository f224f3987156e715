"""Objectives that sleep, grow, shout or kill their own process, for tests of isolation; importable in every process."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np


class Unportable(RuntimeError):
    """An error that cannot cross to another process."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__(text)
        self.open = open(os.devnull)  # noqa: SIM115


RAISED_AGAIN = RuntimeError("no call yet")


@dataclass
class Violent:
    """Does what `deed` says where x[0] > 0.5, and gives x[0] elsewhere; it counts its calls in each process."""

    deed: str
    calls: int = 0
    best_value: float | None = None

    def evaluate(self, x: Any, rng: np.random.Generator) -> float:
        self.calls += 1
        if x[0] > 0.5:
            getattr(self, self.deed)()
        return float(x[0])

    def score(self, x: Any) -> float | None:
        return None

    def sleep(self) -> None:
        time.sleep(60.0)

    def hoard(self) -> None:
        np.ones(2**33, dtype=np.uint8)

    def exit(self) -> None:
        os._exit(7)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def split(self) -> None:
        """Fork processes that exit, return and fail as the objective does."""
        codes = []
        for end in (lambda: sys.exit(3), lambda: None, self.fail):
            child = os.fork()
            if child == 0:
                end()
                return
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert codes == [3, 0, 1], codes

    def again(self) -> None:
        RAISED_AGAIN.args = (f"call {self.calls}",)
        raise RAISED_AGAIN

    def fail(self) -> None:
        raise KeyError("the key to the cellar")

    def unportable(self) -> None:
        raise Unportable("of this process alone", 3)

    def shout(self) -> None:
        print("an answer that is none", flush=True)
        os.write(1, b"\x00" * 4096)
        print("so this is wrong", file=sys.stderr, flush=True)

    def leave(self) -> None:
        sys.exit("enough")

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def move(self) -> None:
        os.chdir("/")

    def close(self) -> None:
        sys.stdout.close()

    def replace(self) -> None:
        sys.stdout = io.StringIO()
        sys.stdout.close()

    def descend(self) -> None:
        """Let other programs print where this one does."""
        for stream in (sys.stdout, sys.stderr):
            subprocess.run(["echo", "below"], stdout=stream, check=True)

    def half(self) -> None:
        print("half of a pair: \udcff", file=sys.stderr)

    def read(self) -> None:
        assert not sys.stdin.read(), "an input that is none"

    def fork(self) -> None:
        """Print more than a pipe takes at once, in several processes."""
        with multiprocessing.get_context("fork").Pool(4) as pool:
            pool.map(print, ["z" * 9000] * 40)

    def tell(self) -> None:
        print(os.getcwd(), flush=True)

    def count(self) -> None:
        raise ValueError(f"call {self.calls} in process {os.getpid()}")


class SlowToLoad(Violent):
    """Takes a while to arrive in another process, as what imports a large library does."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(0.7)
        self.__dict__.update(state)
