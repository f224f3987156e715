"""What a run evaluated before, from its table, for one that makes the same evaluations again: they are looked up."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.actors.task import Task
from fedbo.coordinator.runtime.actor import Run


def recall_evaluations(observations: pa.Table, run: Run) -> None:
    """Let a run that has not begun find the evaluations in a table of observations; what it does not find it makes again."""
    home = RunFolder.of(run.folder, run.key)
    if (home.path / "latest.json").exists() or not _are_numbered(run.task, run.environment.cluster is not None):
        return
    found = _records(observations, run)
    home = home.claim()
    SnapshotStore(home).discard_later()  # which says that what is there is no damage
    log = EvaluationLog(home, range(run.task.problem.n_agents), None)
    log.append(found)
    log.close()


def _are_numbered(task: Task, queue: bool) -> bool:
    """Say whether the rows of an agent are its evaluations in the order of their numbers, with values as its objective gave."""
    policy = task.policy
    return not (task.noise or task.problem.pulls or policy.retries or policy.most_pending > 1 or queue)


def _records(observations: pa.Table, run: Run) -> list[EvaluationRecord]:
    mine = pc.and_(pc.equal(observations["cell"], run.key.cell), pc.equal(observations["algorithm"], run.key.algorithm))
    mine = pc.and_(mine, pc.equal(observations["replicate"], run.key.replicate))
    columns = observations.filter(mine).select(["agent", "x", "value", "score", "error", "pulls"]).to_pydict()
    counts, found = dict[int, int](), list[EvaluationRecord]()
    for agent, x, value, score, error, pulls in zip(*columns.values(), strict=True):
        number = counts[agent] = counts.get(agent, -1) + 1
        if error is None:
            found.append(EvaluationRecord(agent, number, x, value, score, 0.0, 0.0, None, pulls, None))
    return found
