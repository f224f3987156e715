"""Hostile requests: each is refused and leaves one line, memory stays bounded, and other sites go on."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hostile import Attacker, wait_for
from sync_study import SyncStudy

from fedbo.actors.task import StepRequest
from fedbo.sites import connections, server, wire
from fedbo.sites.audit import read_audit, read_sent
from fedbo.sites.release import SiteReport

MOST_GROWTH = 64 * 2**20  # bytes


def _memory() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


class Honest:
    """Agent 0 at its site, which works through orders while others attack."""

    def __init__(self, study: SyncStudy) -> None:
        self.study, self.server = study, study.server()
        self.port = self.server.start("127.0.0.1", 0, study.server_context())
        self.client = study.client(0, self.port)
        self.client.start()
        self.done, self._stop = 0, threading.Event()
        self.failures = list[BaseException]()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def step(self) -> None:
        """Give an order, carry it out, and count its report."""
        step = self.done + 1
        self.server.order(0, StepRequest(0, step, step))
        order = self.client.next_order(20.0)
        assert order is not None and order.lease == step, self.client.trouble
        self.client.report(SiteReport(0, step, 1, {"mean": np.ones(3), "count": np.array(step)}, lease=step))
        (report,) = self.server.arrived(20.0)
        assert report.lease == step
        self.server.taken(0, step)
        self.done = step

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
                self._stop.wait(0.2)
        except BaseException as error:
            self.failures.append(error)

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.client.close()
        self.server.close()


@pytest.fixture
def honest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Honest]:
    monkeypatch.setattr(connections, "STRANGER_TIME", 4.0)
    monkeypatch.setattr(server, "BODY_TIME", 4.0)
    study = SyncStudy(tmp_path, agents=3)
    study.states[2] = "revoked"
    made = Honest(study)
    yield made
    made.close()


def _attack(honest: Honest, rounds: int) -> int:
    """Attack a server `rounds` times with every kind of request; return how many that were."""
    study = honest.study
    for _ in range(3):
        honest.step()
    captured = _captured(study)
    first = study.client(1, honest.port)  # agent 1 has its own folder already
    first.start()
    assert wait_for(lambda: first.study_time() is not None or honest.server.heard(1) is not None)
    first.close()
    honest.start()
    memory, expected = _memory(), Counter[int]()  # lines by the port of who has sent
    for number in range(rounds):
        attacker = Attacker(study, honest.port, captured, seed=number)
        for name, send in attacker.kinds().items():
            send()
            expected[port := attacker.ports[-1]] += 1
            assert wait_for(lambda: len(study.refusals(port)) >= expected[port]), f"{name} left no line"  # noqa: B023
        slow = [threading.Thread(target=send) for send in attacker.slow_kinds().values()]
        for thread in slow:
            thread.start()
        for thread in slow:
            thread.join(120.0)
        expected.update(attacker.ports[-len(slow) :])
        for port in attacker.ports:
            assert wait_for(lambda: len(study.refusals(port)) >= expected[port])  # noqa: B023
            assert len(study.refusals(port)) == expected[port], study.refusals(port)
        assert not attacker.trap.exists(), "a pickle was loaded"
    assert _memory() - memory < MOST_GROWTH
    done = honest.done
    assert wait_for(lambda: honest.done > done + 3), "the honest site does not go on"
    assert honest.failures == [] and honest.client.refused is None
    assert sum(1 for _ in read_audit(study.folder / "audit.jsonl")) > expected.total()  # and its chain holds
    return expected.total()


def _captured(study: SyncStudy) -> list[bytes]:
    """Return the requests that agent 0 has sent, as its own audit log shows them."""
    records = read_sent(study.folder / "site-0" / "audit.jsonl")
    return [body for record, body in records if record["target"].endswith(wire.SYNC)]


def test_hostile_requests_are_refused_with_one_line_each(honest: Honest) -> None:
    assert _attack(honest, rounds=1) >= 33


def test_too_many_connections_of_strangers_leave_room_for_a_site(honest: Honest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_STRANGERS", 8)
    monkeypatch.setattr(connections, "STRANGER_TIME", 30.0)
    honest.step()
    attacker = Attacker(honest.study, honest.port, [], seed=0)
    # A site has at most two requests under way, and until the first on a connection has come that is a stranger's too.
    opened = [attacker.connect() for _ in range(6)]
    honest.step()
    assert honest.study.refusals() == [], "so many may be there, and say nothing"
    opened += [attacker.connect() for _ in range(14)]
    assert wait_for(lambda: len(honest.study.refusals()) >= 12)
    assert {why for why in honest.study.refusals()} == {"there are too many connections that have sent no request of a site"}
    honest.step()
    for connection in opened:
        connection.close()
    honest.step()
    assert len(set(honest.study.refusals())) == 1, "who has asked for nothing and goes is not refused"


def test_answers_that_a_site_does_not_read_take_no_more_than_some_connections(
    honest: Honest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_SITE", 4)
    honest.step()
    attacker = Attacker(honest.study, honest.port, [], seed=0)
    opened = [attacker.connect() for _ in range(7)]
    for connection in opened:
        connection.sendall(attacker.post(attacker.request(attacker.sync())))
        assert wait_for(lambda: honest.server.heard(1) is not None)
    assert wait_for(lambda: len(honest.study.refusals()) >= 3)
    assert honest.study.refusals() == ["there are too many connections of the site of agent 1"] * 3
    honest.step()
    for connection in opened:
        connection.close()


@pytest.mark.long
def test_a_thousand_hostile_requests_are_refused_with_one_line_each(honest: Honest) -> None:
    assert _attack(honest, rounds=31) >= 1000
