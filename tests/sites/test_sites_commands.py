"""The commands of sites: from a new key to an approval, and what a check says of each thing that can be wrong."""

from __future__ import annotations

import json
import select
import shutil
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedbo.cli import main
from fedbo.sites.audit import AuditLog
from fedbo.sites.certificates import create_authority
from fedbo.sites.documents import Approval
from fedbo.sites.folders import ServiceFolder, SiteFolder
from fedbo.sites.preflight import preflight
from fedbo.sites.server import SyncServer
from fedbo.sites.terms import load_terms, sync_terms

STUDY = """\
[study]
name = "vaccine"

[objective]
name = "sites"
agents = 2
low = [0.0, 2.0]
high = [1.0, 3.0]
names = ["dose", "days"]

[timing]
clock = "wall"

[hosting]
kind = "sites"

[budget]
iterations = 3

[[algorithm]]
name = "fts"
"""
OBJECTIVE = """\
def response(x):
    return -(x[0] - 0.3) ** 2 - (x[1] - 2.7) ** 2

def fails(x):
    raise RuntimeError("no\\x1b[2J serum\\nis left")

def nothing(x):
    return float("nan")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "objective", raising=False)  # of another test
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    return tmp_path


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])


def fedbo(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Run a command that must succeed; return its JSON."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--format", "json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    return json.loads(told.out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command whose input is wrong; return its one line."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def joined(capsys: pytest.CaptureFixture[str], port: int, name: str = "north", **options: Any) -> Approval:
    """Create a site, approve it, and put the approval and the study's fingerprint into its folder."""
    fedbo(capsys, "site", "new", name)
    more = [f"--{key}={value}" for key, value in options.items()]
    told = fedbo(capsys, "approve", f"{name}/request.json", "--study=study.toml", f"--endpoint=https://localhost:{port}", *more)
    fedbo(capsys, "site", "accept", told["approval"], told["study"], "--site", name)
    return Approval.read(Path(name, "approval.json"))


@contextmanager
def serving(port: int) -> Iterator[ServiceFolder]:
    service = ServiceFolder(Path("study.sites"))
    with closing(service.audit()) as audit:
        terms = sync_terms(load_terms(service.terms))
        server = SyncServer(service.path, service.key, service.digest, terms, service.roster, audit, lambda: 0.0)
        server.start("localhost", port, service.server_context())
        try:
            yield service
        finally:
            server.close()


def states(approval: Approval, objective: str | None = "objective.py:response") -> dict[str, tuple[str, str, str]]:
    found = list(preflight(approval, SiteFolder(Path("north")), objective))
    assert all(one.remedy for one in found if one.state != "ok"), "a check that fails has a remedy"
    return {one.what: (one.state, one.found, one.remedy) for one in found}


def test_a_site_joins_by_three_commands(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    created = fedbo(capsys, "site", "new", "north")
    line = refused(capsys, "approve", "north/request.json", "--study", "study.toml", "--fingerprint", "0000-" * 7 + "0000")
    assert f"the key of this request has {created['fingerprint']}" in line
    assert "the first approval needs --endpoint" in refused(capsys, "approve", "north/request.json", "--study", "study.toml")
    assert not Path("study.sites").exists()
    endpoint = f"https://localhost:{port}"
    arguments = ["approve", "north/request.json", "--study", "study.toml", "--endpoint", endpoint]
    assert main([*arguments, "--fingerprint", created["fingerprint"].upper()]) == 0
    told = capsys.readouterr()
    approval = Approval.read(Path("study.sites/approvals/north.json"))
    assert approval.fingerprint in told.out and created["fingerprint"] in told.out and told.err == ""
    fedbo(capsys, "site", "new", "east")
    assert main(["approve", "east/request.json", "--study", "study.toml"]) == 0
    assert "was not compared" in capsys.readouterr().err
    fedbo(capsys, "site", "new", "west")
    assert "all 2 agents have had a site" in refused(capsys, "approve", "west/request.json", "--study", "study.toml")
    fedbo(capsys, "revoke", 1, "--study", "study.toml")
    assert fedbo(capsys, "approve", "west/request.json", "--study=study.toml", "--agent=1")["agent"] == 1
    roster = ServiceFolder(Path("study.sites")).roster()
    assert [(entry.name, entry.agent, entry.state) for entry in roster.entries] == [
        ("north", 0, "active"),
        ("east", 1, "revoked"),
        ("west", 1, "active"),
    ]


def test_what_the_first_approval_decided_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joined(capsys, 7443, name="north")
    fedbo(capsys, "site", "new", "east")
    arguments = ["approve", "east/request.json", "--study", "study.toml"]
    for option in (["--endpoint", "https://other:1"], ["--connection", "proxy"], ["--certificate", "public"], ["--name", "a"]):
        assert f"{option[0]} was decided by the first approval" in refused(capsys, *arguments, *option)
    Path("study.toml").write_text(STUDY.replace("iterations = 3", "iterations = 4"))
    assert "the study has changed" in refused(capsys, *arguments)
    Path("study.toml").write_text(STUDY)
    fedbo(capsys, *arguments, "--endpoint", "https://localhost:7443")


def test_a_key_is_rotated_by_two_commands(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = joined(capsys, 7443)
    fedbo(capsys, "site", "rotate", "north/approval.json")
    # The earlier key has signed the request, so nobody need compare fingerprints.
    assert main(["approve", "north/request.json", "--study", "study.toml"]) == 0
    assert capsys.readouterr().err == ""
    second = Approval.read(Path("study.sites/approvals/north.json"))
    assert second.agent == first.agent and second.digest == first.digest and second.key != first.key


def test_all_checks_pass_at_a_site_that_can_take_part(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    approval = joined(capsys, port)
    with serving(port):
        found = states(approval)
        assert {state for state, _, _ in found.values()} == {"ok"}
        order = ["approval", "disk", "terms", "policy", "name", "port", "certificate", "coordinator", "evaluation"]
        assert list(found) == order
        assert "fts, parameters dose, days" in found["terms"][1] and "TLSv1.3" in found["certificate"][1]
        assert main(["preflight", "north/approval.json", "objective.py:response"]) == 0
        assert states(approval, None)["evaluation"][0] == "missing"
    # A check is no part of the study: no number was used, and nothing was sent or kept.
    assert not Path("north/runs").exists()
    assert not list(Path("north").glob(".preflight*"))


def test_each_thing_that_can_be_wrong_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    approval = joined(capsys, port)
    sound = {name: Path("north", name).read_text() for name in ("policy.toml", "site.key")}
    found = states(approval)
    assert found["port"][0] == "broken" and "whether fedbo serve runs" in found["port"][2] and "certificate" not in found
    assert main(["preflight", "north/approval.json"]) == 1
    assert found["evaluation"][0] == "ok", "a check that fails does not hide later ones of another kind"
    Path("north/policy.toml").write_text("studies = []")
    assert states(approval)["policy"] == (
        "broken",
        "policy.toml: studies does not list the study 'vaccine'",
        f"compare fingerprints with the coordinator, then run: fedbo site accept APPROVAL {approval.fingerprint}",
    )
    Path("north/policy.toml").write_text(sound["policy.toml"].replace('reveals = "draws"', 'reveals = "nothing"'))
    assert 'reveals = "draws"' in states(approval)["policy"][2]
    Path("north/policy.toml").write_text(sound["policy.toml"])
    Path("north/site.key").unlink()
    fedbo(capsys, "site", "new", "other")
    shutil.copy("other/site.key", "north/site.key")
    assert "of another key" in states(approval)["approval"][1]
    Path("north/site.key").write_text(sound["site.key"])
    for name, words in (("fails", "no\\u001b[2J serum is left"), ("nothing", "nan"), ("none", "has no 'none'")):
        evaluation = states(approval, f"objective.py:{name}")["evaluation"]
        assert evaluation[0] == "broken" and words in evaluation[1], name
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))  # type: ignore[attr-defined]
    assert states(approval)["disk"][0::2] == ("broken", "free 256 MiB")
    wrong = approval.model_copy(update={"endpoint": "https://no-such-host.invalid:1"})
    assert states(wrong)["name"][0] == "broken" and "port" not in states(wrong)
    monkeypatch.setenv("HTTPS_PROXY", f"http://localhost:{port}")
    proxied = states(wrong)
    assert "of the proxy in HTTPS_PROXY" in proxied["name"][1] and proxied["port"][0] == "broken"


@pytest.mark.parametrize(("share", "least"), [(0.2, 2), (0.3, 2), (0.5, 4), (1.0, 7)])
def test_a_site_is_warned_of_rounds_in_which_one_other_site_can_read_its_messages(
    share: float, least: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    masked = f'name = "dp_fts"\nshare = {share}\n\n[privacy]\nsecure_noise = true\nsecure_aggregation = {{ threshold = 0.66 }}'
    study = STUDY.replace("agents = 2", "agents = 10").replace('name = "fts"', masked)
    Path("study.toml").write_text(study + '\n[exchange]\nmode = "barrier"\n')
    state, found, remedy = states(joined(capsys, free_port()))["terms"]
    assert f"hidden among at least {least} sites" in found
    assert (state, "any one other can read" in found) == (("missing", True) if least == 2 else ("ok", False))
    assert ("three sites or more" in remedy) == (least == 2)


class ConnectProxy(socketserver.StreamRequestHandler):
    """A proxy that knows one method: CONNECT to a host and port."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        if not (line := self.rfile.readline().decode()):
            return  # of the check of the port
        self.asked.append(line.strip())
        while self.rfile.readline().strip():
            pass
        host, _, port = line.split()[1].rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            here: list[socket.socket] = [self.connection, there]
            while ready := select.select(here, [], [], 30)[0]:
                for each in ready:
                    if not (data := each.recv(2**16)):
                        return
                    here[1 - here.index(each)].sendall(data)


def test_a_check_goes_through_the_proxy_of_the_environment(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    approval = joined(capsys, port)
    with serving(port), socketserver.ThreadingTCPServer(("127.0.0.1", 0), ConnectProxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            at = int(proxy.server_address[1])
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{at}")
            monkeypatch.setenv("NO_PROXY", "")
            found = states(approval)
        finally:
            proxy.shutdown()
            thread.join()
    assert {state for state, _, _ in found.values()} == {"ok"} and "certificate" not in found
    assert f"127.0.0.1:{at} (of the proxy in HTTPS_PROXY for localhost)" in found["port"][1]
    assert ConnectProxy.asked == [f"CONNECT localhost:{port} HTTP/1.1"]


def test_another_server_at_the_address_is_recognised(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    approval = joined(capsys, port)
    create_authority(Path("study.sites"), ["localhost"])  # what an attacker on the way has: the name, but not the authority
    with serving(port):
        certificate = states(approval)["certificate"]
        assert certificate[0] == "broken" and "something else answers there" in certificate[2]


def test_a_server_with_another_key_is_recognised(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    approval = joined(capsys, port)
    with serving(port) as service:
        assert states(approval)["coordinator"][0] == "ok"
        service.revoke(0)
        found = states(approval)["coordinator"]
        assert found[0] == "broken" and "revoked" in found[1] and found[2] == "ask the coordinator for a new approval"
    # Somebody who has stolen the certificate, but not the coordinator's key.
    fedbo(capsys, "site", "new", "elsewhere")
    other = ServiceFolder.create(Path("stolen.sites"), ServiceFolder(Path("study.sites")).terms, f"https://localhost:{port}")
    for name in ("server.pem", "server.key"):
        shutil.copy(Path("study.sites", name), other.path / name)
    shutil.rmtree("study.sites")
    other.path.rename("study.sites")
    with serving(port):
        found = states(approval)["coordinator"]
        assert found[0] == "broken"


def test_a_port_that_answers_without_tls_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        approval = joined(capsys, int(listener.getsockname()[1]))

        def answer() -> None:
            for _ in range(2):
                with closing(listener.accept()[0]) as accepted:
                    accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        found = states(approval)
        thread.join()
    assert found["port"][0] == "ok" and found["certificate"][0] == "broken" and "no TLS" in found["certificate"][1]


def test_every_byte_that_left_is_listed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing has left" in refused(capsys, "sent", ".")
    log = AuditLog(Path("north/runs/ab/audit.jsonl"))
    log.sent("POST /v1/sync", b"x" * 300, sequence=1)
    log.record("sent again", sequence=1)
    log.sent("POST /v1/sync", b"y" * 10, sequence=2)
    log.close()
    found = fedbo(capsys, "sent", "north")["sent"]
    assert [(each["bytes"], each["sequence"], each["contents"]) for each in found] == [
        (300, 1, "no report"),
        (10, 2, "no report"),
    ]
    assert main(["sent", "north/runs/ab/audit.jsonl"]) == 0
    assert "2 bodies, 310 bytes" in capsys.readouterr().out
    path = Path("north/runs/ab/audit.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"bytes": 300', b'"bytes": 299'))
    assert "does not follow the one before" in refused(capsys, "sent", "north")


def test_a_site_accepts_only_the_study_whose_fingerprint_was_read_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedbo(capsys, "site", "new", "north")
    fedbo(capsys, "site", "new", "east")
    told = fedbo(capsys, "approve", "north/request.json", "--study=study.toml", "--endpoint=https://localhost:1")
    accept = ["site", "accept", told["approval"]]
    assert "compare it again" in refused(capsys, *accept, "0000-" * 7 + "0000", "--site", "north")
    assert "is of another key" in refused(capsys, *accept, told["study"], "--site", "east")
    assert "is not the folder of a site" in refused(capsys, *accept, told["study"])
    assert not Path("north/approval.json").exists() and SiteFolder(Path("north")).policy().studies == ()
    fedbo(capsys, *accept, told["study"].upper(), "--site", "north")
    fedbo(capsys, *accept, told["study"], "--site", "north")
    assert SiteFolder(Path("north")).policy().studies == (told["study"],)
    Path("north/policy.toml").write_text('"studies" = []\n')
    assert "was not found; add" in refused(capsys, *accept, told["study"], "--site", "north")


@pytest.mark.parametrize("wrong", ["", "{}", '{"fedbo": "request"}', "\x1b[2J"])
def test_files_of_others_are_refused_in_one_line(wrong: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("request.json").write_text(wrong)
    for arguments in (["approve", "request.json", "--study", "study.toml"], ["preflight", "request.json"]):
        assert "\x1b" not in refused(capsys, *arguments)
    assert "cannot be read" in refused(capsys, "approve", "missing.json", "--study", "study.toml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("join", "north.json", "missing.py:response"),
        ("join", "north.json", "objective.py:missing"),
        ("join", "north.json", "missing_module:response"),
        ("join", "missing.json", "objective.py:response"),
        ("join", "study.toml", "objective.py:response"),
        ("serve", "missing.toml"),
        ("serve", "study.toml", "--service", "missing"),
        ("approve", "missing.json", "--study", "study.toml"),
        ("revoke", "0", "--study", "missing.toml"),
        ("preflight", "missing.json"),
        ("sent", "missing"),
        ("site", "accept", "missing.json", "ab12", "--site", "north"),
        ("site", "rotate", "missing.json", "--site", "north"),
    ],
    ids=" ".join,
)
def test_what_is_missing_is_named_in_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    joined(capsys, free_port())
    said = refused(capsys, *arguments)
    assert next(word for word in ("missing", "study.toml") if word in " ".join(arguments)) in said
