"""The folder of one run: where its agents and its coordinator keep what a later process goes on with."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey, part_name

PROVISIONAL = "provisional"  # the kind of rows that will be written again when the run goes on


class Superseded(RuntimeError):
    """Another process goes on with the run: this one must not write to it any more."""


class RunFolder(NamedTuple):
    """The folder of one run, as the run's attempt number `attempt` sees it (0: nobody's who writes).

    A process that is believed dead may live on for a moment, for instance while Ray finds out that its driver is gone. So
    every attempt at going on with a run has a number of its own, which stands in the names of all files that it writes, and
    only the newest attempt can make a snapshot the last one.
    """

    path: Path
    key: RunKey
    attempt: int = 0

    @classmethod
    def of(cls, parts: Path, key: RunKey) -> RunFolder:
        """Give the folder of a run among the parts of a study."""
        return cls(parts / part_name(key), key)

    def claim(self) -> RunFolder:
        """Begin a new attempt: from now on no earlier one can make a snapshot the last one."""
        atomic.make_folder(self.path)
        with self._fence() as fence:
            attempt = max(_attempt(fence), self._attempts()) + 1
            os.ftruncate(fence, 0)
            os.pwrite(fence, f"{attempt:08d}".encode(), 0)
        return self._replace(attempt=attempt)

    def table(self, kind: str, number: int, place: int = 0) -> Path:
        """Name a table's part: the rows of kind `kind` since the snapshot before number `number`, from host `place`."""
        return self.path / f"{kind}-{number:06d}-{self.attempt:04d}-{place:04d}.parquet"

    def agents(self, number: int, place: int, part: int = 0) -> Path:
        """Name the file with the agents of host `place` at a snapshot, or with a further part of them where they are many."""
        further = f"-{part:04d}" if part else ""
        return self.path / f"{number:06d}-{self.attempt:04d}-{place:04d}{further}.agents"

    def core(self, number: int) -> Path:
        """Name the file with the coordinator at a snapshot."""
        return self.path / f"{number:06d}-{self.attempt:04d}.core"

    def moments(self, number: int) -> Path:
        """Name the file of what has happened since a snapshot, where time is real."""
        return self.path / f"{number:06d}-{self.attempt:04d}.moments"

    @property
    def key_file(self) -> Path:
        """Name the file with the secret key of the noise, where it shall be secure."""
        return self.path / "noise.key"

    def log(self, since: int | None) -> Path:
        """Name a new log of evaluations, of those since a snapshot or of all."""
        period = "all" if since is None else f"{since:06d}"
        return self.path / f"log-{period}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"

    def checkpoint(self, agent: int, life: int) -> Path:
        """Name the checkpoint that an agent makes for itself where time is real, in the process number `life` of its host."""
        return self.path / f"agent-{agent:05d}-{self.attempt:04d}-{life:04d}.checkpoint"

    def checkpoints(self, agent: int) -> list[Path]:
        """List the checkpoints of an agent, the newest process's last."""
        return sorted(self.path.glob(f"agent-{agent:05d}-*.checkpoint"))

    @property
    def remedy(self) -> str:
        """Say how this run is made anew, with all others of its study left as they are, and its files kept."""
        directory = self.path.parent.parent
        aside = shlex.quote(str(directory / f"damaged-{self.path.name}"))
        return f"make this run anew: mv {shlex.quote(str(self.path))} {aside} && fedbo resume {shlex.quote(str(directory))}"

    @contextmanager
    def while_current(self) -> Iterator[None]:
        """Write here only while the run is this attempt's; Superseded else, also where that shows by a file that is gone."""
        self._check_current()
        try:
            yield
        except FileNotFoundError:
            self._check_current()
            raise

    def is_current(self) -> bool:
        """Say whether the run is this attempt's."""
        try:
            self._check_current()
        except Superseded:
            return False
        return True

    def _check_current(self) -> None:
        """Superseded when a later attempt goes on with the run, or it has ended and its files are gone."""
        try:
            found = _number((self.path / "attempt").read_bytes())
        except FileNotFoundError:
            found = None
        if found != self.attempt:
            goes_on = "it has ended" if found is None else f"attempt {found} goes on with this run"
            raise Superseded(f"'{self.path}': {goes_on}; this is {self.attempt}")

    def _attempts(self) -> int:
        """Give the highest attempt in the names of files: the file with its number may have been damaged."""
        names = re.compile(r"(?:[a-z]+-|agent-)?\d{5,6}-(\d{4})[-.]")
        found = (names.match(path.name) for path in self.path.iterdir())
        return max((int(each[1]) for each in found if each), default=0)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep later attempts from beginning meanwhile; Superseded when one has begun already."""
        with self._fence() as fence:
            if _attempt(fence) != self.attempt:
                raise Superseded(f"'{self.path}': attempt {_attempt(fence)} goes on with this run; this is {self.attempt}")
            yield

    @contextmanager
    def _fence(self) -> Iterator[int]:
        """Keep all other processes from claiming and committing; the file that does so holds the number of the attempt."""
        fence = os.open(self.path / "attempt", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fence, fcntl.LOCK_EX)
            yield fence
        finally:
            os.close(fence)


def _attempt(fence: int) -> int:
    return _number(os.pread(fence, 8, 0))


def _number(data: bytes) -> int:
    """Read the number of an attempt; 0 where there is none that can be read, since the names of files have it too."""
    return int(data) if data[:8].isdigit() else 0
