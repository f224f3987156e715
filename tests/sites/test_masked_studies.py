"""Studies with secure aggregation at sites over real sockets: the exact sums, and the decisions of the simulation."""

from __future__ import annotations

import _thread
import multiprocessing
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from fedbo.privacy.mask_sizes import Unmasking
from fedbo.sites.mask_messages import MaskStep
from fedbo.sites.mask_rounds import MaskRounds
from fedbo.study.study import load_study
from tests.sites.direct import sites_document
from tests.sites.loopback import SiteThreads, arrange
from tests.sites.masked_site import KILLED, NOTES, take_part
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, decisions, objectives, without_network

MASKED: dict[str, Any] = {
    "algorithm": [{"name": "fts_de", "features": 20}],
    "privacy": {"secure_noise": True, "secure_aggregation": {"threshold": 0.6}},
}


@pytest.mark.parametrize(
    "exchange",
    [pytest.param({"mode": "barrier"}, marks=pytest.mark.long), {"mode": "deadline", "length": 60.0}],
    ids=["barrier", "deadline"],
)
def test_masked_sums_of_real_sites_are_those_of_the_simulation(
    tmp_path: Path, monkeypatch: Any, exchange: dict[str, Any]
) -> None:
    """Every message is in its sum, so all agents decide as in virtual time, where masks are simulated."""
    monkeypatch.chdir(tmp_path)
    document = sites_document(BOX, AGENTS, exchange=exchange, **MASKED)
    arranged = arrange(load_study(document), tmp_path)
    sites = SiteThreads(arranged, objectives("quadratic", 4, **QUADRATIC))
    result = arranged.serve()
    assert {summary.evaluations for summary in sites.finish().values()} == {6}
    events = result.events.to_pylist()
    unmasked = [(event["answering"], event["cohort"]) for event in events if event["kind"] == "unmasked"]
    virtual = without_network(document)
    assert len(unmasked) == 4 and {cohort for _, cohort in unmasked} == {AGENTS}
    assert decisions(result) == decisions(virtual)


PLAN = {
    0: [(MaskStep.OPENING, 0), (MaskStep.SENDERS, 4)],
    1: [(MaskStep.KEYS, 1), (MaskStep.CONFIRMATIONS, 5)],
    2: [(MaskStep.DELIVERED, 2)],
    3: [(MaskStep.MASKED, 3)],
}


@pytest.mark.long
def test_sums_are_exact_when_sites_are_killed_in_every_phase(tmp_path: Path, monkeypatch: Any) -> None:
    """Four sites in processes of their own, each killed by SIGKILL and started again; each notes what it masks."""
    tables = {**MASKED, "budget": {"iterations": 8}, "sites": {"share": "nothing"}}
    document = sites_document(BOX, len(PLAN), exchange={"mode": "barrier"}, **tables)
    arranged = arrange(load_study(document), tmp_path)
    codes, ended, end = dict[int, list[int | None]](), dict[int, Unmasking](), MaskRounds._end

    def noted(self: MaskRounds, release: int, found: Unmasking) -> None:
        ended[release] = found
        end(self, release, found)

    monkeypatch.setattr(MaskRounds, "_end", noted)
    processes = multiprocessing.get_context("forkserver")  # which has imported all that a site needs
    processes.set_forkserver_preload(["tests.sites.masked_site"])

    def supervise(agent: int) -> None:
        codes[agent] = []
        while not codes[agent] or codes[agent][-1] == -signal.SIGKILL:
            process = processes.Process(target=take_part, args=(arranged.approvals[agent], agent, len(PLAN), PLAN[agent]))
            process.start()
            process.join(300)
            codes[agent].append(process.exitcode)
        if codes[agent][-1]:
            _thread.interrupt_main()  # the study would wait for this site for ever

    supervisors = [threading.Thread(target=supervise, args=(agent,), daemon=True) for agent in PLAN]
    for thread in supervisors:
        thread.start()
    arranged.serve()
    for thread in supervisors:
        thread.join(60)
    assert codes == {agent: [-signal.SIGKILL] * len(plan) + [0] for agent, plan in PLAN.items()}
    killed, notes = dict[tuple[int, int], str](), dict[tuple[int, int], list[int]]()
    for agent, approval in enumerate(arranged.approvals):
        for each in (approval.parent / KILLED).read_text().split():
            kind, _, number = each.partition(":")
            killed[agent, int(number)] = kind
        for line in (approval.parent / NOTES).read_text().splitlines():
            number, _, words = line.partition(" ")
            assert (agent, int(number)) not in notes, "one vector in a round"
            notes[agent, int(number)] = np.frombuffer(bytes.fromhex(words), "<u8").tolist()
    assert len(ended) == 8 and all(found.total is not None for found in ended.values())
    for number, found in ended.items():
        if found.total is not None:
            columns = zip(*(notes[agent, number] for agent in found.sent), strict=True)
            assert found.total.tolist() == [sum(column) % 2**40 for column in columns]
        for agent in found.cohort:
            if (kind := killed.get((agent, number))) in ("KEYS", "DELIVERED", "MASKED"):
                assert agent not in found.sent
            elif kind in ("SENDERS", "CONFIRMATIONS"):
                assert agent in found.sent
