"""The folder of one run: the files of its agents and its coordinator, from which a later process continues."""

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
    """Another process has taken the run over: this one must not write to it any more."""


class RunFolder(NamedTuple):
    """The folder of one run, as attempt number `attempt` sees it (0: a reader, which writes nothing).

    A process that is believed dead may live on for a moment, for instance while Ray finds out that its driver is gone. So
    every attempt to continue a run has a number, which is part of the names of all files that it writes. Only the newest
    attempt can commit a snapshot.
    """

    path: Path
    key: RunKey
    attempt: int = 0

    @classmethod
    def of(cls, parts: Path, key: RunKey) -> RunFolder:
        """Return the folder of a run among the parts of a study."""
        return cls(parts / part_name(key), key)

    def claim(self) -> RunFolder:
        """Start a new attempt: from now on no earlier one can commit a snapshot."""
        atomic.make_folder(self.path)
        with self._fence() as fence:
            attempt = max(_attempt(fence), self._attempts()) + 1
            os.ftruncate(fence, 0)
            os.pwrite(fence, f"{attempt:08d}".encode(), 0)
        return self._replace(attempt=attempt)

    def table(self, kind: str, number: int, place: int = 0) -> Path:
        """Return the path of a table's part: rows of kind `kind` since the snapshot before number `number`, of host `place`."""
        return self.path / f"{kind}-{number:06d}-{self.attempt:04d}-{place:04d}.parquet"

    def agents(self, number: int, place: int, part: int = 0) -> Path:
        """Return the path of the agents of host `place` at a snapshot, or of a further part where they are many."""
        further = f"-{part:04d}" if part else ""
        return self.path / f"{number:06d}-{self.attempt:04d}-{place:04d}{further}.agents"

    def core(self, number: int) -> Path:
        """Return the path of the coordinator's state at a snapshot."""
        return self.path / f"{number:06d}-{self.attempt:04d}.core"

    def moments(self, number: int) -> Path:
        """Return the path of the events since a snapshot, where time is real."""
        return self.path / f"{number:06d}-{self.attempt:04d}.moments"

    @property
    def key_file(self) -> Path:
        """Return the path of the secret key of the noise, where the noise is secure."""
        return self.path / "noise.key"

    def log(self, since: int | None) -> Path:
        """Return the path of a new evaluation log: of evaluations since a snapshot, or of all."""
        period = "all" if since is None else f"{since:06d}"
        return self.path / f"log-{period}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"

    def checkpoint(self, agent: int, life: int) -> Path:
        """Return the path of an agent's own checkpoint in real time, in process number `life` of its host."""
        return self.path / f"agent-{agent:05d}-{self.attempt:04d}-{life:04d}.checkpoint"

    def checkpoints(self, agent: int) -> list[Path]:
        """Return the checkpoints of an agent, the newest process's last."""
        return sorted(self.path.glob(f"agent-{agent:05d}-*.checkpoint"))

    @property
    def remedy(self) -> str:
        """Return the commands that run this run again, keep its files aside, and leave all others of its study as they are."""
        directory = self.path.parent.parent
        aside = shlex.quote(str(directory / f"damaged-{self.path.name}"))
        return f"repeat this run: mv {shlex.quote(str(self.path))} {aside} && fedbo resume {shlex.quote(str(directory))}"

    @contextmanager
    def while_current(self) -> Iterator[None]:
        """Write here only while this attempt is current; Superseded otherwise, also where a missing file shows it."""
        self._check_current()
        try:
            yield
        except FileNotFoundError:
            self._check_current()
            raise

    def is_current(self) -> bool:
        """Return whether this attempt is the current one of the run."""
        try:
            self._check_current()
        except Superseded:
            return False
        return True

    def _check_current(self) -> None:
        """Raise Superseded when a later attempt continues the run, or the run has ended and its files are gone."""
        try:
            found = _number((self.path / "attempt").read_bytes())
        except FileNotFoundError:
            found = None
        if found != self.attempt:
            goes_on = "it has ended" if found is None else f"attempt {found} continues this run"
            raise Superseded(f"'{self.path}': {goes_on}; this is attempt {self.attempt}")

    def _attempts(self) -> int:
        """Return the highest attempt in the names of files, since the file with the number may be damaged."""
        names = re.compile(r"(?:[a-z]+-|agent-)?\d{5,6}-(\d{4})[-.]")
        found = (names.match(path.name) for path in self.path.iterdir())
        return max((int(each[1]) for each in found if each), default=0)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep later attempts from starting meanwhile; Superseded when one has started already."""
        with self._fence() as fence:
            if _attempt(fence) != self.attempt:
                raise Superseded(f"'{self.path}': attempt {_attempt(fence)} continues this run; this is attempt {self.attempt}")
            yield

    @contextmanager
    def _fence(self) -> Iterator[int]:
        """Lock out all other processes that claim or commit, and yield the file with the number of the attempt."""
        fence = os.open(self.path / "attempt", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fence, fcntl.LOCK_EX)
            yield fence
        finally:
            os.close(fence)


def _attempt(fence: int) -> int:
    return _number(os.pread(fence, 8, 0))


def _number(data: bytes) -> int:
    """Return the number of an attempt; 0 if it cannot be read, since the names of files have it too."""
    return int(data) if data[:8].isdigit() else 0
