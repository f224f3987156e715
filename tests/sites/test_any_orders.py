"""A site under a coordinator that sends any well-formed orders: what leaves it is bounded by what it has accepted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import Inbound, Payload
from fedbo.algorithms.messages import encode
from fedbo.algorithms.streams import COORDINATOR
from fedbo.sites.errors import PolicyError, SitesError
from fedbo.sites.orders import decode_order, encode_order
from fedbo.sites.release import SiteReport
from fedbo.sites.terms import SyncTerms, cost_of, last_step, load_terms, most_cost, public_terms, sync_terms
from fedbo.sites.work import SiteWork
from fedbo.study.study import Study, load_study
from tests.sites.direct import Killed, sites_document
from tests.sites.test_remote_sites import BOX

MOST = 20  # evaluations that the policy of the site allows
SECRET = {"share": "scores"}
METHODS: dict[str, dict[str, Any]] = {
    "fts": {"algorithm": [{"name": "fts", "every": 1, "features": 10}]},
    "votes": {"algorithm": [{"name": "dp_share_best", "every": 1, "points": 9, "epsilon": 0.5}]},
    "means": {"algorithm": [{"name": "dp_fed_pne", "epsilon": 1.0}], "budget": {"pulls": 12}, "agents": {}},
}


@dataclass
class Liar:
    """A coordinator that draws its orders at random, and counts what the site reports on them."""

    terms: SyncTerms
    last: int
    draws: Random
    left: int
    lease: int = 0
    step: int = 0
    refused: None = None
    lost: bool = False
    ended: int | None = None
    messages: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    reports: int = 0

    def next_order(self, timeout: float) -> StepRequest | None:
        """Order the present step again, the next one, or any other; in any case one that passes the wire."""
        if not self.left:
            self.ended = self.last
            return None
        self.left, self.lease = self.left - 1, self.lease + 1
        anywhere = self.draws.random() < 0.02
        self.step = self.draws.randrange(self.last + 5) if anywhere else self.step + self.draws.choice((0, 0, 1))
        inbox = tuple(self._answer() for _ in range(self.draws.choice((0, 0, 1, 2))))
        restore, speaks = self.draws.choice(("", "before", "checkpoint")), self.draws.random() < 0.8
        order = StepRequest(1, self.step, self.lease, inbox=inbox, speaks=speaks, restore=restore)
        return decode_order(encode_order(order, self.terms), self.terms)

    def _answer(self) -> Inbound:
        rng, declared = np.random.default_rng(self.draws.randrange(2**32)), self.terms.download or {}
        payload: Payload = {}
        for name, one in declared.items():
            shape = [2 if length is None else length for length in one.shape]
            whole = np.dtype(one.dtype).kind == "i"
            payload[name] = rng.integers(0, 3, shape) if whole else rng.random(shape).astype(one.dtype)
        return Inbound(COORDINATOR, step=self.step, sent=0.0, payload=payload)

    def evaluating(self, lease: int | None) -> None:
        if self.draws.random() < 0.05:
            raise Killed

    def report(self, report: SiteReport) -> None:
        self.reports += 1
        if report.payload:
            assert self.terms.upload is not None
            self.messages[report.step].add(encode(report.payload, self.terms.upload))
        self.evaluating(None)

    def answer(self, number: int, data: bytes) -> None:
        raise AssertionError("no letters without masks")

    def study_time(self) -> float | None:
        return 0.0


class Counted:
    """An objective whose values are never equal, and which counts its calls."""

    best_value = None

    def __init__(self) -> None:
        self.calls = 0

    def evaluate(self, x: Any, rng: Any) -> float:
        self.calls += 1
        return float(np.sin(self.calls) - np.sum(x))

    def score(self, x: Any) -> None:
        return None


def study_of(method: str) -> Study:
    tables: dict[str, Any] = {"sites": SECRET, "agents": {"initial": 2, "checkpoint": 2}, "budget": {"iterations": 6}}
    return load_terms(public_terms(load_study({**sites_document(BOX, 3), **tables, **METHODS[method]})))


def played(method: str, folder: Path, seed: int, orders: int) -> tuple[Liar, int]:
    """Let a site carry out so many orders; one that ends or is killed starts again. Return the liar and the evaluations."""
    study, objective = study_of(method), Counted()
    liar = Liar(sync_terms(study), last_step(study, 1), Random(seed), orders)
    while liar.ended is None:
        try:
            SiteWork(study, 1, objective, folder, MOST).run(liar)
        except (Killed, PolicyError):
            pass
        except SitesError as error:
            assert "the coordinator orders step" in str(error)
            liar.step = min(liar.step, liar.last)
    return liar, objective.calls


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seeds", [range(1), *(pytest.param(range(k, k + 7), marks=pytest.mark.long) for k in range(1, 71, 7))])
def test_no_sequence_of_orders_takes_more_of_a_site_than_it_has_accepted(method: str, seeds: range, tmp_path: Path) -> None:
    """Orders of any step, again and again, with any state to return to, and kills of the site in between."""
    most = 0
    for seed in seeds:
        liar, evaluations = played(method, tmp_path / str(seed), seed, 60)
        assert evaluations <= MOST
        assert max(liar.messages, default=0) <= liar.last
        assert all(len(sent) == 1 for sent in liar.messages.values()), "one message of each step"
        spent, cost = cost_of(study_of(method), len(liar.messages)), most_cost(study_of(method), 1)
        assert cost is None or (spent is not None and spent.epsilon <= cost.epsilon)
        most = max(most, liar.reports)
    assert most > 5, "orders were carried out"
