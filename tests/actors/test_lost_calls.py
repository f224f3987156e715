"""Calls whose results nobody has asked for: one that is lost must lose the host, since what is sent later rests on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lossy_hosts import lose_calls

from fedbo.actors import remote
from fedbo.actors.columns import ByAgent
from fedbo.actors.hosts import no_ends
from fedbo.actors.remote import HostLost, RayHosts, RemoteHost
from fedbo.actors.task import StepRequest
from fedbo.study.study import load_study
from tests.random_studies.carrying_out import Hostings, differences, hosted, tables

STUDY: dict[str, Any] = {
    "study": {"name": "lost calls", "seed": 1},
    "objective": {"name": "quadratic", "agents": 4, "noise": 0.1},
    "algorithm": [{"name": "fts"}],
    "budget": {"iterations": 12},
    "timing": {"evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 0.5}},
    "recovery": {"events": 6},
}


class LostReply:
    """The result of a call that was lost."""

    def get(self) -> Any:
        raise HostLost("the call was lost")


class ForgetfulHost:
    """A host on which every call but `lost` succeeds at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
        self.asked, self.lost = list[str](), lost
        monkeypatch.setattr(
            remote, "got", lambda calls: [call.get() if isinstance(call, LostReply) else call for call in calls]
        )
        monkeypatch.setattr(RemoteHost, "call", lambda host, method, *arguments: self.answer(method))

    def answer(self, method: str) -> Any:
        self.asked.append(method)
        return LostReply() if method == self.lost else {"part": "sum"}


@pytest.fixture(params=["commit", "work_in_columns"])
def hosts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RayHosts:
    """Hosts that lose each call that tells them of steps that count, after every second of them or with further steps."""
    ForgetfulHost(monkeypatch, request.param)
    monkeypatch.setattr(remote, "_COMMITS", 2)
    monkeypatch.setattr(remote, "_all_there", lambda calls: True)
    made = RayHosts.__new__(RayHosts)
    made.remote = [RemoteHost(0, None, (0,))]
    made._writing, made._reports, made._given, made._ends = [], ByAgent(), np.zeros(1, int), no_ends
    for _ in range(2 if request.param == "commit" else 1):
        made.commit(0, (0.0, 1.0))
    if request.param == "work_in_columns":  # nobody has asked for the report of this step yet
        made.submit(StepRequest(0, 1))
        made.flush()
    return made


def test_a_snapshot_does_not_count_where_a_host_was_not_told_of_steps_before_it(hosts: RayHosts) -> None:
    hosts.snapshot(1, whole=True)
    with pytest.raises(HostLost):
        hosts.written(wait=True)


def test_a_run_does_not_end_where_a_host_was_not_told_of_steps_before_its_end(hosts: RayHosts) -> None:
    with pytest.raises(HostLost):
        hosts.finish(1)


def test_a_snapshot_counts_where_an_earlier_step_raised_an_error(hosts: RayHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(reply: LostReply) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LostReply, "get", fail)
    hosts.snapshot(1, whole=True)
    assert hosts.written(wait=True) == {"part": "sum"}


@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=pytest.mark.long) for seed in (5, 6, 7, 9))])
def test_a_study_whose_hosts_lose_calls_gives_the_bytes_of_one_process(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study = load_study(STUDY)
    Hostings().carry_out(hosted(study, "inline"), tmp_path / "alone")
    lose_calls(monkeypatch, seed, share=0.03)
    Hostings().carry_out(hosted(study, "dedicated"), tmp_path / "lossy")
    assert differences(tables(tmp_path / "alone"), tables(tmp_path / "lossy"), f"seed {seed}") == []
