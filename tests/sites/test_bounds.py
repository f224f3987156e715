"""What one site sends costs the server at most a constant times its bytes, and no number of it is beyond the terms."""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import signal
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import Attacker, wait_for
from sync_study import TERMS, SyncStudy

from fedbo.actors.storage.rows import Row, RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Field, Inbound
from fedbo.objectives.outcome import Outcome
from fedbo.settings.records import changed
from fedbo.sites import mask_messages, orders, release, wire
from fedbo.sites.audit import read_sent
from fedbo.sites.certificates import client_context
from fedbo.sites.documents import SiteRequest
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import APPROVAL, POLICY, REQUEST, ServiceFolder, SiteFolder
from fedbo.sites.hosts import RemoteSites
from fedbo.sites.join import join_study
from fedbo.sites.release import SiteReport
from fedbo.sites.sent import sent_by
from fedbo.sites.serve import serve_study
from fedbo.sites.server import SyncServer
from fedbo.sites.terms import SyncTerms, sync_terms
from fedbo.sites.wire import Sync, WireError
from fedbo.study.study import Study, load_study
from tests.sites.direct import sites_document
from tests.sites.loopback import SiteThreads, arrange
from tests.sites.test_remote_sites import BOX, objectives

FEATURES = 2000
MOST_RATIO = 5.0  # bytes of the coordinator's disk for each byte of a request


# What is recorded.


def _asked(study: SyncStudy, server: SyncServer, requests: int) -> tuple[int, list[bytes]]:
    """Ask for the open order again and again, as a site that has lost each answer; return the bytes sent, and the answers."""
    port = server.start("127.0.0.1", 0, study.server_context())
    attacker, bytes_sent, answers = Attacker(study, port, [], seed=0), 0, list[bytes]()
    server.order(1, StepRequest(1, 1, 1, inbox=(Inbound(-1, 0, 0.0, {"mean": np.arange(float(FEATURES))}),)))
    context = client_context(study.approval(1, port).trust)
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context)) as connection:
        for _ in range(requests):
            request = attacker.request(attacker.sync())
            connection.request("POST", wire.SYNC, request)
            answers.append(connection.getresponse().read())
            bytes_sent += len(request)
    return bytes_sent, answers


def test_an_order_that_is_asked_for_again_and_again_is_recorded_once(tmp_path: Path) -> None:
    study = SyncStudy(tmp_path, terms=TERMS._replace(download={"mean": Field((FEATURES,))}))
    log = tmp_path / "audit.jsonl"
    with closing(study.server()) as server:
        bytes_sent, answers = _asked(study, server, 10)
    assert sum(np.arange(float(FEATURES)).tobytes() in answer for answer in answers) == 10
    assert log.stat().st_size < 2 * 8 * FEATURES + MOST_RATIO * bytes_sent
    assert [body for _, body in read_sent(log)] == answers


def test_answers_to_letters_that_a_study_has_not_are_refused_and_wake_nobody(tmp_path: Path) -> None:
    study = SyncStudy(tmp_path)
    with closing(study.server()) as server:
        port = server.start("127.0.0.1", 0, study.server_context())
        attacker = Attacker(study, port, [], seed=0)
        attacker.send(attacker.post(attacker.request(attacker.sync(answer=(7, b"unasked")))))
        assert study.refusals() == ["it answers a letter, but this study has none"]
        assert server.arrived(0.0) == [] and server.replies() == []


def test_a_report_of_another_step_than_ordered_is_recorded_and_does_not_count(tmp_path: Path) -> None:
    study = SyncStudy(tmp_path)
    with closing(study.server()) as server:
        attacker = Attacker(study, server.start("127.0.0.1", 0, study.server_context()), [], seed=0)
        sites = RemoteSites(server, RunFolder(tmp_path, RunKey(0, "ts", 0)), [0, 1], 60.0, None)
        sites.submit(StepRequest(1, 1, 1))
        report = orders.encode_report(StepReport(1, 2, 1, None, lease=1), study.terms)
        request = attacker.request(attacker.sync(seen=1, answered=1, reported=1, reports=((1, report),)))
        attacker.send(attacker.post(request), hang_up=True)  # the answer waits for news
        assert sites.ready(60.0).reports == [] and sites.busy()
        assert study.refusals() == ["a report of step 2 does not answer the order for step 1"]


# Numbers, by the records of the wire.

OF_A_SITE = {"wire._REQUEST", "wire._SYNC", "wire._REPORT", "orders._REPORT", "orders._TEXT", "mask_messages._HEAD"}
OF_THE_COORDINATOR = {"wire._ANSWER", "wire._REPLY", "orders._ORDER", "orders._LETTER", "mask_messages._MEMBER"}
SIGNED = {"wire._LENGTH"}  # part of what is signed, and never sent
BITS: dict[str, list[Any]] = {
    **{code: [1, 2**7, 2**8 - 1] for code in "B"},
    **{code: [2, 2**15, 2**16 - 1] for code in "H"},
    **{code: [2**20, 2**31 - 1, 2**31, 2**32 - 1] for code in "I"},
    **{code: [-1, 2**31 - 1, -(2**31)] for code in "i"},
    **{code: [2**31, 2**63 - 1, 2**63, 2**64 - 1] for code in "Q"},
    **{code: [-1, 2**63 - 1, -(2**63)] for code in "q"},
    **{code: [0, 1, 255] for code in "?"},
    **{code: [math.nan, math.inf, -math.inf, 1e300] for code in "d"},
}


def _places(form: struct.Struct) -> Iterator[tuple[int, str]]:
    """Yield the place of each number of a record, and its format."""
    place, count = 0, ""
    for code in form.format[1:]:
        if code.isdigit():
            count += code
            continue
        for _ in range(1 if code == "s" else int(count or 1)):
            if code != "s":
                yield place, code
            place += int(count) if code == "s" else struct.calcsize(f"<{code}")
        count = ""


def _changed(data: bytes, form: struct.Struct, begin: int = 0) -> Iterator[bytes]:
    """Yield bytes in which one number of the record at `begin` is another."""
    for place, code in _places(form):
        size = struct.calcsize(f"<{code}")
        for value in BITS[code]:
            new = bytes([value]) if code == "?" else struct.pack(f"<{code}", value)
            yield data[: begin + place] + new + data[begin + place + size :]


def _study(**tables: Any) -> Study:
    return load_study({**sites_document(BOX, 2, budget={"iterations": 3}), **tables})


def _report(terms: SyncTerms, **numbers: Any) -> SiteReport:
    row = Row(1, "search", 2, 0, "own", [0.1, 0.2], [0.1, 0.2], Outcome(1.5, 1.25), 3.0, 4.5, 4, 1)
    fields = {"agent": 1, "step": 2, "queries": 1, "payload": None, "lease": 3, "t_n": 4, "pulled": 4, "released": (row,)}
    return SiteReport(**{**fields, **numbers})


def _is_within(report: StepReport, terms: SyncTerms) -> bool:
    """Return whether a report is one that an agent of the study could make, and that a table can hold."""
    limits = [terms.last_step, terms.most_points, terms.most_evaluations, terms.most_evaluations]
    counts = [report.step, report.queries, report.t_n, report.pulled]
    rows = report.released if isinstance(report, SiteReport) else ()
    fine = all(0 <= count <= limit for count, limit in zip(counts, limits, strict=True)) and not report.reached
    points = [*report.retried, *(row.query for row in rows)]
    fine &= all(0 <= row.step <= terms.last_step and 0 <= row.t_n <= terms.most_evaluations for row in rows)
    return fine and all(0 <= point < terms.most_points for point in points)


def test_no_record_of_the_wire_is_left_out_here() -> None:
    found = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (wire, orders, mask_messages, release)
        for name, value in vars(module).items()
        if isinstance(value, struct.Struct)
    }
    assert found == OF_A_SITE | OF_THE_COORDINATOR | SIGNED


@pytest.mark.parametrize("share", ["nothing", "scores", "observations"])
def test_every_number_of_a_report_is_within_the_budget_or_refused(share: str) -> None:
    terms = sync_terms(_study(sites={"share": share, "streams": "study", "lease": 5.0}))
    released = () if share == "nothing" else _report(terms).released
    data = orders.encode_report(_report(terms, released=released, retried=(0,)), terms)
    records = {"report": (orders._REPORT, 0), "retried": (struct.Struct("<I"), orders._REPORT.size)}
    if released:
        kind = release._record(terms.dim, terms.share)
        form = "<" + "".join({"i4": "i", "u1": "B", "f8": "d"}[code[1:]] for _, code, *_ in kind.descr[:11])
        records["row"] = (struct.Struct(form), len(data) - kind.itemsize)
    refused = taken = 0
    for form, begin in records.values():
        for other in _changed(data, form, begin):
            try:
                taken += _is_within(orders.decode_report(1, 3, other, terms), terms) or pytest.fail(str(other))
            except WireError:
                refused += 1
    assert refused > 20 and orders.decode_report(1, 3, data, terms).t_n == 4


@pytest.mark.parametrize("name", ["step", "queries", "t_n", "pulled"])
def test_the_budget_itself_is_the_limit(name: str) -> None:
    terms = sync_terms(_study())
    assert (terms.last_step, terms.most_points, terms.most_evaluations) == (3, 2, 5)
    most = {"step": 3, "queries": 2, "t_n": 5, "pulled": 5}[name]
    at, beyond = (orders.encode_report(_report(terms, released=(), **{name: most + more}), terms) for more in (0, 1))
    assert getattr(orders.decode_report(1, 3, at, terms), name) == most
    with pytest.raises(WireError, match=f"beyond the budget of the study: {name} {most + 1}"):
        orders.decode_report(1, 3, beyond, terms)


def test_evaluations_are_the_limit_where_the_budget_counts_them() -> None:
    terms = sync_terms(_study(algorithm=[{"name": "fed_pne"}], budget={"pulls": 10**6}, agents={}))
    assert (terms.last_step, terms.most_evaluations) == (2 * 10**6, 10**6)


def test_every_other_number_of_a_site_is_refused_or_harms_that_site_alone(tmp_path: Path) -> None:
    """Each record that a site writes is changed in each number; nothing but a refusal is raised, and agent 0 goes on."""
    study = SyncStudy(tmp_path)
    report = orders.encode_report(SiteReport(1, 1, 1, None, lease=1), TERMS)
    body = wire.pack_sync(
        Sync(1, b"f" * 16, 0, 0, 0, 1, wire.chained(bytes(32), [(1, report)]), 0, False, False, ((1, report),))
    )
    bodies = [*_changed(body, wire._SYNC), *_changed(body, wire._REPORT, wire.SYNC_BYTES)]
    bodies += [body[:-2] + struct.pack("<H", size) for size in BITS["H"]]
    for number, other in enumerate(bodies):
        study.folder = tmp_path / str(number)
        with closing(study.server()) as server:
            _receive(study, server, 1, other)
            server.order(0, StepRequest(0, 1, 1))
            assert all(report.agent == 1 and _is_within(report, TERMS) for report in server.arrived(0.0))
            assert _receive(study, server, 0, wire.pack_sync(Sync(1, b"g" * 16, 0, 0, 0, 0, bytes(32), 0, False, False, ())))
        study._audit = None


def _receive(study: SyncStudy, server: SyncServer, agent: int, body: bytes) -> bool:
    """Pass a signed request of an agent to a server's machine; return whether it was taken."""
    attacker = Attacker(study, 0, [], seed=0)
    data = attacker.request(body, agent=agent)
    try:
        admitted = server._machine.admit(data[: wire.REQUEST_HEAD], wire.SYNC)
        server._machine.receive(admitted, body, 1, 0.0)
    except SitesError:
        return False
    return True


def test_every_number_of_a_message_of_masks_is_refused_by_name() -> None:
    data = mask_messages.message(mask_messages.MaskStep.GONE, 1, 5)
    for other in _changed(data, mask_messages._HEAD):
        try:
            kind, agent, number = mask_messages.head(other)
        except mask_messages.MaskingError:
            continue
        assert 0 <= agent < 2**32 and 0 <= number < 2**64 and kind in mask_messages.MaskStep


# The study of the others.


class Notes:
    """A display that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, words: str) -> None:
        self.lines.append(words)

    def start(self, rows: Any) -> None:
        pass

    def update(self, run: Any, done: int, total: int, best: float | None) -> None:
        pass

    def finish(self) -> None:
        pass


@pytest.mark.long
def test_a_site_that_lies_about_its_numbers_is_named_and_ends_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    """The other site finishes all of its steps; started again, the coordinator names the liar again, until it is replaced."""
    monkeypatch.chdir(tmp_path)
    encode, own = orders.encode_report, objectives("quadratic", 4, agents=2, noise=0.01)

    def lie(report: SiteReport, terms: SyncTerms) -> bytes:
        is_lie = report.agent == 1 and threading.current_thread().name != "spare"
        return encode(changed(report, t_n=2**63) if is_lie else report, terms)

    monkeypatch.setattr("fedbo.sites.client.encode_report", lie)
    table = {"share": "scores", "streams": "study", "lease": 1.0}
    arranged = arrange(_study(exchange={"mode": "immediate"}, sites=table), tmp_path)
    service, notes = ServiceFolder(arranged.service), [Notes(), Notes()]
    sites = SiteThreads(arranged, own)
    done = threading.Thread(target=_interrupt, args=(tmp_path / "site-0", notes[0]))
    done.start()
    with pytest.raises(KeyboardInterrupt):
        serve_study(arranged.study, arranged.listen, service, progress=notes[0])
    done.join()
    spare = threading.Thread(target=_replace, args=(service, tmp_path, own[1], notes[1]), name="spare")
    spare.start()
    result = serve_study(arranged.study, arranged.listen, service, progress=notes[1])
    spare.join()
    with pytest.raises(SitesError, match="revoked"):
        sites.finish()
    words = "agent 1, site site-1: a request was refused: a report has a number beyond the budget of the study: t_n"
    assert all(len(each.lines) == 1 and each.lines[0].startswith(words) for each in notes)
    assert Counter(row["agent"] for row in result.observations.to_pylist()) == {0: 5, 1: 5}


def _interrupt(site: Path, notes: Notes) -> None:
    """Interrupt the coordinator once a site has done all its steps, and another one was refused."""
    found = wait_for(lambda: notes.lines and b"step 3" in _sent(site), 60.0)
    os.kill(os.getpid(), signal.SIGINT)
    assert found


def _sent(site: Path) -> bytes:
    """Return in words what has left a site."""
    with contextlib.suppress(SitesError):
        return "; ".join(record["contents"] for record in sent_by(site)).encode()
    return b""


def _replace(service: ServiceFolder, folder: Path, own: Any, notes: Notes) -> None:
    """Give the place of agent 1 to another site once it is named."""
    assert wait_for(lambda: notes.lines, 60.0)
    service.revoke(1)
    site = SiteFolder.create(folder / "spare", "spare")
    approval = service.approve(SiteRequest.read(site.path / REQUEST), agent=1)
    approval.write(site.path / APPROVAL)
    allowed = f'studies = ["{approval.fingerprint}"]\nevaluations = 100\nshare = "scores"\nreveals = "observations"\n'
    (site.path / POLICY).write_text(allowed)
    join_study(site.path / APPROVAL, own, patience=60.0)
