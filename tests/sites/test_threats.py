"""What a coordinator that nobody should trust can and cannot do to a site, and what leaves a site at all: see decision 017."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.rows import read_table
from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import Inbound
from fedbo.algorithms.streams import COORDINATOR
from fedbo.sites.audit import read_sent
from fedbo.sites.documents import Approval
from fedbo.sites.errors import DocumentError, PolicyError, SignatureError, SitesError
from fedbo.sites.folders import SiteFolder
from fedbo.sites.keys import PrivateKey
from fedbo.sites.orders import decode_order, encode_order
from fedbo.sites.terms import load_terms, public_terms
from fedbo.sites.wire import answer_body, sign_answer, unpack_reply
from fedbo.study.study import load_study
from tests.sites.direct import sites_document
from tests.sites.hostile import Trap
from tests.sites.loopback import SiteThreads, arrange
from tests.sites.sync_study import TERMS
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, objectives

CODE = "import pathlib\npathlib.Path({trap!r}).touch()\nclass E: pass\ndef f(x): return 0.0\n"


def terms(**changed: Any) -> dict[str, Any]:
    found = public_terms(load_study(sites_document(BOX, AGENTS)))
    return {**found, "document": {**found["document"], **changed}}


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithm": [{"name": "{evil}:E"}]},
        {"algorithm": [{"name": "fts", "label": "a"}, {"name": "{evil}:E"}]},
        {"exchange": {"mode": "{evil}:E"}},
        {"objective": {"name": "python_function", "function": "{evil}:f", "low": [0.0], "high": [1.0]}},
        {"objective": {"name": "{evil}:E"}},
        {"evaluation": {"on_error": "{evil}:E"}},
        {"timing": {"clock": "wall", "evaluation": {"model": "{evil}:E"}}},
        {"agents": {"initial": 2, "initial_file": "/etc/passwd"}},
        {"hosting": {"kind": "dedicated", "address": "ray://attacker.example:10001"}},
        {"sweep": {"algorithm.0.name": ["{evil}:E"]}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_terms_that_name_code_or_files_run_and_read_nothing(changed: dict[str, Any], tmp_path: Path) -> None:
    trap, evil = tmp_path / "trap", tmp_path / "evil.py"
    evil.write_text(CODE.format(trap=str(trap)))
    hostile = eval(repr(changed).replace("{evil}", str(evil)))  # noqa: S307
    with pytest.raises(DocumentError, match="refused|invalid|not those of a study|leave out settings"):
        load_terms(terms(**hostile))
    assert not trap.exists()
    load_terms(terms())


def test_a_coordinator_cannot_change_the_terms_after_the_approval(tmp_path: Path) -> None:
    """A site compares the fingerprint once. Every other file that the coordinator signs later has another one."""
    arranged = arrange(load_study(sites_document(BOX, AGENTS)), tmp_path)
    approval = Approval.read(arranged.approvals[0])
    own = PrivateKey.read(arranged.service / "coordinator.key")
    fields = {name: getattr(approval, name) for name in type(approval).model_fields if name != "signature"}
    policy = SiteFolder.of(arranged.approvals[0]).policy()
    policy.admit(approval, "observations", "draws", None)
    for change in ({"terms": terms(seed=5)}, {"terms": {**approval.terms, "agents": 9}}, {"nonce": "ab" * 32}):
        with pytest.raises(PolicyError, match="studies does not list the study"):
            policy.admit(Approval.signed(own, **fields | change), "observations", "draws", None)


def order() -> bytes:
    inbox = (Inbound(COORDINATOR, 1, 0.5, {"mean": np.ones(3)}),)
    return encode_order(StepRequest(agent=1, step=2, lease=3, inbox=inbox), TERMS)


def test_hostile_orders_run_no_code_and_take_no_memory(tmp_path: Path) -> None:
    """Of a coordinator with the right key: pickles, claims of gigabytes, and 2,000 damaged orders."""
    trap, sound = tmp_path / "trap", order()
    assert decode_order(sound, TERMS).lease == 3
    hostile = [pickle.dumps(Trap(trap)), b"", sound[:-1], sound + b"x", b"\xff" * len(sound), bytes(10**6)]
    # The number of messages, and the length of the first one.
    hostile += [sound[:18] + struct.pack("<H", 2**16 - 1) + sound[20:], sound.replace(struct.pack("<I", 24), b"\xff" * 4)]
    rng = np.random.default_rng(0)
    for _ in range(2000):
        damaged = bytearray(sound)
        for place in rng.integers(len(sound), size=3):
            damaged[place] = rng.integers(256)
        hostile.append(bytes(damaged))
    tracemalloc.start()
    try:
        for data in hostile:
            for read in (lambda data: decode_order(data, TERMS), unpack_reply):
                try:
                    read(data)
                except SitesError as error:
                    assert "\n" not in str(error)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
    assert not trap.exists()


def test_an_answer_counts_for_the_request_that_it_answers_alone() -> None:
    coordinator, stranger = PrivateKey.drawn(), PrivateKey.drawn()
    first, second = (stranger.sign(text) for text in (b"first", b"second"))
    answer = sign_answer(coordinator, first, b"body")
    assert answer_body(coordinator.public, first, answer) == b"body"
    with pytest.raises(SignatureError):
        answer_body(coordinator.public, second, answer)  # an earlier answer, sent again
    with pytest.raises(SignatureError):
        answer_body(coordinator.public, first, sign_answer(stranger, first, b"body"))  # by a proxy that ends TLS
    with pytest.raises(SitesError):
        answer_body(coordinator.public, first, answer[:-4] + b"evil")


@pytest.mark.parametrize(
    "share", ["scores", *(pytest.param(share, marks=pytest.mark.long) for share in ("nothing", "observations"))]
)
def test_no_value_and_no_point_leaves_a_site_that_does_not_share_them(share: str, tmp_path: Path, monkeypatch: Any) -> None:
    """All that a site has sent is searched for the eight bytes of each value and coordinate that it has observed."""
    monkeypatch.chdir(tmp_path)
    study = load_study(sites_document(BOX, AGENTS, sites={"share": share}))
    arranged = arrange(study, tmp_path)
    sites = SiteThreads(arranged, objectives("quadratic", 4, **QUADRATIC))
    arranged.serve()
    for agent, summary in sites.finish().items():
        (path,) = summary.directory.glob("observations-*.parquet")
        rows = read_table(path).to_pylist()
        (log,) = (tmp_path / f"site-{agent}").glob("runs/*/audit.jsonl")
        left = b"".join(body for _, body in read_sent(log))
        assert len(rows) == 6 and len(left) > 1000
        values = {struct.pack("<d", row["value"]) in left for row in rows}
        inner = [number for row in rows for number in row["x"] if 0.0 < number < 1.0]  # zeros are everywhere
        points = {struct.pack("<d", number) in left for number in inner}
        assert values == {share != "nothing"}, agent
        assert points == {share == "observations"}, agent
