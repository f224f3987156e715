"""Five sites between hosts of their own: lossy wires, proxies, and tunnels that end without a word."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.execution.replay import replay
from fedbo.study.study import load_study
from tests.cluster.laboratory import Laboratory, done, hindrance, laboratory, netem_missing, said
from tests.sites.loopback import arrange
from tests.sites.processes import OBJECTIVE
from tests.sites.test_killed_processes import document, expected
from tests.sites.test_remote_sites import decisions

SITES, ITERATIONS = 5, 25
PROXY = SITES + 1  # the host on which both proxies run
STEADY, FORGETFUL = 3128, 3129
WAYS = {1: 0, 2: 0, 3: STEADY, 4: STEADY, 5: FORGETFUL}  # how each host reaches the coordinator


def close_direct_way(hosts: Laboratory, number: int) -> None:
    """Leave a host no way to the coordinator but the proxy."""
    inside = ["nsenter", f"--target={hosts.hosts[number].first}", "--net"]
    said(*inside, "ip", "route", "add", "blackhole", f"{hosts.hosts[0].address}/32")


@pytest.mark.long
@pytest.mark.skipif(hindrance() is not None, reason=str(hindrance()))
def test_five_sites_behind_bad_wires_and_proxies_make_the_decisions_of_the_study_without_a_network(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    study = load_study(document(ITERATIONS, SITES))
    (tmp_path / "study.toml").write_text(study.to_toml())
    with laboratory(tmp_path, {"FEDBO_TEST_SECONDS": "0.05"}, count=SITES + 1) as hosts:
        address = hosts.hosts[0].address
        arranged = arrange(load_study(tmp_path / "study.toml"), tmp_path, address)
        if netem_missing() is None:
            for number in range(SITES + 1):
                hosts.shape(number, "netem", "delay", "30ms", "10ms", "loss", "2%")
        proxy = str(Path(__file__).parent / "connect_proxy.py")
        for port, lifetime in ((STEADY, 0.0), (FORGETFUL, 1.0)):
            where = (hosts.hosts[PROXY].address, str(port), str(lifetime), str(tmp_path / f"tunnels-{port}"))
            hosts.run(PROXY, sys.executable, proxy, *where)
        fedbo_at = [sys.executable, "-m", "fedbo"]
        listen = ["--listen", f"{address}:{arranged.port}", "--service", str(arranged.service), "--quiet"]
        server = hosts.run(0, *fedbo_at, "serve", str(tmp_path / "study.toml"), *listen)
        sites = []
        for number, port in WAYS.items():
            if port:
                close_direct_way(hosts, number)
            around = {"HTTPS_PROXY": f"http://{hosts.hosts[PROXY].address}:{port}"} if port else {}
            approval = str(arranged.approvals[number - 1])
            sites.append(hosts.run(number, *fedbo_at, "join", approval, f"{OBJECTIVE}:bowl", "--patience", "200", **around))
        for process in (server, *sites):
            done(process)
    tunnels = {port: (tmp_path / f"tunnels-{port}").read_text().splitlines() for port in (STEADY, FORGETFUL)}
    assert len(tunnels[STEADY]) >= 2 and len(tunnels[FORGETFUL]) >= 3
    result = fedbo.Result.open(arranged.service / "run")
    assert decisions(result) == expected(ITERATIONS, SITES)
    assert replay(result.directory, verify=True).same
