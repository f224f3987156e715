"""Runs that earlier versions of the tables began: they are read, verified, resumed, extended and forked.

`earlier/` has two runs of one study in format 2, whose events had their facts in one text: one that had ended, and one that was
killed after its first snapshots. Their last digits are those of one kind of processor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy._core._multiarray_umath import __cpu_features__
from packed import packed

import fedbo
from fedbo.actors.storage.rows import OBSERVATIONS, read_table, write_table
from fedbo.actors.storage.sealed import FORMAT, DamagedError
from fedbo.actors.threads import kernels
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import EVENTS
from fedbo.coordinator.logged.earlier import converted, read_events
from fedbo.coordinator.logged.kinds import KINDS, EventLine, Kind
from fedbo.coordinator.logged.messages import REASONS, LossReason, MissReason, RefusalReason
from fedbo.coordinator.logged.table import LoggedEvent, columns_of, declared
from fedbo.execution.directory import versions
from fedbo.execution.replay import replay
from fedbo.execution.runner import resume_study
from fedbo.study.study import load_study
from fedbo.testing.invariants import violations
from fedbo.testing.studies import draw_study

EARLIER = Path(__file__).parent / "earlier"
Run = Callable[[str], Path]
KERNELS = "SkylakeX"  # of linear algebra, where these runs were made
same_digits = pytest.mark.skipif(kernels() != KERNELS, reason="tested in a process with the kernels of the runs")


@pytest.mark.skipif(kernels() == KERNELS, reason="tested in this process")
@pytest.mark.skipif(not __cpu_features__.get("AVX512F"), reason="this processor lacks the instructions of these kernels")
def test_earlier_runs_have_the_same_bits_with_the_kernels_that_they_were_made_with() -> None:
    surroundings = os.environ | {"OPENBLAS_CORETYPE": KERNELS}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "is_verified or to_the_same_tables",
        __file__,
    ]
    ended = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert "3 passed" in ended.stdout and not ended.returncode, ended.stdout


@pytest.mark.skipif(kernels() == KERNELS, reason="nothing differs here")
def test_other_kernels_are_given_as_the_reason_why_digits_differ(run: Run) -> None:
    directory = run("ended")
    write_manifest(directory, {**read_manifest(directory), "kernels": KERNELS})
    words = f"the run was started on another kind of processor (kernels {KERNELS}, here {kernels()}), so last digits may differ"
    assert words in str(replay(directory, verify=True).difference)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Copy an earlier run, with the versions of the libraries that are here: they must be the same where a run is resumed."""

    def copied(name: str) -> Path:
        directory = tmp_path / name
        shutil.copytree(EARLIER / name, directory)
        for folder in (directory, directory / "parts"):
            if (folder / "manifest.json").exists():
                write_manifest(folder, {**read_manifest(folder), "versions": versions()})
        return directory

    return copied


def test_the_events_of_an_earlier_run_have_the_columns_of_today(run: Run) -> None:
    result = Result.open(run("ended"))
    before = pq.read_table(EARLIER / "ended" / "events.parquet")
    assert "detail" in before.column_names and result.events.schema.equals(EVENTS) and len(result.events) == len(before) > 100
    assert packed(result.events).to_pylist() == before.to_pylist()
    (row,) = result.trouble()
    assert row.duplicates and row.lost_to and row.lies and row.staleness and row.crashes
    assert violations(result.study, result.directory) == []


@same_digits
def test_an_earlier_run_is_verified(run: Run) -> None:
    assert replay(run("ended"), verify=True).difference is None


@same_digits
def test_a_run_without_a_column_that_was_added_since_is_verified(run: Run) -> None:
    directory = run("ended")
    path = directory / "observations.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["note"]), path)
    assert replay(directory, verify=True).difference is None
    pq.write_table(pq.read_table(path).drop_columns(["value"]).slice(1), path)
    assert "observations differ first in row 0" in str(replay(directory, verify=True).difference)


@same_digits
def test_an_earlier_run_that_was_killed_is_resumed_to_the_same_tables(run: Run) -> None:
    directory, ended = run("interrupted"), Result.open(run("ended"))
    parts = list((directory / "parts").glob("*/events-*.parquet"))
    assert parts and all("detail" in pq.read_schema(path).names for path in parts)
    resumed = resume_study(directory)
    assert resumed.events.equals(ended.events)
    recorded = pq.read_table(EARLIER / "ended" / "observations.parquet").column_names  # a later column is null in one of them
    now, then = (result.observations.select(recorded).to_pylist() for result in (resumed, ended))
    assert repr(now) == repr(then)  # a NaN is equal to none


def test_an_earlier_run_is_extended(run: Run) -> None:
    before = Result.open(EARLIER / "ended").events
    longer = resume_study(run("ended"), ["budget.iterations=6"])
    assert longer.events.schema.equals(EVENTS) and len(longer.events) > len(before)
    early = [row for row in before.to_pylist() if row["kind"] != "done"][:40]
    assert [row for row in longer.events.to_pylist() if row["kind"] != "done"][:40] == early
    assert violations(longer.study, longer.directory) == []


def test_an_earlier_run_is_forked(run: Run, tmp_path: Path) -> None:
    directory = run("ended")
    before = Result.open(directory).events.to_pylist()
    fork = fedbo.fork(directory, 5.0, overrides=["exchange.length=3.0"], out=tmp_path / "fork")
    (branch,) = fork.branches
    assert [row for row in branch.events.to_pylist() if row["time"] < 5.0] == [row for row in before if row["time"] < 5.0]
    assert fork.original.events.to_pylist() == before


@pytest.mark.parametrize("studies", [14, pytest.param(150, marks=pytest.mark.long)])
def test_every_fact_of_the_packed_events_of_random_studies_is_in_a_column(studies: int, tmp_path: Path) -> None:
    kinds = set[str]()
    for seed in range(120, 120 + studies):
        document, _ = draw_study(seed)
        try:
            events = fedbo.run(load_study(document), out=tmp_path / str(seed)).events
        except fedbo.RunError:  # as some are meant to end
            events = read_events(tmp_path / str(seed) / "events.parquet")
        before = packed(events)
        after = converted(before)
        assert packed(after).equals(before)
        exact = [name for name in EVENTS.names if name != "factor"]  # it was told with six digits
        assert after.select(exact).equals(events.select(exact)), seed
        kinds |= set(events["kind"].to_pylist())
    assert len(kinds) > 20, kinds


def test_every_kind_of_event_is_converted_from_its_packed_form() -> None:
    lines = [_example(record) for record in KINDS.values()]
    events = declared(
        {**columns_of(lines), "cell": _all(0), "algorithm": _all("A"), "replicate": _all(0), "sequence": _all(7)}, len(KINDS)
    )
    assert events["kind"].to_pylist() == list(KINDS) and converted(packed(events)).equals(events)


def _all(value: Any) -> pa.Array:
    return pa.array([value] * len(KINDS), pa.string() if isinstance(value, str) else None)


_CHOSEN: dict[str, Any] = {
    **{"time": 1.5, "agent": 3, "factor": 2.5, "queued_at": 0.25, "worker_class": "spot", "verdict": "pause", "fault": 2},
    **{"again": True, "permanent": False, "state": "lost", "lies": ("inverted", "copy"), "direction": "up", "reason": "stale"},
    **dict.fromkeys(("answer", "claimed_agent", "message", "attempts")),
}
_OF_KIND: dict[str, dict[str, Any]] = {
    "failed": {"message": "agent 3 at x = [0.1]: ValueError: no"},
    "lost": {"reason": "fault"},
    "missed": {"answer": 8, "reason": "agent_ended"},
    "delivered": {"answer": 8},
}


def _example(record: type[EventLine]) -> EventLine:
    """Return a line of a kind with numbers that differ."""
    kind = next(kind for kind, one in KINDS.items() if one is record)
    numbers = {name: 10 + place for place, name in enumerate(record._fields)}
    chosen = {**numbers, **_CHOSEN, **_OF_KIND.get(kind, {})}
    given = [name for name in record._fields if name != "agent" or "agent" not in record._field_defaults]
    return record(**{name: chosen[name] for name in given})


def test_the_catalogue_lists_every_kind_and_every_field_is_a_column() -> None:
    assert list(get_args(Kind)) == list(KINDS) and list(get_args(EventLine)) == list(KINDS.values())
    assert {*REASONS} == {*get_args(LossReason), *get_args(MissReason), *get_args(RefusalReason)}
    columns = get_type_hints(LoggedEvent)
    for kind, record in KINDS.items():
        assert record.__doc__ and record._fields[0] == "time" and "agent" in record._fields, kind
        for name, hint in get_type_hints(record).items():
            column = columns[name]
            assert hint == column or {*get_args(hint), hint} & {*get_args(column)} or name == "lies", f"{kind}.{name}"
    assert {name for record in KINDS.values() for name in record._fields} | {"kind"} == {*EVENTS.names[4:]}


def test_a_detail_that_no_version_wrote_is_damage(tmp_path: Path) -> None:
    table = pq.read_table(EARLIER / "ended" / "events.parquet")
    lines = table.to_pylist()
    next(line for line in lines if line["kind"] == "slowed")["detail"] = "by some"
    path = tmp_path / "events.parquet"
    write_table(pa.Table.from_pylist(lines, table.schema), path)
    with pytest.raises(DamagedError, match="it cannot be read as a table"):
        read_events(path)


@pytest.mark.parametrize(("schema", "read"), [(OBSERVATIONS, None), (EVENTS, converted)])
def test_a_column_that_was_added_is_null_in_earlier_tables(schema: pa.Schema, read: Any, tmp_path: Path) -> None:
    added = [field.name for field in schema if field.nullable]
    table = schema.empty_table().drop_columns(added)
    write_table(table, tmp_path / "old.parquet")
    assert read_table(tmp_path / "old.parquet", schema, convert=read).schema.equals(schema)
    assert FORMAT == 3 and added
