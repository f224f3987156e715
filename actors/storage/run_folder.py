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
from fedbo.actors.storage.sealed import Damaged, check_file, seal, unseal

PROVISIONAL = "provisional"  # the kind of rows that will be written again when the run goes on


class Superseded(RuntimeError):
    """Another process goes on with the run: this one must not write to it any more."""


class SnapshotIndex(NamedTuple):
    """The last snapshot of a run: its number (0: none yet), the attempt that made it, and the tables written by then.

    `ended` says whether the run is over. `tables` and `files`, those of the snapshot itself, map names to SHA-256 (empty: not
    known, or it still grows).
    """

    number: int = 0
    attempt: int = 0
    tables: dict[str, str] = {}
    ended: bool = False
    files: dict[str, str] = {}

    @property
    def stem(self) -> str:
        """Give what the names of the snapshot's own files begin with."""
        return f"{self.number:06d}-{self.attempt:04d}"


class RunFolder(NamedTuple):
    """The folder of one run, as the run's attempt number `attempt` sees it (0: nobody's who writes).

    A process that is believed dead may live on for a moment, for instance while Ray finds out that its driver is gone. So
    every attempt at going on with a run has a number of its own, which stands in the names of all files that it writes, and
    only the newest attempt can make a snapshot the last one.
    """

    folder: Path
    key: RunKey
    attempt: int = 0

    @classmethod
    def of(cls, parts: Path, key: RunKey) -> RunFolder:
        """Give the folder of a run among the parts of a study."""
        return cls(parts / part_name(key), key)

    def claim(self) -> RunFolder:
        """Begin a new attempt: from now on no earlier one can make a snapshot the last one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._fence() as fence:
            attempt = max(_attempt(fence), self._attempts()) + 1
            os.ftruncate(fence, 0)
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

    def latest(self) -> SnapshotIndex:
        """Read which snapshot is the last one that is complete; Damaged when that is not to be found out."""
        found = self._index("latest.json")
        if found is not None:
            return found
        begun = [path.name for path in self.folder.glob("[!.]*")] if self.folder.is_dir() else []
        if set(begun) - {"attempt", self.key_file.name}:
            raise Damaged(self.folder / "latest.json", "it is missing", self.remedy)
        return SnapshotIndex()

    def before(self) -> SnapshotIndex | None:
        """Read the snapshot before the last one, which is kept for the case that a file of the last one is damaged."""
        return self._index("previous.json")

    def _index(self, name: str) -> SnapshotIndex | None:
        try:
            found = unseal(self.folder / name)
        except FileNotFoundError:
            return None
        except Damaged as error:
            raise Damaged(error.path, error.why, self.remedy) from None
        try:
            tables = found["tables"]
            known = tables if isinstance(tables, dict) else dict.fromkeys(tables, "")  # format 1 has names alone
            return SnapshotIndex(found["number"], found["attempt"], known, found["ended"], found.get("files", {}))
        except KeyError as error:
            raise Damaged(self.folder / name, f"it has no {error}", self.remedy) from None

    @property
    def remedy(self) -> str:
        """Say how this run is made anew, with all others of its study left as they are, and its files kept."""
        directory = self.folder.parent.parent
        aside = shlex.quote(str(directory / f"damaged-{self.folder.name}"))
        return f"make this run anew: mv {shlex.quote(str(self.folder))} {aside} && fedbo resume {shlex.quote(str(directory))}"

    def check(self, latest: SnapshotIndex, tables: bool = True) -> None:
        """Let a snapshot pass whose files are all as they were written; Damaged with the first that is not."""
        for name, digest in {**(latest.tables if tables else {}), **latest.files}.items():
            try:
                check_file(self.folder / name, digest)
            except Damaged as error:
                raise Damaged(error.path, error.why, self.remedy) from None

    def whole(self) -> tuple[SnapshotIndex, Damaged | None]:
        """Give the last snapshot that is whole, with what is damaged of a later one; Damaged when none is.

        Nothing is changed.
        """
        try:
            latest = self.latest()
            self.check(latest)
            return latest, None
        except Damaged as error:
            damage = error
        try:
            before = self.before()
            if before is not None:
                self.check(before)
        except Damaged:
            before = None
        # Without its key a run would release what it has released with other noise; in real time nothing happens again.
        lost = damage.path == self.key_file or (before == SnapshotIndex() and any(self.folder.glob("*.moments")))
        if before is None or lost:
            raise damage
        return before, damage

    def fall_back(self, before: SnapshotIndex, damage: Damaged, aside: Path) -> None:
        """Let the snapshot before the last one count, and set the file that is damaged aside."""
        if damage.path.exists():
            aside.mkdir(parents=True, exist_ok=True)
            damage.path.replace(aside / damage.path.name)
        atomic.write_text(self.folder / "latest.json", seal(before._asdict()))

    def commit(self, latest: SnapshotIndex, before: SnapshotIndex | None = None) -> None:
        """Let a snapshot be the last one, at one stroke, and remove the files of those before the one `before` it.

        Superseded when another process has begun to go on with the run.
        """
        with self._alone():
            if before is not None and not latest.ended:
                atomic.write_text(self.folder / "previous.json", seal(before._asdict()))
            atomic.write_text(self.folder / "latest.json", seal(latest._asdict()))
            self._discard(latest, before or latest)

    def tables(self, kind: str) -> list[Path]:
        """List the parts of a table as of the last snapshot, with the observations that are only for those who look now."""
        latest = self.latest()
        names = sorted(name for name in latest.tables if name.startswith(f"{kind}-"))
        passing: list[Path] = []
        if kind == "observations" and not latest.ended:
            passing = sorted(self.folder.glob(f"{PROVISIONAL}-{latest.stem}-*.parquet"))
        return [*(self.folder / name for name in names), *passing]

    def clear(self) -> SnapshotIndex:
        """Give the last snapshot, and remove what was written after it: whoever goes on writes it again."""
        with self._alone():
            latest = self.latest()
            self.check(latest, tables=False)
            for path in [*self.folder.glob("*.parquet"), *self.folder.glob(".*.part")]:
                if path.name not in latest.tables:
                    path.unlink(missing_ok=True)
            self._discard(latest, self._kept_before() or latest)
            if not (self.folder / "latest.json").exists():  # from now on it is damage when there is none
                atomic.write_text(self.folder / "latest.json", seal(latest._asdict()))
        return latest

    def _kept_before(self) -> SnapshotIndex | None:
        try:
            return self.before()
        except Damaged:
            return None  # it is not needed while the last one is whole

    def _discard(self, latest: SnapshotIndex, before: SnapshotIndex) -> None:
        """Remove the files of snapshots before these two, and of a run that has ended all but its tables and its result."""
        for path in self.folder.glob("[0-9]*"):
            late = path.suffix == ".moments" and path.name >= before.stem  # from which what came after it is found out again
            if latest.ended or not (late or path.name.startswith((latest.stem, before.stem))):
                path.unlink(missing_ok=True)
        for path in self.folder.glob("log-[0-9]*"):
            if int(path.name[4:10]) < min(latest.number, before.number) - 1:  # the evaluation at hand may be in the file before
                path.unlink(missing_ok=True)
        if latest.ended:
            left = ("log-*", "agent-*", self.key_file.name, "previous.json")
            for path in (path for pattern in left for path in self.folder.glob(pattern)):
                path.unlink(missing_ok=True)

    def happened(self, latest: SnapshotIndex) -> list[Path]:
        """List the files of what has happened since a snapshot where time is real: its own and those of later ones."""
        return sorted(path for path in self.folder.glob("*.moments") if path.name >= latest.stem)

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Write here only while the run is this attempt's; Superseded else, also where that shows by a file that is gone."""
        self._check_ours()
        try:
            yield
        except FileNotFoundError:
            self._check_ours()
            raise

    def is_ours(self) -> bool:
        """Say whether the run is this attempt's."""
        try:
            self._check_ours()
        except Superseded:
            return False
        return True

    def _check_ours(self) -> None:
        """Superseded when a later attempt goes on with the run, or it has ended and its files are gone."""
        try:
            found = _number((self.folder / "attempt").read_bytes())
        except FileNotFoundError:
            found = None
        if found != self.attempt:
            goes_on = "it has ended" if found is None else f"attempt {found} goes on with this run"
            raise Superseded(f"'{self.folder}': {goes_on}; this is {self.attempt}")

    def _attempts(self) -> int:
        """Give the highest attempt in the names of files: the file with its number may have been damaged."""
        names = re.compile(r"(?:[a-z]+-|agent-)?\d{5,6}-(\d{4})[-.]")
        found = (names.match(path.name) for path in self.folder.iterdir())
        return max((int(each[1]) for each in found if each), default=0)

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
    return _number(os.pread(fence, 8, 0))


def _number(data: bytes) -> int:
    """Read the number of an attempt; 0 where there is none that can be read, since the names of files have it too."""
    return int(data) if data[:8].isdigit() else 0


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
