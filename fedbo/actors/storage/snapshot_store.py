"""The snapshots of a run: which is the last complete one, which files it has, and which files it makes obsolete."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedbo.actors.storage import atomic
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder
from fedbo.actors.storage.sealed import DamagedError, check_file, seal, unseal


class SnapshotIndex(NamedTuple):
    """The last snapshot of a run.

    - `number`: its number (0: none yet); `attempt`: the attempt that wrote it.
    - `tables`, `files`: SHA-256 by name of the tables so far, and of the snapshot's own files (empty: unknown, or it grows).
    - `ended`: the run is over.
    """

    number: int = 0
    attempt: int = 0
    tables: dict[str, str] = {}
    ended: bool = False
    files: dict[str, str] = {}

    @property
    def stem(self) -> str:
        """Return the prefix of the names of the snapshot's own files."""
        return f"{self.number:06d}-{self.attempt:04d}"

    def parts(self, folder: Path, suffix: str) -> list[Path]:
        """Return its files with this suffix, its own last; unchanged agents are in the files of earlier snapshots."""
        return sorted(folder / name for name in self.files if name.endswith(suffix))


class SnapshotStore:
    """The snapshots in the folder of a run, of which the last two are kept."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def latest(self) -> SnapshotIndex:
        """Return the last complete snapshot; DamagedError when that cannot be found out."""
        found = self._index("latest.json")
        if found is not None:
            return found
        begun = [path.name for path in self._folder.path.glob("[!.]*")] if self._folder.path.is_dir() else []
        if set(begun) - {"attempt", self._folder.key_file.name}:
            raise DamagedError(self._folder.path / "latest.json", "it is missing", self._folder.remedy)
        return SnapshotIndex()

    def previous(self) -> SnapshotIndex | None:
        """Return the snapshot before the last one, which is kept in case a file of the last one is damaged."""
        return self._index("previous.json")

    def _index(self, name: str) -> SnapshotIndex | None:
        try:
            found = unseal(self._folder.path / name)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            raise DamagedError(error.path, error.why, self._folder.remedy) from None
        try:
            return SnapshotIndex(**{name: found[name] for name in SnapshotIndex._fields})
        except KeyError as error:
            raise DamagedError(self._folder.path / name, f"it has no {error}", self._folder.remedy) from None

    def check(self, latest: SnapshotIndex, tables: bool = True) -> None:
        """Check that all files of a snapshot are as they were written; raise DamagedError for the first that is not."""
        for name, digest in {**(latest.tables if tables else {}), **latest.files}.items():
            try:
                check_file(self._folder.path / name, digest)
            except DamagedError as error:
                raise DamagedError(error.path, error.why, self._folder.remedy) from None

    def last_whole(self) -> tuple[SnapshotIndex, DamagedError | None]:
        """Return the last undamaged snapshot, and the damage of a later one, if any; raise DamagedError when there is none.

        No file is changed.
        """
        try:
            latest = self.latest()
            self.check(latest)
            return latest, None
        except DamagedError as error:
            damage = error
        try:
            before = self.previous()
            if before is not None:
                self.check(before)
        except DamagedError:
            before = None
        # Without its key a run would release what it has released with other noise; in real time nothing happens again.
        lost = damage.path == self._folder.key_file or (before == SnapshotIndex() and any(self._folder.path.glob("*.moments")))
        if before is None or lost:
            raise damage
        return before, damage

    def fall_back(self, before: SnapshotIndex, damage: DamagedError, aside: Path) -> None:
        """Return to the snapshot before the last one, and move the damaged file aside."""
        if damage.path.exists():
            atomic.make_folder(aside)
            damage.path.replace(aside / damage.path.name)
        atomic.write_text(self._folder.path / "latest.json", seal(before._asdict()))

    def commit(self, latest: SnapshotIndex, before: SnapshotIndex | None = None) -> None:
        """Commit a snapshot as the last one, atomically, and remove the files of those before the one `before` it.

        Superseded when another process has started to continue the run.
        """
        with self._folder.exclusive():
            if before is not None and not latest.ended:
                # First, so that a crash between the two writes leaves the last snapshot as it was.
                atomic.write_text(self._folder.path / "previous.json", seal(before._asdict()))
            atomic.write_text(self._folder.path / "latest.json", seal(latest._asdict()))
            self._discard(latest, before or latest)

    def tables(self, kind: str, latest: SnapshotIndex | None = None) -> list[Path]:
        """Return the parts of a table at the last snapshot; for a running study also the provisional observations."""
        latest = latest or self.latest()
        names = sorted(name for name in latest.tables if name.startswith(f"{kind}-"))
        passing: list[Path] = []
        if kind == "observations" and not latest.ended:
            passing = sorted(self._folder.path.glob(f"{PROVISIONAL}-{latest.stem}-*.parquet"))
        return [*(self._folder.path / name for name in names), *passing]

    def discard_later(self) -> SnapshotIndex:
        """Return the last snapshot and remove all later files, which the continued run writes again."""
        with self._folder.exclusive():
            latest = self.latest()
            self.check(latest, tables=False)
            for path in [*self._folder.path.glob("*.parquet"), *self._folder.path.glob(".*.part")]:
                if path.name not in latest.tables:
                    path.unlink(missing_ok=True)
            self._discard(latest, self._previous_if_whole() or latest)
            if not (self._folder.path / "latest.json").exists():  # from now on it is damage when there is none
                atomic.write_text(self._folder.path / "latest.json", seal(latest._asdict()))
        return latest

    def _previous_if_whole(self) -> SnapshotIndex | None:
        try:
            return self.previous()
        except DamagedError:
            return None  # it is not needed while the last one is whole

    def _discard(self, latest: SnapshotIndex, before: SnapshotIndex) -> None:
        """Remove the files of snapshots before these two; of an ended run, all but its tables and its result."""
        for path in self._folder.path.glob("[0-9]*"):
            late = path.suffix == ".moments" and path.name >= before.stem  # from which what came after it is found out again
            needed = late or path.name in {**latest.files, **before.files} or path.name.startswith((latest.stem, before.stem))
            if latest.ended or not needed:
                path.unlink(missing_ok=True)
        for path in self._folder.path.glob("log-[0-9]*"):
            if int(path.name[4:10]) < min(latest.number, before.number) - 1:  # the evaluation at hand may be in the file before
                path.unlink(missing_ok=True)
        if latest.ended:
            left = ("log-*", "agent-*", self._folder.key_file.name, "previous.json")
            for path in (path for pattern in left for path in self._folder.path.glob(pattern)):
                path.unlink(missing_ok=True)

    def moments_since(self, latest: SnapshotIndex) -> list[Path]:
        """Return the files of events since a snapshot in real time: its own and those of later ones."""
        return sorted(path for path in self._folder.path.glob("*.moments") if path.name >= latest.stem)
