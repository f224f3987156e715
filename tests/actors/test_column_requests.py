"""Requests and reports as columns: what hosts do with them is what they do one by one."""

from __future__ import annotations

import numpy as np

from fedbo.actors.columns import Letters, StepReports, StepRequests, joint_reports, single_requests
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.checkpoint import pack
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound
from tests.coordinator.small_runs import Setting, fts

AGENTS = np.arange(3)


def test_requests_as_columns_are_the_single_ones() -> None:
    omega = np.arange(6.0).reshape(3, 2)
    letters = Letters(np.full(3, -2), np.array([4, 5, 5]), np.array([0.5, 1.0, 1.5]), {"omega": omega})
    columns = StepRequests(AGENTS, np.array([1, 2, 1]), np.array([2, 3, 2]), np.array([True, False, True]), letters)
    second = StepRequest(1, 2, 3, (Inbound(-2, 5, 1.0, {"omega": omega[1]}),), False)
    assert pack(single_requests(columns)[1]) == pack(second)
    columns.letters = None
    assert pack(single_requests(columns)[2]) == pack(StepRequest(2, 1, 2))


def test_only_plain_reports_become_columns() -> None:
    plain = [StepReport(agent, 3, 1, {"omega": np.full(2, 1.0 * agent)}, 4, 7, pulled=8) for agent in range(3)]
    joint = joint_reports(plain)
    assert isinstance(joint, StepReports) and joint.payload is not None
    assert joint.payload["omega"].tolist() == [[0, 0], [1, 1], [2, 2]] and joint.pulled.tolist() == [8, 8, 8]
    plain[1].payload = None
    assert joint_reports(plain) is plain
    plain[1].failed = ("point 0: worn out",)
    assert joint_reports(plain) is plain


def test_hosts_work_on_columns_as_on_single_requests() -> None:
    setting = Setting(fts(), agents=3, initial=1)
    together, single = (InlineHosts(setting.task(), range(3)) for _ in range(2))
    for step in range(2):
        together.submit_each(StepRequests(AGENTS, np.full(3, step), np.full(3, step + 1), np.ones(3, bool)))
        found = together.results(AGENTS)
        assert isinstance(found, StepReports) and found.payload is not None
        together.commit_each(AGENTS, np.zeros(3), np.ones(3))
        for agent in range(3):
            single.submit(StepRequest(agent, step, step + 1))
            report = single.result(agent)
            single.commit(agent, (0.0, 1.0))
            assert report.payload is not None and report.t_n == found.t_n[agent]
            assert (report.payload["omega"] == found.payload["omega"][agent]).all()
