"""The folder of one run: where its agents and its coordinator keep what a later process goes on with."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedbo.actors.rows import Key, part_name

PROVISIONAL = "provisional"  # the kind of rows that will be written again when the run goes on


class Superseded(RuntimeError):
    """Another process goes on with the run: this one must not write to it any more."""


class Latest(NamedTuple):
    """The last snapshot of a run: its number (0: none yet), the attempt that made it, and the tables written by then.

    `ended` says whether the run is over.
    """

    number: int = 0
    attempt: int = 0
    tables: tuple[str, ...] = ()
    ended: bool = False

    @property
    def stem(self) -> str:
        """Give what the names of the snapshot's own files begin with."""
        return f"{self.number:06d}-{self.attempt:04d}"


class Home(NamedTuple):
    """The folder of one run, as the run's attempt number `attempt` sees it (0: nobody's who writes).

    A process that is believed dead may live on for a moment, for instance while Ray finds out that its driver is gone. So
    every attempt at going on with a run has a number of its own, which stands in the names of all files that it writes, and
    only the newest attempt can make a snapshot the last one.
    """

    folder: Path
    key: Key
    attempt: int = 0

    @classmethod
    def of(cls, parts: Path, key: Key) -> Home:
        """Give the folder of a run among the parts of a study."""
        return cls(parts / part_name(key), key)

    def claim(self) -> Home:
        """Begin a new attempt: from now on no earlier one can make a snapshot the last one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._fence() as fence:
            attempt = _attempt(fence) + 1
            os.pwrite(fence, f"{attempt:08d}".encode(), 0)
        return self._replace(attempt=attempt)

    def table(self, kind: str, number: int, place: int = 0) -> Path:
        """Name a table's part: the rows of kind `kind` since the snapshot before number `number`, from host `place`."""
        return self.folder / f"{kind}-{number:06d}-{self.attempt:04d}-{place:04d}.parquet"

    def agents(self, number: int, place: int) -> Path:
        """Name the file with the agents of host `place` at a snapshot."""
        return self.folder / f"{number:06d}-{self.attempt:04d}-{place:04d}.agents"

    def core(self, number: int) -> Path:
        """Name the file with the coordinator at a snapshot."""
        return self.folder / f"{number:06d}-{self.attempt:04d}.core"

    def moments(self, number: int) -> Path:
        """Name the file of what has happened since a snapshot, where time is real."""
        return self.folder / f"{number:06d}-{self.attempt:04d}.moments"

    @property
    def key_file(self) -> Path:
        """Name the file with the secret key of the noise, where it shall be secure."""
        return self.folder / "noise.key"

    def log(self, since: int | None) -> Path:
        """Name a new log of evaluations, of those since a snapshot or of all."""
        period = "all" if since is None else f"{since:06d}"
        return self.folder / f"log-{period}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"

    def checkpoint(self, agent: int, life: int) -> Path:
        """Name the checkpoint that an agent makes for itself where time is real, in the process number `life` of its host."""
        return self.folder / f"agent-{agent:05d}-{self.attempt:04d}-{life:04d}.checkpoint"

    def checkpoints(self, agent: int) -> list[Path]:
        """List the checkpoints of an agent, the newest process's last."""
        return sorted(self.folder.glob(f"agent-{agent:05d}-*.checkpoint"))

    def latest(self) -> Latest:
        """Read which snapshot is the last one that is complete."""
        try:
            found = json.loads((self.folder / "latest.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Latest()
        return Latest(found["number"], found["attempt"], tuple(found["tables"]), found["ended"])

    def commit(self, latest: Latest) -> None:
        """Let a snapshot be the last one, at one stroke, and remove the files of those before it.

        Superseded when another process has begun to go on with the run.
        """
        with self._alone():
            draft = self.folder / f".latest.json.{os.getpid()}.part"
            with draft.open("w", encoding="utf-8") as file:
                json.dump(latest._asdict(), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.folder / "latest.json")
            self._discard(latest)

    def tables(self, kind: str) -> list[Path]:
        """List the parts of a table as of the last snapshot, with the observations that are only for those who look now."""
        latest = self.latest()
        names = sorted(name for name in latest.tables if name.startswith(f"{kind}-"))
        passing: list[Path] = []
        if kind == "observations" and not latest.ended:
            passing = sorted(self.folder.glob(f"{PROVISIONAL}-{latest.stem}-*.parquet"))
        return [*(self.folder / name for name in names), *passing]

    def clear(self) -> Latest:
        """Give the last snapshot, and remove what was written after it: whoever goes on writes it again."""
        with self._alone():
            latest = self.latest()
            for path in [*self.folder.glob("*.parquet"), *self.folder.glob(".*.part")]:
                if path.name not in latest.tables:
                    path.unlink(missing_ok=True)
            self._discard(latest)
        return latest

    def _discard(self, latest: Latest) -> None:
        """Remove the files of other snapshots, and of a run that has ended everything but its tables and its result."""
        for path in self.folder.glob("[0-9]*"):
            if latest.ended or not path.name.startswith(latest.stem):
                path.unlink(missing_ok=True)
        for path in self.folder.glob("log-[0-9]*"):
            if int(path.name[4:10]) < latest.number - 1:  # the evaluation at hand may be in the file before
                path.unlink(missing_ok=True)
        if latest.ended:
            for path in (*self.folder.glob("log-*"), *self.folder.glob("agent-*"), self.key_file):
                path.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep later attempts from beginning meanwhile; Superseded when one has begun already."""
        with self._fence() as fence:
            if _attempt(fence) != self.attempt:
                raise Superseded(f"'{self.folder}': attempt {_attempt(fence)} goes on with this run; this is {self.attempt}")
            yield

    @contextmanager
    def _fence(self) -> Iterator[int]:
        """Keep all other processes from claiming and committing; the file that does so holds the number of the attempt."""
        fence = os.open(self.folder / "attempt", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fence, fcntl.LOCK_EX)
            yield fence
        finally:
            os.close(fence)


def _attempt(fence: int) -> int:
    return int(os.pread(fence, 8, 0) or b"0")


def append_whole(file: int, data: bytes) -> None:
    """Append all of it to a file or nothing; OSError when the disk is full."""
    size = os.fstat(file).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, size)
        raise
