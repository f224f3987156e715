"""What one site sends costs the server at most a constant times its bytes, and no number of it is beyond the terms."""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from hostile import Attacker
from sync_study import TERMS, SyncStudy

from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import Field, Inbound
from fedbo.sites import wire
from fedbo.sites.audit import SHORT, AuditLog, read_sent
from fedbo.sites.certificates import client_context
from fedbo.sites.server import SyncServer

FEATURES = 2000
MOST_RATIO = 5.0  # bytes of the coordinator's disk for each byte of a request


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
        bytes_sent, answers = _asked(study, server, 20)
    assert sum(np.arange(float(FEATURES)).tobytes() in answer for answer in answers) == 20
    assert log.stat().st_size < 2 * 8 * FEATURES + MOST_RATIO * bytes_sent
    assert [body for _, body in read_sent(log)] == answers
