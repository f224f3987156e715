"""The faults of a plan, private methods, secret draws and shares, on the mailboxes of sites."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.rows import Row, read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.coordinator.logged.table import EVENTS
from fedbo.coordinator.runtime.replaying import replay_run
from fedbo.execution.earlier import RealTimeRecord
from fedbo.execution.jobs import runs
from fedbo.execution.replay import replay
from fedbo.objectives.outcome import Outcome
from fedbo.sites.errors import DocumentError, PolicyError
from fedbo.sites.release import pack, unpack
from fedbo.sites.terms import load_terms, public_terms
from fedbo.sites.work import SiteWork
from fedbo.study.document import StudyError
from fedbo.study.study import load_study
from tests.sites.direct import World, sites_document
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, decisions, objectives, without_network

DP = {"name": "dp_fts_de", "features": 10, "every": 1, "share": 1.0}


def world_of(folder: Path, own: Any = None, **tables: Any) -> World:
    document = sites_document(BOX, AGENTS, **{"exchange": {"mode": "barrier"}, **tables})
    return World(document, own or objectives("quadratic", 4, **QUADRATIC), folder)


def kinds(result: Any) -> list[str]:
    return [row["kind"] for row in result.events.to_pylist()]


FAULTS = {
    "crash": [{"kind": "crash", "agents": [1], "event": 6, "restart": 0.2}],
    "crash that forgets": [{"kind": "crash", "agents": [1], "event": 8, "restart": 0.2, "state": "lost"}],
    "hang": [{"kind": "hang", "agents": [1], "event": 6, "duration": 0.3}],
    "slow": [{"kind": "slow", "agents": [1], "event": 6, "duration": 0.5, "factor": 3.0}],
    "messages": [
        {"kind": "loss", "probability": 0.2},
        {"kind": "duplication", "probability": 0.3},
        {"kind": "reordering", "probability": 0.3, "by": 0.05},
    ],
    "partition": [{"kind": "partition", "agents": [1], "event": 6, "duration": 0.3}],
    "lie": [{"kind": "lie", "agents": [1], "how": "inverted"}],
}
MARKS = {
    "crash": "restarted",
    "crash that forgets": "restarted",
    "hang": "woke",
    "slow": "slowed",
    "partition": "joined",
    "lie": "falsified",
}


class Patient:
    """An objective of some hundredths of a second, so that a fault meets the study."""

    best_value = None

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def evaluate(self, x: Any, rng: Any) -> Any:
        time.sleep(0.04)
        return self._inner.evaluate(x, rng)

    def score(self, x: Any) -> Any:
        return self._inner.score(x)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(one, marks=[pytest.mark.long] * (one not in ("crash that forgets", "messages", "partition")))
        for one in FAULTS
    ],
)
def test_planned_faults_are_played_and_replayed(tmp_path: Path, monkeypatch: Any, fault: str) -> None:
    monkeypatch.chdir(tmp_path)
    own = list(map(Patient, objectives("quadratic", 4, **QUADRATIC)))
    tables: dict[str, Any] = {"fault": FAULTS[fault], "budget": {"iterations": 6}, "network": {"retry": 0.1}}
    world = world_of(tmp_path, own, exchange={"mode": "immediate"}, **tables)
    result = world.run()
    found = kinds(result)
    assert MARKS.get(fault, "lost") in found
    assert result.manifest["status"] == "complete"
    assert replay(result.directory, verify=True).same


def test_a_private_method_needs_noise_that_no_site_can_compute(tmp_path: Path) -> None:
    document = sites_document(BOX, AGENTS, algorithm=[DP], exchange={"mode": "barrier"})
    with pytest.raises(StudyError, match="secure_noise.*must be true: every site knows the study's seed"):
        load_study(document)
    load_study({**document, "privacy": {"secure_noise": True}})


def test_a_private_method_at_sites_has_the_ledger_of_the_simulation(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    tables: dict[str, Any] = {"algorithm": [DP], "privacy": {"secure_noise": True}, "exchange": {"mode": "barrier"}}
    world = world_of(tmp_path, **tables)
    result = world.run()
    simulated = without_network(sites_document(BOX, AGENTS, **tables))
    for name in ("release", "noise_multiplier", "sensitivity", "population", "epsilon"):
        assert result.privacy[name].to_pylist() == simulated.privacy[name].to_pylist()
    assert set(result.reports["message"].to_pylist()) == {None}  # messages before the noise are not kept
    assert not list((result.directory).rglob("noise.key"))


def test_masks_at_sites_need_rounds_and_messages_that_are_only_summed() -> None:
    tables: dict[str, Any] = {"privacy": {"secure_noise": True, "secure_aggregation": {}}}
    barrier, immediate = {"mode": "barrier"}, {"mode": "immediate"}
    load_study(sites_document(BOX, AGENTS, algorithm=[DP], exchange=barrier, **tables))
    with pytest.raises(StudyError, match="secure_aggregation.*has no rounds under 'immediate'"):
        load_study(sites_document(BOX, AGENTS, algorithm=[DP], exchange=immediate, **tables))
    with pytest.raises(StudyError, match="secure_aggregation.*does not only sum messages"):
        load_study(sites_document(BOX, AGENTS, exchange=barrier, **tables))


def test_secret_draws_differ_from_the_study_and_from_each_other(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    sites = {"streams": "secret", "share": "observations"}
    world = world_of(tmp_path, sites=sites)
    result = world.run()
    first = [row for row in decisions(result) if row[1] == 0]
    simulated = [row for row in decisions(without_network(sites_document(BOX, AGENTS))) if row[1] == 0]
    assert not {row[4:6] for row in first} & {row[4:6] for row in simulated}
    assert len({row[4:6] for row in first}) == 2 * AGENTS
    secrets = {(tmp_path / f"site-{agent}" / "secret.key").read_bytes() for agent in range(AGENTS)}
    assert len(secrets) == AGENTS
    assert replay(result.directory, verify=True).same


@pytest.mark.parametrize(
    "share", ["nothing", *(pytest.param(share, marks=pytest.mark.long) for share in ("scores", "observations"))]
)
def test_only_what_is_shared_is_at_the_coordinator(tmp_path: Path, monkeypatch: Any, share: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = world_of(tmp_path, sites={"streams": "study", "share": share}).run()
    rows = result.observations.to_pylist()
    known = decisions(without_network(sites_document(BOX, AGENTS, exchange={"mode": "barrier"})))
    assert len(rows) == (0 if share == "nothing" else len(known))
    assert all(len(row["u"]) == (2 if share == "observations" else 0) for row in rows)
    assert [row["value"] for row in rows] == [row[6] for row in known[: len(rows)]]
    (summary,) = result.summary()
    assert summary.evaluations == len(known)
    assert np.isnan(summary.final.mean) == (share == "nothing")
    assert replay(result.directory, verify=True).same


def test_texts_of_failures_stay_at_the_site(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    def broken(x: Any, agent: int) -> float:
        if x[0] > 0.5:
            raise ValueError("patient 4711")
        return float(x[0])

    world = world_of(tmp_path, [broken] * AGENTS)
    result = world.run()
    assert any(error == "failed at its site" for error in result.observations["error"].to_pylist())
    data = b"".join(path.read_bytes() for path in result.directory.rglob("*") if path.is_file())
    assert b"4711" not in data
    errors = {summary.first_error for summary in world.summaries.values() if summary.failed}
    assert errors == {"ValueError: patient 4711"}


def test_agents_replayed_in_virtual_time_from_the_evaluations_of_the_sites_decide_the_same(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """An independent replay: agents decide again in this process, and only their evaluations are looked up."""
    monkeypatch.chdir(tmp_path)
    world = world_of(tmp_path, exchange={"mode": "immediate"}, budget={"iterations": 6})
    result = world.run()
    evaluations = [
        EvaluationRecord.of_columns(row)
        for path in sorted(tmp_path.glob("site-*/*/evaluations-*.parquet"))
        for row in read_table(path).to_pylist()
    ]
    study = load_study(result.directory / "study.toml", derived=True)
    (run,) = runs(study, tmp_path / "again")
    segments, record, _ = RealTimeRecord(result.directory, study, result.manifest).of(run)
    replay_run(segments, record, evaluations)
    (events,) = RunFolder.of(run.folder, run.key).path.glob("events-*.parquet")
    (rows,) = RunFolder.of(run.folder, run.key).path.glob("observations-*.parquet")
    assert read_table(events, EVENTS).to_pylist() == result.events.to_pylist()
    keys = ("agent", "step", "query", "origin", "u", "x", "value", "score", "started", "finished", "t_n")
    assert [[row[key] for key in keys] for row in read_table(rows).to_pylist()] == [
        [row[key] for key in keys] for row in result.observations.to_pylist()
    ]


def test_terms_of_other_people_run_no_code_and_read_no_file(tmp_path: Path) -> None:
    terms = public_terms(load_study(sites_document(BOX, AGENTS)))
    assert public_terms(load_terms(terms)) == terms
    marker = tmp_path / "imported"
    code = tmp_path / "hostile.py"
    code.write_text(f"open({str(marker)!r}, 'w').close()\nclass Own: pass\n")
    for change in (
        {"objective": {"name": "python_function", "function": f"{code}:Own", "low": [0.0], "high": [1.0]}},
        {"algorithm": [{"name": f"{code}:Own"}]},
        {"agents": {"initial": 2, "initial_file": str(code)}},
        {"sweep": {"study.seed": [1, 2]}},
        {"network": {"attempts": 3}},
        {"objective": "sites"},
    ):
        with pytest.raises(DocumentError, match="the terms"):
            load_terms({**terms, "document": {**terms["document"], **change}})
    assert not marker.exists()


def test_a_policy_that_allows_fewer_evaluations_than_the_study_needs_stops_the_site_at_the_start(tmp_path: Path) -> None:
    study = load_terms(public_terms(load_study(sites_document(BOX, AGENTS))))
    with pytest.raises(PolicyError, match="needs 6 evaluations, but the policy of this site allows 5"):
        SiteWork(study, 0, objectives("quadratic", 4, **QUADRATIC)[0], tmp_path, 5)
    SiteWork(study, 0, objectives("quadratic", 4, **QUADRATIC)[0], tmp_path, 6)


def test_rows_that_a_site_could_not_have_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    data = pack([], 2, "scores")
    assert unpack(data, 2, 0, "scores") == ()
    with pytest.raises(ValueError, match="release none"):
        unpack(b"1234", 2, 0, "nothing")
    with pytest.raises(ValueError, match="no whole number of rows"):
        unpack(b"1234", 2, 0, "scores")
    draws = np.random.default_rng(3)
    for _ in range(200):  # no bytes do anything but raise ValueError
        size = len(pack(_rows(), 2, "observations")) * int(draws.integers(1, 3))
        try:
            found = unpack(draws.bytes(size), 2, 7, "observations")
        except ValueError:
            continue
        assert all(row.agent == 7 and (row.error or np.isfinite(row.outcome.value)) for row in found)
    assert unpack(pack(_rows(), 2, "observations"), 2, 3, "observations") == _rows()


def _rows() -> tuple[Row, ...]:
    return (Row(3, "search", 2, 0, "own", [0.1, 0.2], [0.1, 0.2], Outcome(1.5, 1.25), 3.0, 4.5, 7, 1),)
