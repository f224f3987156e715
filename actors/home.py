"""The folder of one run: where its agents and its coordinator keep what a later process goes on with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from fedbo.actors.rows import Key, part_name

PROVISIONAL = "provisional"  # the kind of rows that will be written again when the run goes on


class Latest(NamedTuple):
    """The last snapshot of a run: its number (0: none yet), the tables written by then, and whether the run has ended."""

    number: int = 0
    tables: tuple[str, ...] = ()
    ended: bool = False


class Home(NamedTuple):
    """The folder of one run."""

    folder: Path
    key: Key

    @classmethod
    def of(cls, parts: Path, key: Key) -> Home:
        """Give the folder of a run among the parts of a study."""
        return cls(parts / part_name(key), key)

    def table(self, kind: str, number: int, place: int = 0) -> Path:
        """Name a table's part: the rows of kind `kind` since the snapshot before number `number`, from host `place`."""
        return self.folder / f"{kind}-{number:06d}-{place:04d}.parquet"

    def agents(self, number: int, place: int) -> Path:
        """Name the file with the agents of host `place` at a snapshot."""
        return self.folder / f"{number:06d}-{place:04d}.agents"

    def core(self, number: int) -> Path:
        """Name the file with the coordinator at a snapshot."""
        return self.folder / f"{number:06d}.core"

    def agent(self, number: int) -> Path:
        """Name the checkpoint that agent `number` makes for itself where time is real."""
        return self.folder / f"agent-{number:05d}.checkpoint"

    def latest(self) -> Latest:
        """Read which snapshot is the last one that is complete."""
        try:
            found = json.loads((self.folder / "latest.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Latest()
        return Latest(found["number"], tuple(found["tables"]), found["ended"])

    def commit(self, latest: Latest) -> None:
        """Let a snapshot be the last one, at one stroke, and remove the files of those before it."""
        draft = self.folder / ".latest.json.part"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(latest._asdict(), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / "latest.json")
        for path in self.folder.glob("[0-9]*"):
            if latest.ended or int(path.name[:6]) < latest.number:
                path.unlink(missing_ok=True)
        if latest.ended:
            for path in (*self.folder.glob("evaluations-*"), *self.folder.glob("agent-*")):
                path.unlink(missing_ok=True)

    def tables(self, kind: str) -> list[Path]:
        """List the parts of a table as of the last snapshot, with the observations that are only for those who look now."""
        names = sorted(name for name in self.latest().tables if name.startswith(kind))
        passing = sorted(self.folder.glob(f"{PROVISIONAL}-*")) if kind == "observations" else []
        return [*(self.folder / name for name in names), *passing]

    def clear(self, latest: Latest) -> None:
        """Remove what was written after the last snapshot: whoever goes on writes it again."""
        known = {*latest.tables}
        for path in self.folder.glob("*.parquet"):
            if path.name not in known:
                path.unlink(missing_ok=True)
        for path in self.folder.glob("[0-9]*"):
            if int(path.name[:6]) != latest.number:
                path.unlink(missing_ok=True)
