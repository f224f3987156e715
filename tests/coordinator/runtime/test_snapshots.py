"""Snapshots: what is in one, when it counts, and that no process which is taken for dead can spoil another's."""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from small_runs import ALL_MODES, Setting, fts
from talking import Talk

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage import atomic
from fedbo.actors.storage.checkpoint import read_checkpoint
from fedbo.actors.storage.evaluation_log import EvaluationLog, read_log
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder, Superseded
from fedbo.actors.storage.sealed import DamagedError, sha256_of
from fedbo.actors.storage.snapshot_store import SnapshotIndex, SnapshotStore
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.faults import Crash, Duplication, Loss
from fedbo.coordinator.kernel.engine import RecordedEvent
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Barrier
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.coordinator.runtime.event_log import EventLog, read_moments
from fedbo.coordinator.runtime.snapshots import PARTS, Snapshotter
from fedbo.coordinator.selection import Selection
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.python_function import PythonFunction
from fedbo.privacy.noise import secret_key
from fedbo.settings.trust import admit

admit(["sleeping:sulky"])

KEY = RunKey(0, "FTS", 0)
PLAN = (Crash((0, 1, 2, 3, 4), rate=0.1, state="lost", restart=0.5), Loss((0, 1, 2, 3, 4)), Duplication((0, 1, 2, 3, 4)))


def run_of(setting: Setting, folder: Path, events: int | None = None) -> Run:
    core = setting.core()
    task = replace(setting.task(), checkpoint=3)
    return Run(KEY, task, setting.exchange, core.environment, folder, seconds=1e9, events=events)


def parts(folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Read what a run has written, table by table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = RunFolder.of(folder, KEY)
    found = []
    for kind in ("observations", "events"):
        tables = [pq.read_table(path) for path in SnapshotStore(home).tables(kind)]
        table = pa.concat_tables(tables)
        order = [name for name in ("agent", "sequence", "step") if name in table.column_names]
        found.append((kind, sorted(table.to_pylist(), key=lambda row: [row[name] for name in order])))
    return found


# Every second mode with the algorithms in turn; the other pairs are left to the long tests.
PAIRS = [
    pytest.param(algorithm, mode, marks=[] if number % 4 == 2 * place else pytest.mark.long)
    for number, mode in enumerate(ALL_MODES)
    for place, algorithm in enumerate((fts(), Talk(queries=None)))
]


@pytest.mark.parametrize(("algorithm", "exchange"), PAIRS, ids=lambda one: getattr(one, "mode", type(one).__name__))
def test_a_run_that_goes_on_from_any_snapshot_writes_the_same(algorithm: Any, exchange: Any, tmp_path: Path) -> None:
    setting = Setting(algorithm, exchange=exchange, iterations=5, models={"leaving": "lost"}, world={"plan": PLAN})
    Coordinator().run(run_of(setting, tmp_path / "alone"))
    expected = repr(parts(tmp_path / "alone"))
    stepwise = run_of(setting, tmp_path / "stepwise", events=7)
    for steps in (1, 1, 8):
        cut_off(stepwise, tmp_path, steps)
    Coordinator().run(stepwise)
    assert repr(parts(tmp_path / "stepwise")) == expected


def cut_off(run: Run, folder: Path, steps: int = 1) -> None:
    """Run until a snapshot is made, and some steps more, and stop between two events as a kill would."""
    home, snapshots = RunFolder.of(run.folder, run.key), itertools.count()

    class Killed(KeyboardInterrupt):
        pass

    class Dying(Coordinator):
        def _note_progress(self, run: Any, core: Any, hosts: Any) -> None:
            if SnapshotStore(home).latest().number and next(snapshots) >= steps:
                raise Killed

    from fedbo.coordinator.kernel import engine

    before = engine.PROGRESS_INTERVAL, engine.PROGRESS_REST
    engine.PROGRESS_INTERVAL, engine.PROGRESS_REST = -1.0, 0.0
    try:
        Dying().run(run)
    except Killed:
        pass
    finally:
        engine.PROGRESS_INTERVAL, engine.PROGRESS_REST = before


def test_the_last_two_snapshots_share_no_file_unless_agents_are_many(tmp_path: Path) -> None:
    """So that one of them is whole whatever file is damaged."""
    stepwise = run_of(Setting(fts(), agents=3, iterations=12), tmp_path / "stepwise", events=6)
    cut_off(stepwise, tmp_path, 12)
    store = SnapshotStore(RunFolder.of(tmp_path / "stepwise", KEY))
    before, own = store.previous(), {name for name in store.latest().files if name.endswith(PARTS)}
    assert before is not None and before.number > 1 and own and not own & before.files.keys()


def test_a_snapshot_of_many_has_the_agents_alone_that_changed_and_the_files_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 30 agents work in a round: what nine snapshots of ten write does not grow with the agents that have worked."""
    monkeypatch.setattr("fedbo.coordinator.runtime.snapshots._MANY", 0)
    exchange = Barrier(selection=Selection("fraction", 0.07, others="idle"))
    setting = Setting(fts(), agents=30, iterations=40, initial=1, exchange=exchange, availability=Always())
    Coordinator().run(run_of(setting, tmp_path / "alone"))
    stepwise, agents = run_of(setting, tmp_path / "stepwise", events=6), list[list[int]]()
    for steps in (1, 4, 12):
        cut_off(stepwise, tmp_path, steps)
    home = RunFolder.of(tmp_path / "stepwise", KEY)
    for path in SnapshotStore(home).latest().parts(home.path, ".agents"):
        agents.append(sorted(read_checkpoint(path)))
    assert len(agents) > 1 and max(map(len, agents[1:])) <= 4 and len({*sum(agents, [])}) > 4
    Coordinator().run(stepwise)
    assert repr(parts(tmp_path / "stepwise")) == repr(parts(tmp_path / "alone"))


def test_a_step_whose_evaluations_are_tried_again_survives_a_snapshot(tmp_path: Path) -> None:
    """Its report waits for the retries to take their time; the rows are the agent's, and must be there when it counts."""
    setting = Setting(fts(), agents=2, iterations=4, policy=Policy(retries=2))
    task = replace(
        setting.task(), federation=PythonFunction(function="sleeping:sulky", agents=2, low=(0.0,) * 2, high=(1.0,) * 2)
    )
    made = [replace(run_of(setting, tmp_path / name, events=1), task=task) for name in ("alone", "stepwise")]
    Coordinator().run(made[0])
    for _ in range(10):
        cut_off(made[1], tmp_path)
    Coordinator().run(made[1])
    assert repr(parts(tmp_path / "stepwise")) == repr(parts(tmp_path / "alone"))
    rows = dict(parts(tmp_path / "alone"))["observations"]
    assert any(row["error"] for row in rows)


def test_a_process_taken_for_dead_can_not_make_its_snapshot_the_last_one(tmp_path: Path) -> None:
    old = RunFolder.of(tmp_path, KEY).claim()
    SnapshotStore(old).commit(SnapshotIndex(1, old.attempt))
    new = RunFolder.of(tmp_path, KEY).claim()
    with pytest.raises(Superseded, match="attempt 2 continues this run; this is attempt 1"):
        SnapshotStore(old).commit(SnapshotIndex(2, old.attempt))
    with pytest.raises(Superseded, match="attempt 2"):
        SnapshotStore(old).discard_later()
    assert SnapshotStore(new).discard_later() == SnapshotIndex(1, 1)
    SnapshotStore(new).commit(SnapshotIndex(2, new.attempt))
    assert SnapshotStore(new).latest() == SnapshotIndex(2, 2)


def test_what_two_attempts_write_has_different_names(tmp_path: Path) -> None:
    one, other = (RunFolder.of(tmp_path, KEY).claim() for _ in range(2))
    for name in ("core", "moments"):
        assert getattr(one, name)(3) != getattr(other, name)(3)
    assert one.table("events", 3) != other.table("events", 3)
    assert one.agents(3, 0) != other.agents(3, 0)
    assert [one.checkpoint(4, 9), other.checkpoint(4, 0)] == sorted([other.checkpoint(4, 0), one.checkpoint(4, 9)])


def test_of_the_checkpoints_of_an_agent_the_newest_process_has_the_last_word(tmp_path: Path) -> None:
    one, other = (RunFolder.of(tmp_path, KEY).claim() for _ in range(2))
    for path in (other.checkpoint(4, 0), other.checkpoint(4, 1), one.checkpoint(4, 7), one.checkpoint(40, 9)):
        path.touch()
    assert other.checkpoints(4)[-1] == other.checkpoint(4, 1)


def test_going_on_removes_what_was_written_after_the_last_snapshot(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    kept = [home.core(2), home.agents(2, 0), home.table("events", 2)]
    late = [home.core(3), home.agents(1, 0), home.table("events", 3), home.path / ".x.parquet.7.part"]
    for path in kept + late:
        path.touch()
    SnapshotStore(home).commit(SnapshotIndex(2, home.attempt, {home.table("events", 2).name: ""}))
    SnapshotStore(RunFolder.of(tmp_path, KEY).claim()).discard_later()
    assert sorted(path.name for path in home.path.iterdir()) == sorted(
        [path.name for path in kept] + ["attempt", "latest.json"]
    )


def test_rows_for_whoever_looks_now_do_not_outlive_their_snapshot(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    passing = home.table("provisional", 2)
    passing.touch()
    SnapshotStore(home).commit(SnapshotIndex(2, home.attempt))
    assert SnapshotStore(home).tables("observations") == [passing]
    SnapshotStore(home).commit(SnapshotIndex(3, home.attempt))
    assert SnapshotStore(home).tables("observations") == []


def test_a_run_of_an_ended_run_gives_what_it_gave_and_changes_no_file(tmp_path: Path) -> None:
    run = run_of(Setting(fts()), tmp_path)
    ended = Coordinator().run(run)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert Coordinator().run(run) == ended
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_of_an_ended_run_only_tables_and_its_result_are_kept(tmp_path: Path) -> None:
    Coordinator().run(run_of(Setting(fts()), tmp_path, events=20))
    left = {path.name.partition("-")[0] for path in RunFolder.of(tmp_path, KEY).path.iterdir()}
    assert left == {"attempt", "ended", "latest.json", "events", "observations"}


def test_logs_of_evaluations_go_with_the_snapshots_that_hold_them(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    files = [home.log(since) for since in (0, 1, 2, 3, None)]
    for path in files:
        path.touch()
    SnapshotStore(home).commit(SnapshotIndex(3, home.attempt))
    assert [path.exists() for path in files] == [False, False, True, True, True]


def test_a_line_that_was_being_written_when_its_writer_was_killed_is_passed_over(tmp_path: Path) -> None:
    import numpy as np

    home = RunFolder.of(tmp_path, KEY).claim()
    x, log = np.array([0.5]), EvaluationLog(home, {1, 2}, None)
    for agent in (1, 2):
        log.append([Query(agent, 0, 0, x).evaluated(Outcome(2.0, float("nan")))])
    log.close()
    (path,) = home.path.glob("log-*")
    for cut in range(1, 12):
        os.truncate(path, path.stat().st_size - 1)
        again = EvaluationLog(home, {1, 2}, None)
        found = again.find(Query(1, 0, 0, x))
        assert found is not None and found.outcome.value == 2.0 and np.isnan(found.outcome.score), cut
        assert again.find(Query(2, 0, 0, x)) is None
        assert again.find(Query(1, 0, 0, np.array([0.4]))) is None, "it was at another point"


def test_lines_of_virtual_time_are_written_together_and_before_another_process_is_told(
    tmp_path: Path,
) -> None:
    import numpy as np

    home = RunFolder.of(tmp_path, KEY).claim()
    x, log = np.array([0.5]), EvaluationLog(home, {1}, 0)
    records = [Query(1, number, 0, x).evaluated(Outcome(2.0 + number, 1 / 3)) for number in range(5)]
    log.append(records[:1])
    log.append(records[1:2])
    assert not list(home.path.glob("log-*"))
    log.flush()
    (first,) = home.path.glob("log-*")
    assert read_log(first, 0)[0] == records[:2]
    log.append(records[2:3])
    log.begin(1)
    assert read_log(first, 0)[0] == records[:3]
    log.append(records[3:4])
    time.sleep(0.2)
    log.append(records[4:])
    (second,) = {*home.path.glob("log-*")} - {first}
    assert read_log(second, 0)[0] == records[3:], "nothing waits for longer than a tenth of a second"
    log.close()


@pytest.mark.parametrize("score", [0.1, 1e300, -0.0, 5e-324, float("nan"), float("inf")])
@pytest.mark.parametrize("error", [None, 'no "x"'])
@pytest.mark.parametrize("metrics", [{}, {"loss": 1.0}])
def test_a_line_of_a_log_is_the_json_of_its_record(
    score: float, error: str | None, metrics: dict[str, float], tmp_path: Path
) -> None:
    import numpy as np

    home = RunFolder.of(tmp_path, KEY).claim()
    outcome, x = Outcome(1 / 3, score, metrics, ((1.0, 0.5),) if metrics else ()), [0.1, -1e-7, 12.0]
    record = replace(Query(1, 3, 0, np.array(x)).evaluated(outcome), error=error)
    log = EvaluationLog(home, {1}, 0)
    log.append([record])
    log.close()
    (path,) = home.path.glob("log-*")
    written = json.dumps({"loss": 1.0, "reports": [[1.0, 0.5]]}) if metrics else None
    columns = [1, 3, x, 1 / 3, score, 0.0, 0.0, error, 1, written, None, None, None]
    assert path.read_text().partition("\t")[0] == json.dumps(columns)
    ((found,), _) = read_log(path, 0)
    assert found == record or np.isnan(score)


def test_what_happened_is_read_up_to_where_its_writer_was_killed(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    journal = EventLog(home)
    journal.note_from(1)
    moments = [RecordedEvent(float(number), number) for number in range(5)]
    for moment in moments:
        journal.record(moment)
    path = home.moments(1)
    size = path.stat().st_size
    for cut in range(1, 60):
        os.truncate(path, size - cut)
        found = [moment for moment, _ in read_moments(path)]
        assert found == moments[: len(found)] and len(found) < 5
    assert list(read_moments(tmp_path / "none")) == []
    for number in (1, 2):  # the record goes on where its last part ended
        assert set(journal.write(number)) == {home.table("record", number).name}
        rows = pq.read_table(home.table("record", number)).to_pylist()
        assert [(row["sequence"], row["time"], row["number"]) for row in rows] == [
            (place, *moments[place % 5][:2]) for place in range(5 * number - 5, 5 * number)
        ]
        for moment in moments:
            journal.record(moment)


def test_what_does_not_fit_on_the_disk_is_not_written_in_part(tmp_path: Path) -> None:
    import resource

    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"x" * 100)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                atomic.append(file.fileno(), b"y" * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "file").read_bytes() == b"x" * 100


def test_a_snapshot_is_made_after_so_many_events_and_says_what_was_written_by_then(tmp_path: Path) -> None:
    run = run_of(Setting(fts()), tmp_path, events=10)
    cut_off(run, tmp_path)
    latest = SnapshotStore(RunFolder.of(tmp_path, KEY)).latest()
    assert latest.number >= 1 and not latest.ended
    assert all((RunFolder.of(tmp_path, KEY).path / name).exists() for name in latest.tables)
    keeper = Snapshotter(RunFolder.of(tmp_path, KEY), 60.0, None)
    snapshot = keeper.load_latest()
    assert snapshot is not None and snapshot.queue.events == 10 * latest.number
    assert snapshot.state.progress.events == snapshot.queue.events
    agenda = EventQueue()
    agenda.become(snapshot.queue)
    assert agenda == replace(snapshot.queue, stopped=False)


class Counting(Snapshotter):
    """A snapshotter that notes when a snapshot is due, and makes none."""

    def start(self, run: Any) -> None:
        self.begun_at.append(self._events)


@pytest.mark.parametrize(("rest", "begun_at"), [(0.0, [1_000_000, 2_000_000, 9_000_000]), (1e9, [9_000_000])])
def test_what_costs_much_waits_for_eight_times_as_many_events(tmp_path: Path, rest: float, begun_at: list[int]) -> None:
    keeper: Any = Counting(RunFolder.of(tmp_path, KEY), 1e9, None)
    keeper.begun_at, keeper._rest = [], rest
    for events in (999_999, 1_000_000, 1_500_000, 2_000_000, 2_999_999, 9_000_000, 9_000_001):
        keeper.tick(events, None)
    assert keeper.begun_at == begun_at


def test_the_file_that_says_which_snapshot_counts_is_small_and_readable(tmp_path: Path) -> None:
    Coordinator().run(run_of(Setting(fts()), tmp_path))
    found = json.loads((RunFolder.of(tmp_path, KEY).path / "latest.json").read_text())
    assert found["ended"] is True and found["attempt"] == 1 and len(found["tables"]) == 2


@pytest.mark.parametrize("contents", [b"", b"garbled!", b"00000000"])
def test_an_attempt_whose_number_is_damaged_takes_no_name_of_an_earlier_one(contents: bytes, tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim().claim()
    home.core(1).touch()
    (home.path / "attempt").write_bytes(contents)
    assert RunFolder.of(tmp_path, KEY).claim().attempt == home.attempt + 1


def test_of_what_happened_no_flipped_byte_passes_unseen(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    journal = EventLog(home)
    journal.note_from(1)
    moments = [RecordedEvent(float(number), number) for number in range(3)]
    for moment in moments:
        journal.record(moment)
    path = home.moments(1)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(DamagedError, match="is damaged \\(at byte "):
            list(read_moments(path))


def test_a_line_of_a_log_that_is_damaged_counts_for_nothing_and_stops_a_run_in_real_time(tmp_path: Path) -> None:
    import numpy as np

    home = RunFolder.of(tmp_path, KEY).claim()
    x, log = np.array([0.5]), EvaluationLog(home, {1}, 0)
    for number in range(3):
        log.append([Query(1, number, 0, x).evaluated(Outcome(2.0 + number, float("nan")))])
    log.close()
    (path,) = home.path.glob("log-*")
    whole, expected = path.read_bytes(), read_log(path, 0)[0]
    assert [record.outcome.value for record in expected] == [2.0, 3.0, 4.0]
    for place in range(len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert {repr(line) for line in read_log(path, 0)[0]} < {repr(line) for line in expected}
        with pytest.raises(DamagedError, match="is damaged \\(line "):
            read_log(path, 0, real=True)


def test_in_real_time_what_happened_since_the_snapshot_before_is_kept_with_what_came_after(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    made: list[SnapshotIndex] = [SnapshotIndex()]
    for number in (1, 2, 3):
        for path in (home.core(number), home.moments(number)):
            path.write_bytes(b"x")
        files = {home.core(number).name: sha256_of(home.core(number)), home.moments(number).name: ""}
        made.append(SnapshotIndex(number, home.attempt, {}, False, files))
        SnapshotStore(home).commit(made[-1], made[-2])
    home.core(3).write_bytes(b"y")
    latest, damage = SnapshotStore(home).last_whole()
    assert latest == made[2] and damage is not None and damage.path == home.core(3)
    assert SnapshotStore(home).moments_since(latest) == [home.moments(2), home.moments(3)]
    SnapshotStore(home).fall_back(latest, damage, tmp_path / "aside")
    assert SnapshotStore(home.claim()).discard_later() == made[2]
    assert SnapshotStore(home).moments_since(latest) == [home.moments(2), home.moments(3)]
    home.moments(2).unlink()
    with pytest.raises(DamagedError, match="000002-0001.moments': is damaged .it is missing.; repeat this run: mv "):
        SnapshotStore(home).last_whole()


def test_a_secret_key_that_is_damaged_is_never_replaced_by_another(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    key = secret_key(home.key_file)
    assert secret_key(home.key_file) == key and home.key_file.stat().st_mode & 0o777 == 0o600
    SnapshotStore(home).commit(SnapshotIndex(1, 1, {}, False, {home.key_file.name: sha256_of(home.key_file)}), SnapshotIndex())
    home.key_file.unlink()
    with pytest.raises(DamagedError, match="noise.key"):
        SnapshotStore(home).last_whole()
    home.key_file.write_bytes(b"short")
    with pytest.raises(DamagedError, match="has 5 bytes, not 32"):
        secret_key(home.key_file)
