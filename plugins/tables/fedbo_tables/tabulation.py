"""Tabulation: evaluate every agent's objective at a design, then near the best points, and fit a surface.

Every evaluation is written at once; the same command resumes from there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import write_table
from fedbo.execution.cluster import Cluster
from fedbo.execution.directory import discard_drafts, discard_parts, now, versions
from fedbo.execution.failures import RunError
from fedbo.execution.progress import Progress
from fedbo.objectives.base import Federation
from fedbo.settings.interrupts import interrupts
from fedbo.settings.plugins import used
from fedbo.settings.trust import admitted
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError, locked, make_folder, out_of_space, usable
from fedbo.study.tables import HostingTable
from fedbo_tables.display import TableDisplay
from fedbo_tables.pool import task_pool
from fedbo_tables.sources import ObjectiveSource
from fedbo_tables.table import DESIGN, FACTS, POINTS_FILE, REFINE, TableError, read_facts, read_points
from fedbo_tables.worker import JobResult, TableJob, TablePlan, Tabulator, rows_of

_CHUNK = 256  # evaluations to one job at most
_SHARES = 32  # jobs that each worker should get at least
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A request for a table: its agents (None: all), the number of points of the design, and of steps of refinement."""

    points: int = 4096
    refine: int = 0
    agents: tuple[int, ...] | None = None


def tabulate_objective(
    origin: ObjectiveSource,
    folder: Path,
    request: TableRequest,
    hosting: HostingTable | None = None,
    progress: Progress | None = None,
) -> Facts:
    """Make a table, resume one, or extend it; return the facts of its `table.json`.

    Raises:
        DirectoryError: the folder holds something else.
        KeyboardInterrupt: after Ctrl-C, with the folder; finished evaluations are kept.
        RunError: anything failed; finished evaluations are kept.
    """
    agents = _agents(origin.federation, request.agents)
    with usable(folder, "cannot create a folder there"):
        if folder.exists() and not folder.is_dir():
            raise DirectoryError(f"'{folder}': is a file; set a folder with --out")
        is_table = (folder / FACTS).exists()
        if folder.is_dir() and not is_table and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise DirectoryError(f"'{folder}': is not empty and contains no table; set another folder with --out")
    make_folder(folder)
    with locked(folder):
        discard_drafts(folder)
        facts = _begun(origin, folder)
        asked = {int(key): (entry["points"], entry["refine"]) for key, entry in facts["agents"].items()}
        asked |= {agent: _asked(facts, agent, request, folder) for agent in agents}
        builder = _TableBuilder(
            TablePlan(folder.resolve(), origin.federation, origin.seed, origin.replicate, admitted(origin.settings)),
            facts,
            asked,
            progress,
        )
        try:
            builder.build(hosting or HostingTable())
        except OSError as error:
            if not out_of_space(error):
                raise
            words = f"the disk is full ({error}); free some space, then repeat the command; {_kept(folder)}"
            raise RunError(words, folder) from error
    return facts


def _kept(folder: Path) -> str:
    return f"finished evaluations are in '{folder}'"


def _agents(federation: Federation, chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    count = federation.n_agents
    for agent in chosen or ():
        if not 0 <= agent < count:
            raise StudyError(f"--agents: no agent {agent}; use agents 0 to {count - 1}")
    return tuple(range(count)) if chosen is None else tuple(sorted(set(chosen)))


def _versions(objective: str) -> dict[str, str]:
    """Return the versions that a table depends on: of fedbo, of this plug-in, and of that of the objective."""
    return {**versions(), **_plugins(objective)}


def _plugins(objective: str) -> dict[str, str]:
    return used([("objectives", objective), ("rooms", "tables")])


def _begun(origin: ObjectiveSource, folder: Path) -> Facts:
    """Return the facts of the folder's table, or of a new one; DirectoryError if it is a table of something else."""
    if not (folder / FACTS).exists():
        empty = {"agents": {}, "status": "new", "versions": _versions(origin.name), "points_sha256": "", "seconds": 0.0}
        return {**origin.identity, **empty}
    try:
        facts = read_facts(folder)
        if facts["status"] == "complete":
            read_points(folder, facts["points_sha256"])
    except TableError as error:
        raise DirectoryError(str(error)) from None
    for key, value in origin.identity.items():
        if facts.get(key) != value:
            held, given = _difference(facts.get(key), value, key)
            remedy = "set another folder with --out"
            raise DirectoryError(f"'{folder}': contains another table, with {held}, not {given}; {remedy}")
    return facts


def _difference(held: Any, given: Any, key: str) -> tuple[str, str]:
    """Return the first values in which two tables differ."""
    if isinstance(held, dict) and isinstance(given, dict):
        for name in {**given, **held}:
            if held.get(name) != given.get(name):
                return _difference(held.get(name), given.get(name), name)
    return f"{key} = {json.dumps(held)}", json.dumps(given)


def _asked(facts: Facts, agent: int, request: TableRequest, folder: Path) -> tuple[int, int]:
    """Return the requested points and steps of an agent, never fewer than the table has."""
    entry = facts["agents"].get(str(agent), {"points": 0, "refine": 0})
    if entry["refine"] and request.points > entry["points"]:
        words = f"agent {agent} was refined from {entry['points']} points, and cannot be extended to {request.points}"
        raise DirectoryError(f"'{folder}': {words}; set --points {entry['points']}, or set another folder with --out")
    return max(request.points, entry["points"]), max(request.refine, entry["refine"])


class _TableBuilder:
    """Runs the missing evaluations of a table, and writes its facts."""

    def __init__(self, plan: TablePlan, facts: Facts, asked: dict[int, tuple[int, int]], progress: Progress | None) -> None:
        self._plan, self._facts, self._asked = plan, facts, asked
        self._have = _numbers(plan.folder)
        self._display = TableDisplay(progress, plan.federation.metric, {agent: sum(counts) for agent, counts in asked.items()})

    def build(self, hosting: HostingTable) -> None:
        """Run the missing evaluations, fit the surfaces, and write the table."""
        jobs = [list(self._missing(DESIGN, hosting)), list(self._missing(REFINE, hosting))]
        changed = {job.agent for phase in jobs for job in phase}
        held, entries = self._facts["agents"], dict[str, Any]()
        for agent, (points, refine) in sorted(self._asked.items()):
            kept = {} if agent in changed else held.get(str(agent), {})  # else its surface is of before
            entries[str(agent)] = {**kept, "points": points, "refine": refine}
        self._facts["agents"] = entries
        jobs.append([TableJob("fit", int(key)) for key, entry in entries.items() if "gp" not in entry])
        if not any(jobs) and self._facts["status"] == "complete":
            return
        self._same_versions()
        self._write("running")
        self._carry_out(jobs, hosting)

    def _missing(self, origin: str, hosting: HostingTable) -> Iterator[TableJob]:
        """Yield the missing evaluations of the design or of the refinement, in chunks; a refinement is one chunk."""
        counts = {agent: asked[origin == REFINE] for agent, asked in self._asked.items()}
        lacking = {agent: sorted({*range(count)} - self._have.get((agent, origin), set())) for agent, count in counts.items()}
        total = sum(len(indices) for indices in lacking.values())
        size = max(1, min(_CHUNK, total // (_SHARES * max(1, hosting.workers or 0))))
        kind: Any = origin
        for agent, indices in lacking.items():
            if origin == REFINE and indices:
                yield TableJob(kind, agent, indices[0], self._asked[agent][1])
                continue
            breaks = np.flatnonzero(np.diff(indices) != 1) + 1
            for run in np.split(np.array(indices, dtype=np.int64), breaks):
                for place in range(0, len(run), size):
                    chunk = run[place : place + size]
                    yield TableJob(kind, agent, int(chunk[0]), int(chunk[-1]) + 1)

    def _same_versions(self) -> None:
        held, here = self._facts["versions"], _versions(self._facts["federation"])
        if changed := sorted(name for name, value in here.items() if held.get(name) != value):
            what = ", ".join(f"{name} {held.get(name)} -> {here[name]}" for name in changed)
            words = f"was started with other versions ({what}); install those, or set another folder with --out"
            raise DirectoryError(f"'{self._plan.folder}': {words}")

    def _carry_out(self, jobs: Sequence[Sequence[TableJob]], hosting: HostingTable) -> None:
        begun, failure, complete = time.monotonic(), None, False
        atomic.make_folder(self._plan.parts)
        discard_drafts(self._plan.parts)
        try:
            on = Cluster(hosting.address, hosting.package, _plugins(self._facts["federation"]))
            pool = task_pool(Tabulator, self._plan, hosting.workers or 0, on, self._plan.parts)
            with pool as results, interrupts() as interrupted:
                have = {agent: [len(self._have.get((agent, of), ())) for of in (DESIGN, REFINE)] for agent in self._asked}
                self._display.start({agent: sum(counts) for agent, counts in have.items()})
                for done in (done for phase in jobs for done in results(phase, interrupted)):
                    self._note(done)
                complete = not interrupted()
        except KeyboardInterrupt:  # for the second time
            raise KeyboardInterrupt(self._plan.folder) from None
        except (OSError, DirectoryError):
            raise
        except Exception as error:
            failure = error
        finally:
            self._display.finish()
        self._facts["seconds"] = round(self._facts["seconds"] + time.monotonic() - begun, 3)
        self._gather("failed" if failure else "complete" if complete else "interrupted")
        if failure is not None:
            folder = self._plan.folder
            raise RunError(f"{type(failure).__name__}: {failure}; {_kept(folder)}", folder) from failure
        if not complete:
            raise KeyboardInterrupt(self._plan.folder)

    def _note(self, done: JobResult) -> None:
        if done.surface is not None:
            self._facts["agents"][str(done.agent)] |= done.surface
        if done.made:
            self._display.on_progress(done)

    def _gather(self, status: str) -> None:
        """Merge all parts into one file and write the facts; only then remove the parts."""
        folder = self._plan.folder
        whole = rows_of(folder)
        write_table(whole, folder / POINTS_FILE)
        self._facts["points_sha256"] = hashlib.sha256((folder / POINTS_FILE).read_bytes()).hexdigest()
        for key, entry in self._facts["agents"].items():
            own = whole.filter(np.equal(whole["agent"].to_numpy(), int(key)))
            entry |= {"evaluated": len(own), "failed": len(own) - own["error"].null_count, "best": _best(own)}
        failed = [error for error in whole["error"].to_pylist() if error is not None]
        self._facts["first_failure"] = failed[0] if failed else None
        self._write(status)
        discard_parts(folder)

    def _write(self, status: str) -> None:
        self._facts |= {"status": status, "written": now()}
        atomic.write_text(self._plan.folder / FACTS, json.dumps(self._facts, indent=2) + "\n")


def _numbers(folder: Path) -> dict[tuple[int, str], set[int]]:
    """Return the numbers of the existing evaluations, by agent and origin."""
    rows = rows_of(folder)
    found: dict[tuple[int, str], set[int]] = {}
    for agent, origin, index in zip(*(rows[name].to_pylist() for name in ("agent", "origin", "index")), strict=True):
        found.setdefault((agent, origin), set()).add(index)
    return found


def _best(own: Any) -> Facts | None:
    """Return the best evaluation of an agent, the first of equals; None if all failed."""
    found = own.filter(own["error"].is_null())
    if not len(found):
        return None
    row: Facts = found.slice(int(np.argmax(found["value"].to_numpy())), 1).to_pylist()[0]
    return {key: row[key] for key in ("value", "origin", "index", "x", "u")}
