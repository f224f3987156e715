"""The background load of a cluster, and workers that follow the queue: against SimPy, Erlang's formula, and by hand.

The statistical test compares by batch means as `test_queueing_theory.py` does: one false alarm in 10,000 seeds, seed 11.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from small_runs import Ran, Setting
from test_queueing_theory import RANDOM, agrees, erlang_c

import fedbo
from fedbo.analysis.finished_run import trusted_cells
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.environment import AgentModels
from fedbo.coordinator.environment.faults import Preemption
from fedbo.coordinator.environment.timing import Constant
from fedbo.settings.errors import SettingError
from fedbo.workers.job_log import read_load
from fedbo.workers.models import ClusterModel, LoadPart, Resources, WorkerClass
from fedbo.workers.use import worker_use


def carried_out(model: ClusterModel, lengths: list[float], evaluations: int = 4, **world: Any) -> Ran:
    """Run agents whose evaluations have constant lengths, one after the other."""
    agents = {number: AgentModels(evaluation=Constant(length)) for number, length in enumerate(lengths)}
    setting = Setting(RANDOM, agents=len(lengths), initial=1, iterations=evaluations - 1, availability=Always())
    return setting.run(world={"cluster": model, "exceptions": agents, **world})


def poisson(count: int, rate: float, seed: int) -> tuple[LoadPart, ...]:
    rng = np.random.default_rng(seed)
    times, lengths = rng.exponential(1 / rate, count).cumsum().tolist(), rng.exponential(1.0, count).tolist()
    return tuple(LoadPart(row, *job, 1.0) for row, job in enumerate(zip(times, lengths, strict=True), 1))


def test_jobs_and_evaluations_begin_when_simpy_serves_them() -> None:
    """Five agents ask again and again, beside 200 jobs that come at random: a resource of SimPy serves both, first come."""
    workers, lengths, load = 3, [0.7, 1.1, 0.9, 1.3, 2.1], poisson(200, 1.5, seed=3)
    environment = simpy.Environment()
    resource, begun, done = simpy.Resource(environment, workers), list[tuple[float, int]](), [0]

    def agent(number: int) -> Any:
        for _ in range(20):
            with resource.request() as turn:
                yield turn
                begun.append((environment.now, number))
                yield environment.timeout(lengths[number])
        done[0] += 1

    def job(part: LoadPart) -> Any:
        yield environment.timeout(part.submit)
        with resource.request() as turn:
            yield turn
            begun.append((environment.now, -part.row))
            yield environment.timeout(part.length)

    for number in range(len(lengths)):
        environment.process(agent(number))
    for part in load:
        environment.process(job(part))
    while done[0] < len(lengths):
        environment.step()
    ran = carried_out(ClusterModel((WorkerClass("all", workers),), load=load), lengths, 20)
    found = [(one.time, -one.job if one.kind == "job_placed" else one.agent)
             for one in ran.records if one.kind in ("placed", "job_placed")]  # fmt: skip
    assert len(found) > 150 and [who for _, who in found] == [who for _, who in begun[: len(found)]]
    assert [time for time, _ in found] == pytest.approx([time for time, _ in begun[: len(found)]])


def test_jobs_alone_wait_as_long_as_erlang_says() -> None:
    """In M/M/4 with rate 2.6 the mean wait is C / (4 - 2.6); one evaluation outlasts all jobs on a worker of its own."""
    load = poisson(4000, 2.6, seed=11)
    classes = (WorkerClass("own", 1, resources=Resources(0.5)), WorkerClass("all", 4))
    model = ClusterModel(classes, needs=(Resources(0.5),), load=load)
    placed = carried_out(model, [1500.0], 2).of("job_placed")
    assert len(placed) == 4000
    assert agrees([one.time - one.queued_at for one in placed], erlang_c(4, 2.6) / (4 - 2.6))


def test_a_preempted_part_keeps_its_length_and_its_place() -> None:
    load = (LoadPart(1, 0.0, 2.0, 1.0), LoadPart(2, 0.5, 1.0, 1.0))
    model = ClusterModel((WorkerClass("all", 1),), load=load)
    ran = carried_out(model, [1.0], 2, plan=(Preemption(at=1.0, duration=1.0),))
    moves = [(one.time, one.kind, one.job) for one in ran.records if (one.kind or "").startswith("job")]
    assert moves == [(0.0, "job_placed", 1), (1.0, "job_left", 1), (2.0, "job_placed", 1), (4.0, "job_left", 1),
                     (5.0, "job_placed", 2), (6.0, "job_left", 2)]  # fmt: skip
    assert [one.lost for one in ran.of("job_left")] == [1.0, None, None]
    assert [row.started for row in ran.rows] == [4.0, 6.0], "the first evaluation came before the second job"


@pytest.mark.parametrize("checkpoint", [None, 0.5])
def test_a_checkpoint_of_the_preemption_saves_the_work_of_a_part(checkpoint: float | None) -> None:
    model = ClusterModel((WorkerClass("all", 1),), load=(LoadPart(1, 0.0, 4.0, 1.0),))
    ran = carried_out(model, [1.0], 1, plan=(Preemption(at=3.0, duration=1.0, checkpoint=checkpoint),))
    assert ran.of("job_left")[-1].time == (8.0 if checkpoint is None else 5.5)


def test_a_class_that_follows_the_queue_starts_late_and_stops_when_idle() -> None:
    """Three evaluations of 4 and one worker that is there: two more come at 1, and stop 2 after their work."""
    classes = (WorkerClass("cloud", 5, least=1, delay=1.0, idle=2.0),)
    ran = carried_out(ClusterModel(classes), [4.0, 4.0, 4.0], 1)
    moves = [(one.time, one.kind, one.worker) for one in ran.records if one.kind in ("workers_joined", "workers_left")]
    assert sorted(row.started for row in ran.rows) == [0.0, 1.0, 1.0]
    assert moves == [(1.0, "workers_joined", 1), (1.0, "workers_joined", 2)]
    ran = carried_out(ClusterModel(classes), [4.0, 4.0, 11.0], 1)
    moves = [(one.time, one.worker) for one in ran.of("workers_left")]
    assert moves == [(6.0, 0), (7.0, 1)], "idle since 4 and 5; the third is busy until 12"


def test_no_worker_starts_for_what_does_not_fit_on_it_or_would_come_too_late() -> None:
    small = WorkerClass("small", 3, resources=Resources(0.5), least=0)
    late = WorkerClass("late", 3, least=0, delay=3.0, leaves=3.0)
    ran = carried_out(ClusterModel((WorkerClass("own", 1), small, late)), [1.0] * 4, 2)
    assert [one.kind for one in ran.of("workers_joined")] == [] and {one.worker for one in ran.of("placed")} == {0}


SWF = """; a comment
1 0 10 60 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1
2 30 0 -1 -1 -1 -1 4 -1 -1 5 1 1 -1 -1 -1 -1 -1
3 60 90 120 -1 -1 -1 3 -1 -1 1 1 1 -1 -1 -1 -1 -1
"""


def test_a_log_in_the_standard_format_is_cut_into_parts_and_begins_where_it_should(tmp_path: Path) -> None:
    path = tmp_path / "jobs.swf"
    path.write_text(SWF)
    assert read_load(path, 60.0, 0.0, 2.0) == (
        LoadPart(1, 0.0, 1.0, 2.0), LoadPart(3, 1.0, 2.0, 2.0), LoadPart(3, 1.0, 2.0, 1.0))  # fmt: skip
    running = read_load(path, 1.0, 40.0, 4.0)
    assert running == (LoadPart(1, 0.0, 30.0, 2.0), LoadPart(3, 20.0, 120.0, 3.0))
    waiting = read_load(path, 1.0, 65.0, 4.0)
    assert waiting == (LoadPart(1, 0.0, 5.0, 2.0), LoadPart(3, 0.0, 120.0, 3.0))
    table = tmp_path / "jobs.csv"
    table.write_text("submit,start,end,cores\n0,10,70,2\n60,150,270,3\n")
    assert [part._replace(row=0) for part in read_load(table, 60.0, 0.0, 2.0)] == [
        part._replace(row=0) for part in read_load(path, 60.0, 0.0, 2.0)
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,1,0.5,1", "has submit = 0, start = 1, end = 0.5, cores = 1 in row 2; give submit <= start <= end"),
        ("2,1,3,1", "in row 2; give submit <= start <= end, and cores above 0"),
        ("0,1,3,0", "in row 2; give submit <= start <= end, and cores above 0"),
    ],
)
def test_a_log_with_impossible_times_is_refused(rows: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"submit,start,end,cores\n0,1,2,1\n{rows}\n")
    with pytest.raises(SettingError, match=words):
        read_load(path, 1.0, 0.0, 4.0)
    with pytest.raises(SettingError, match="has no job that ran after the time 100; use another file"):
        path.write_text("submit,start,end,cores\n0,1,2,1\n")
        read_load(path, 1.0, 100.0, 4.0)


def study(folder: Path, **cluster: Any) -> dict[str, Any]:
    (folder / "jobs.csv").write_text("submit,start,end,cores\n0,0,3,1\n1,1,4,2\n2,2,2.5,1\n")
    return {
        "study": {"name": "loaded"},
        "objective": {"name": "quadratic", "agents": 3},
        "budget": {"iterations": 4},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
        "cluster": {"background": {"file": str(folder / "jobs.csv")}, **cluster},
    }


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"background": {"file": "gone.csv"}, "workers": 2}, r"\[cluster\] background.file = .*: does not exist"),
        ({"workers": 2, "background": {"file": "jobs.csv", "unit": 0.0}}, "background.unit = 0"),
        ({"worker": [{"name": "a", "cpus": 0.0}]}, "needs CPUs, and no worker has any"),
        ({"worker": [{"name": "a", "delay": 1.0}]}, "delay = 1.0: has no effect without least"),
        ({"worker": [{"name": "a", "idle": 1.0}]}, "idle = 1.0: has no effect without least"),
        ({"worker": [{"name": "a", "least": 2}]}, "least = 2: must be at most count = 1"),
    ],
)
def test_a_wrong_cluster_is_one_line(cluster: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(fedbo.errors.StudyError, match=words):
        fedbo.load_study(study(tmp_path, **cluster) | {"evaluation": {"resources": [{"CPU": 0.0}]}})


def test_the_log_counts_in_the_hash_of_a_study_and_its_jobs_in_the_use_of_workers(tmp_path: Path) -> None:
    workers = [{"name": "own", "count": 1}, {"name": "cloud", "count": 3, "least": 0, "delay": 0.2, "idle": 0.5}]
    digest = fedbo.load_study(study(tmp_path, worker=workers)).digest()
    result = fedbo.run(study(tmp_path, worker=workers), out=tmp_path / "run")
    (tmp_path / "jobs.csv").write_text("submit,start,end,cores\n0,0,3,1\n")
    assert fedbo.load_study(str(tmp_path / "run" / "study.toml")).digest() != digest
    (use,) = worker_use(result.events, trusted_cells(result))
    rows = result.events.to_pylist()
    end = max(row["time"] for row in rows)
    busy = sum(row["time"] * (-1 if "placed" in row["kind"] else 1) * (row["cpus"] or 1.0)
               for row in rows if row["kind"] in ("placed", "released", "job_placed", "job_left"))  # fmt: skip
    open_ = sum((row["cpus"] or 1.0) * (1 if "placed" in row["kind"] else -1)
                for row in rows if row["kind"] in ("placed", "released", "job_placed", "job_left"))  # fmt: skip
    assert use.utilisation == pytest.approx((busy + open_ * end) / (4 * end))
    (tmp_path / "jobs.csv").unlink()
    assert fedbo.Result.open(tmp_path / "run").plot(kind="timeline") is not None, "a run does not need its log"
