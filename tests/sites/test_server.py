"""Server and client over loopback: greetings, orders, a server that starts again, and what ends a site."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from hostile import wait_for
from sync_study import SyncStudy

from fedbo.actors.task import StepRequest
from fedbo.settings.errors import ArgumentError
from fedbo.sites import connections, wire
from fedbo.sites.audit import read_sent
from fedbo.sites.certificates import client_context, create_authority
from fedbo.sites.client import SiteClient, SiteConnectionError, hello, proxy_of
from fedbo.sites.coordinator_machine import REVOKED
from fedbo.sites.errors import SitesError
from fedbo.sites.keys import PrivateKey
from fedbo.sites.release import SiteReport
from fedbo.sites.serve import address_of
from fedbo.sites.server import SyncServer


@pytest.fixture
def study(tmp_path: Path) -> SyncStudy:
    return SyncStudy(tmp_path, agents=2)


@pytest.fixture
def server(study: SyncStudy) -> Iterator[SyncServer]:
    with closing(study.server()) as made:
        yield made


def _start(study: SyncStudy, server: SyncServer, port: int = 0) -> int:
    return server.start("127.0.0.1", port, study.server_context())


def _step(server: SyncServer, client: SiteClient, step: int) -> None:
    server.order(0, StepRequest(0, step, step))
    order = client.next_order(30.0)
    assert order is not None and (order.lease, client.trouble) == (step, "")
    client.report(SiteReport(0, step, 1, {"mean": np.ones(3), "count": np.array(step)}, lease=step))
    (report,) = server.arrived(30.0)
    if report.lease < step:  # what no answer has acknowledged comes again where the server has started again
        server.taken(0, report.lease)
        (report,) = server.arrived(30.0)
    assert report.payload is not None and (report.lease, int(report.payload["count"])) == (step, step)
    server.taken(0, step)


def _hello(study: SyncStudy, port: int, agent: int = 0, key: PrivateKey | None = None) -> str:
    approval = study.approval(agent, port)
    return hello(approval, key or study.keys[agent], client_context(approval.trust))


def test_a_greeting_says_whether_the_key_is_known_and_changes_nothing(study: SyncStudy, server: SyncServer) -> None:
    port = _start(study, server)
    assert _hello(study, port) == ""
    study.states[1] = "revoked"
    assert _hello(study, port, agent=1) == REVOKED
    with pytest.raises(SiteConnectionError, match="no key of this agent signed it"):
        _hello(study, port, key=PrivateKey.drawn())
    assert server.heard(0) is None


def test_a_greeting_finds_nobody_or_somebody_else(study: SyncStudy, server: SyncServer, tmp_path: Path) -> None:
    port = _start(study, server)
    other = SyncStudy(tmp_path / "other", agents=2)
    with pytest.raises(SiteConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        _hello(other, port)
    create_authority(study.folder, ["elsewhere.example"])
    server.close()
    with pytest.raises(SiteConnectionError, match="127.0.0.1"):
        _hello(study, port)


def test_requests_share_two_connections(study: SyncStudy, server: SyncServer, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[object]()
    made = connections.Connection.connection_made
    monkeypatch.setattr(
        connections.Connection, "connection_made", lambda self, wire: (opened.append(wire), made(self, wire))[1]
    )
    with closing(study.client(0, _start(study, server))) as client:
        client.start()
        for step in range(1, 11):
            _step(server, client, step)
    assert 1 <= len(opened) <= 3


def test_a_server_that_starts_again_goes_on(study: SyncStudy, server: SyncServer) -> None:
    port = _start(study, server)
    with closing(study.client(0, port)) as client:
        client.start()
        for step in (1, 2, 3):
            _step(server, client, step)
        server.close()
        client.evaluating(4)
        with closing(study.server()) as again:
            _start(study, again, port)
            for step in (4, 5):
                _step(again, client, step)
            assert wait_for(lambda: again.evaluating(0) == 4)
            assert again.heard(0) is not None and again.heard(1) is None
            again.end(0, 5)
            assert wait_for(lambda: client.ended == 5)
            client.close()
            assert again.told(0)


def test_a_roster_that_cannot_be_read_stops_nobody_for_good(study: SyncStudy, server: SyncServer) -> None:
    port = _start(study, server)
    with closing(study.client(0, port)) as client:
        client.start()
        _step(server, client, 1)
        study.broken = True
        server.order(0, StepRequest(0, 2, 2))
        with pytest.raises(SiteConnectionError, match="it cannot be checked now"):
            _hello(study, port)
        study.broken = False
        _step(server, client, 2)


def test_a_key_that_is_revoked_ends_its_site_alone(study: SyncStudy, server: SyncServer) -> None:
    port = _start(study, server)
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(study.client(agent, port))) for agent in range(2)]
        for client in clients:
            client.start()
        assert wait_for(lambda: server.heard(0) is not None and server.heard(1) is not None)
        study.states[1] = "revoked"
        server.order(1, StepRequest(1, 1, 1))
        assert clients[1].next_order(30.0) is None and clients[1].refused == REVOKED
        _step(server, clients[0], 1)
        assert study.refusals() == [REVOKED]


def test_two_processes_cannot_use_one_folder(study: SyncStudy, server: SyncServer) -> None:
    with closing(study.client(0, _start(study, server))), pytest.raises(SitesError, match="another process"):
        study.client(0, 1, audit="other.jsonl")
    with pytest.raises(SitesError, match="another process"):
        study.server()


def test_an_address_in_use_is_named(study: SyncStudy, server: SyncServer) -> None:
    port = _start(study, server)
    study.folder = study.folder / "second"
    create_authority(study.folder, ["127.0.0.1"])
    with closing(study.server()) as second, pytest.raises(SitesError, match=f"127.0.0.1:{port}.*another address"):
        _start(study, second, port)


def test_a_site_without_an_answer_is_lost(study: SyncStudy) -> None:
    with closing(study.client(0, 1, patience=0.5)) as client:
        client.start()
        assert client.next_order(30.0) is None and client.lost and client.refused is None
        assert "ConnectError" in client.trouble


def test_every_byte_that_leaves_is_in_the_audit_log(study: SyncStudy, server: SyncServer) -> None:
    port = _start(study, server)
    with closing(study.client(0, port)) as client:
        client.start()
        _step(server, client, 1)
    for name, magic in (("audit.jsonl", wire.ANSWER_MAGIC), ("site-0/audit.jsonl", wire.REQUEST_MAGIC)):
        bodies = [body for _, body in read_sent(study.folder / name)]
        assert bodies and all(body.startswith(magic) for body in bodies)
    requests = bodies
    reports = [wire.unpack_sync(body[wire.REQUEST_HEAD :]).reports for body in requests]
    assert np.ones(3).tobytes() in b"".join(data for each in reports for _, data in each)


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert proxy_of("https://one.example:7443/x") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert proxy_of("https://one.example:7443/x") == "http://proxy.example:3128"
    monkeypatch.setenv("NO_PROXY", "one.example")
    assert proxy_of("https://one.example:7443/x") is None


@pytest.mark.long
def test_a_hundred_sites_on_one_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each site works through five orders in a thread of its own, while the others do."""
    agents, steps = 100, 5
    study = SyncStudy(tmp_path, agents=agents)
    done, counted = dict.fromkeys(range(agents), 0), list[tuple[int, int]]()
    begun, used = time.monotonic(), time.process_time()
    with ExitStack() as stack:
        server = stack.enter_context(closing(study.server()))
        port = _start(study, server)
        for agent in range(agents):
            client = stack.enter_context(closing(study.client(agent, port)))
            client.start()
            server.order(agent, StepRequest(agent, 1, 1))
            threading.Thread(target=_work, args=(client, agent, steps), daemon=True).start()
        while len(counted) < agents * steps:
            assert time.monotonic() - begun < 300.0
            for report in server.arrived(1.0):
                server.taken(report.agent, report.lease)
                if report.lease == done[report.agent] + 1:
                    counted.append((report.agent, report.step))
                    done[report.agent] += 1
                    if report.step < steps:
                        server.order(report.agent, StepRequest(report.agent, report.step + 1, report.lease + 1))
        took, processor = time.monotonic() - begun, time.process_time() - used
    assert sorted(counted) == [(agent, step) for agent in range(agents) for step in range(1, steps + 1)]
    assert study.refusals() == []
    with capsys.disabled():
        each = 1e3 * processor / len(counted)
        print(f"\n{len(counted)} orders of {agents} sites in {took:.1f} s, {each:.1f} ms of processor time each on both sides")


def _work(client: SiteClient, agent: int, steps: int) -> None:
    while (order := client.next_order(300.0)) is not None:
        client.report(SiteReport(agent, order.step, 1, {"mean": np.ones(3), "count": np.array(1)}, lease=order.lease))
        if order.step == steps:
            return


def test_an_address_to_listen_at_is_a_host_and_a_port() -> None:
    assert address_of("0.0.0.0:65535") == ("0.0.0.0", 65535)
    assert address_of("[::1]:7443") == ("::1", 7443)
    assert address_of("localhost:0") == ("localhost", 0), "a free one"
    for wrong in ("", "7443", ":7443", "host", "host:", "host:x", "host:-1", "host:65536"):
        with pytest.raises(ArgumentError, match="write HOST:PORT"):
            address_of(wrong)
