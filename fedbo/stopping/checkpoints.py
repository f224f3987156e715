"""Checkpoints of evaluations in real time: copies in the run's folder, from which paused and interrupted ones continue."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import Query
from fedbo.stopping.stoppers import Key


class Checkpoints(NamedTuple):
    """The checkpoints of one agent's evaluations: each is the file or folder `folder`/STEP-POINT/NUMBER/NAME.

    Of several, such as those of a kill in between, that with the largest number counts.
    """

    folder: Path

    @classmethod
    def of(cls, run: Path, query: Query) -> Checkpoints:
        """Return the checkpoints of the agent of an evaluation, in the folder of its run."""
        return cls(run / f"checkpoints-{query.agent}")

    def keep(self, key: Key, source: Path) -> None:
        """Copy the file or the folder `source` as the checkpoint of an evaluation, in place of earlier ones.

        The copy appears complete or not at all. OSError when `source` cannot be read or the disk is full.
        """
        earlier = self._all(key)
        number = 1 + max((int(path.name.partition("-")[0]) for path in earlier), default=-1)
        # With the process: one that is believed dead may still write.
        name = f"{number:06d}-{os.getpid()}"
        draft = self._own(key) / f".{name}"
        (atomic.copy_folder if source.is_dir() else atomic.copy)(source, draft / source.name)
        atomic.rename(draft, self._own(key) / name)
        for path in earlier:
            atomic.remove_folder(path)

    def latest(self, key: Key) -> Path | None:
        """Return the checkpoint of an evaluation; None without one."""
        return next((path for folder in reversed(self._all(key)) for path in folder.iterdir()), None)

    def remove(self, key: Key) -> int:
        """Remove the checkpoint of an evaluation, and return its bytes."""
        size = _size(self._own(key))
        if self._own(key).is_dir():
            atomic.remove_folder(self._own(key))
        return size

    def prune(self, keys: Iterable[Key], limit: int) -> list[tuple[Key, int]]:
        """Remove the checkpoints of these evaluations, in this order, until the agent has at most `limit` bytes.

        Returns those that were removed, with their bytes.
        """
        left, removed = _size(self.folder), list[tuple[Key, int]]()
        for key in keys:
            if left <= limit:
                break
            if size := self.remove(key):
                left -= size
                removed.append((key, size))
        return removed

    def _own(self, key: Key) -> Path:
        return self.folder / f"{key[0]}-{key[1]}"

    def _all(self, key: Key) -> list[Path]:
        return sorted(self._own(key).glob("[0-9]*"))


def _size(folder: Path) -> int:
    """Return the bytes of all files in a folder; those that vanish meanwhile, since evaluations replace them, have none."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(above, name)).st_size
    return total
