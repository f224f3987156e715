"""The coordinator and the sites of a study as processes of the command line, which may be killed at any moment."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedbo.sites.folders import AUDIT
from fedbo.study.study import load_study
from tests.sites.loopback import Arranged, arrange

ANSWER = 500  # bytes of an answer in the audit log, about
OBJECTIVE = Path(__file__).parent / "kept_objective.py"


class Processes:
    """`fedbo serve` and one `fedbo join` for each site; one that was killed starts again."""

    def __init__(self, document: dict[str, Any], folder: Path, seconds: float = 0.02) -> None:
        study = load_study(document)
        (folder / "study.toml").write_text(study.to_toml())
        self.arranged: Arranged = arrange(load_study(folder / "study.toml"), folder)
        here, objective = self.arranged, f"{OBJECTIVE}:bowl"
        serve = ["serve", str(folder / "study.toml"), "--listen", here.listen, "--service", str(here.service), "--quiet"]
        self._commands = [serve, *(["join", str(approval), objective, "--patience", "300"] for approval in here.approvals)]
        self._environment = {**os.environ, "FEDBO_TEST_SECONDS": str(seconds)}
        self._log = (folder / "output.txt").open("ab")
        self._running = [self._start(command) for command in self._commands]
        self.killed = [0] * len(self._running)

    @property
    def run(self) -> Path:
        return self.arranged.service / "run"

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fedbo", *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)

    def kill(self, place: int) -> None:
        """Kill the coordinator (0) or a site, if it still runs, and start it again."""
        process = self._running[place]
        if process.poll() is None:
            process.kill()
            process.wait()
            self.killed[place] += 1
            self._running[place] = self._start(self._commands[place])

    def kill_some(self, count: int, seed: int, most: int = 12) -> None:
        """Kill one of them at random, so many times, each after 1 to `most` further answers of the coordinator.

        Fewer if the study ends before.
        """
        draws, log = random.Random(seed), self.arranged.service / AUDIT
        for _ in range(count):
            size = log.stat().st_size if log.exists() else 0
            until = size + ANSWER * draws.randint(1, most)
            while (log.stat().st_size if log.exists() else 0) < until:
                if self._running[0].poll() is not None:
                    return
                time.sleep(0.01)
            self.kill(draws.randrange(len(self._running)))

    def wait(self, seconds: float = 300.0) -> None:
        """Wait for the ends of all; they must have succeeded."""
        try:
            codes = [process.wait(seconds) for process in self._running]
            assert codes == [0] * len(codes), self.output()[-3000:]
        finally:
            self.close()

    def output(self) -> str:
        """Return what all of them have printed."""
        return Path(self._log.name).read_text(errors="replace")

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()
