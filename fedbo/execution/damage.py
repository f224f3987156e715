"""The check of a run's files before it is resumed, and the fall-back to an earlier snapshot."""

from __future__ import annotations

from pathlib import Path

from fedbo.actors.storage.checkpoint import CheckpointError, read_checkpoint
from fedbo.actors.storage.evaluation_log import read_log
from fedbo.actors.storage.history_files import check_history
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.storage.snapshot_store import SnapshotIndex, SnapshotStore
from fedbo.coordinator.runtime.snapshots import agents_heard
from fedbo.execution.jobs import runs
from fedbo.study.study import Study


def fall_back(study: Study, directory: Path) -> list[str]:
    """Return every run of a study to its last undamaged snapshot, and return a note for each run that lost a later one.

    Damaged files are moved to `damaged/`. In virtual time no result depends on the snapshot from which a run
    resumes; in real time the later events are logged. Raises DamagedError, with the remedy and before any change, where
    a damaged file has no substitute.
    """
    parts = directory / "parts"
    for path in sorted((parts / "histories").glob("*/*.parquet")):
        if path.with_suffix(".sha256").exists():  # else it is learned again
            check_history(path)
    found = [
        (folder, *SnapshotStore(folder).last_whole()) for folder in (RunFolder.of(parts, run.key) for run in runs(study, parts))
    ]
    for folder, latest, _ in found:
        if study.timing.clock == "wall" and study.hosting.kind != "sites" and not latest.ended:
            _check_agents(folder, latest)
    notes = []
    for folder, latest, damage in found:
        if damage is not None:
            aside = directory / "damaged" / folder.path.name
            SnapshotStore(folder).fall_back(latest, damage, aside)
            where = f"the previous snapshot, {latest.number}" if latest.number else "the start"
            kept = f"; the damaged files are kept in '{aside}'" if (aside / damage.path.name).exists() else ""
            notes.append(f"'{damage.path}': is damaged ({damage.why}); its run continues from {where}{kept}")
    return notes


def _check_agents(folder: RunFolder, latest: SnapshotIndex) -> None:
    """Check the agents' own checkpoints and logs of a run in real time; raise DamagedError where one is not intact."""
    place = folder.path
    try:
        for place in sorted(folder.path.glob("log-*.jsonl")):
            read_log(place, 0, real=True)
        heard = agents_heard(folder, latest)
        for agent in sorted(heard):
            kept = folder.checkpoints(agent)
            place = kept[-1] if kept else folder.checkpoint(agent, 0)
            if not kept:
                raise DamagedError(place, f"agent {agent} has reported, but has no checkpoint")
            read_checkpoint(place)
    except CheckpointError as error:
        raise DamagedError(place, str(error).removeprefix(f"{place}: ").partition(";")[0], folder.remedy) from None
    except DamagedError as error:
        raise DamagedError(error.path, error.why, folder.remedy) from None
