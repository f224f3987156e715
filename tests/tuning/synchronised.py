"""Copies of one folder at several sites, synchronised by a script that delays, doubles, reorders and cuts files short."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class Synchroniser:
    """Copies files between folders, some of them badly: late, twice, out of order, under other names, or a part of one only.

    Folder number k is that of agent k, whose files are whole there. A file that was cut short is not copied on, but may be cut
    short again, or copied whole.
    """

    def __init__(self, folders: list[Path], seed: int, faults: float = 0.6) -> None:
        self.folders, self._rng, self._faults = folders, np.random.default_rng(seed), faults
        self._whole: dict[Path, set[str]] = {folder: set() for folder in folders}
        self.done = {"late": 0, "cut": 0, "doubled": 0, "whole": 0}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)

    def tick(self, settle: bool = False) -> None:
        """Copy what there is in some order; to `settle` is to copy everything whole."""
        for number, folder in enumerate(self.folders):
            self._whole[folder] |= {path.name for path in folder.glob(f"*-{number:05d}-*.message") if " " not in path.name}
        pairs = [(a, b, name) for a in self.folders for b in self.folders if a != b for name in sorted(self._whole[a])]
        for place in self._rng.permutation(len(pairs)):
            source, target, name = pairs[place]
            if settle or name not in self._whole[target] or self._rng.random() < 0.05:
                self._copy(source / name, target, settle)

    def _copy(self, file: Path, target: Path, settle: bool) -> None:
        data, draw = file.read_bytes(), self._rng.random()
        if settle or draw > self._faults:
            (target / file.name).write_bytes(data)
            self._whole[target].add(file.name)
            self.done["whole"] += 1
        elif draw < 0.5 * self._faults:
            self.done["late"] += 1
        elif draw < 0.8 * self._faults and file.name not in self._whole[target]:
            kept = int(self._rng.integers(0, len(data)))
            zeros = (
                bytes(len(data) - kept) if self._rng.random() < 0.5 else b""
            )  # as long as it will be, with nothing in it yet
            (target / file.name).write_bytes(data[:kept] + zeros)
            self.done["cut"] += 1
        else:
            (target / f"{file.stem} (conflicted copy {self._rng.integers(9)}).message").write_bytes(data)
            (target / f".{file.name}.tmp").write_bytes(data[: len(data) // 2])
            self.done["doubled"] += 1
