"""Laws of rounds: when they may close, and when they must, if all agents are asked."""

from __future__ import annotations

from typing import Any

from fedbo.algorithms.base import Private
from fedbo.algorithms.messages import declared_size, varies
from fedbo.coordinator.kernel.exchange import InRounds, Rounds
from fedbo.testing.contract import need
from tests.random_studies.laws.troubles import Troubles
from tests.random_studies.run_tables import NEAR, RunTables


class RoundCauses:
    """The conditions for closing a round, if all agents are asked."""

    def __init__(self, run: RunTables, troubles: Troubles) -> None:
        self.run, self.troubles, self.exchange = run, troubles, run.exchange
        problem, algorithm = run.task.problem, run.task.algorithm
        first = algorithm.upload(problem) is not None and algorithm.sends(0)  # where all agents take part, targets or not
        self.everybody = set(range(problem.n_agents)) if first else set(problem.targets)
        self.targets, download = set(problem.targets), algorithm.download(problem)
        masked = run.job.budget.secure_aggregation is not None
        self.down = 0 if masked or varies(download) else declared_size(download)
        self.closed, self.opened, self.came = 0, 0.0, 0
        self.committed: set[int] = set()
        self.quiet: set[int] = set()
        self.sending: dict[int, int] = {}
        self.working: set[int] = set()
        turns = None if algorithm.upload(problem) is None else run.exchange.selection.concurrency
        self.most = (run.environment.detection is None and turns) or problem.n_agents
        self.k, self.least = getattr(self.exchange, "k", None), getattr(self.exchange, "minimum", 1)
        asks_all = self.exchange.selection.who == "all" and not isinstance(algorithm, Private)
        adapts = getattr(self.exchange, "adapts", False)
        self.follows = (
            isinstance(self.exchange, InRounds)
            and self.exchange.oldest is None
            and asks_all
            and not adapts
            and run.environment.detection is None
        )

    def line(self, record: Any) -> None:
        """Process an event."""
        kind, agent = record.kind, record.agent
        if kind == "round":
            need(not self._down, f"round {self.closed} closed while the coordinator was down")
            most = self.run.task.problem.n_agents * self.down
            draws = self.exchange.selection.concurrency is not None  # an agent may be drawn more than once before an update
            fits = not self.down or (record.bytes % self.down == 0 and (record.bytes <= most or draws))
            need(fits, f"round {record.round} sent {record.bytes} bytes")
            if self.follows:
                need(self._may(record.time), f"round {self.closed} closed too early, or with nobody")
            self.closed, self.opened, self.came = self.closed + 1, record.time, 0
            self.committed.clear()
            self.quiet.clear()
        elif kind == "started":
            self.sending.pop(agent, None)
            self.working = (self.working | {agent}) - self.troubles.gone.keys()
            need(len(self.working) <= self.most, f"{len(self.working)} agents work at once")
        if kind == "finished":
            self.working.discard(agent)
        if kind == "finished" and self.run.task.algorithm.sends(record.step):
            self.quiet.add(agent)  # until it turns out that it has sent something
        elif kind == "sent":
            self.quiet.discard(agent)
            self.sending[agent] = record.step
        elif kind in ("arrived", "late", "rejected"):
            duplicate = record.reason == "duplicate"
            if self.sending.get(agent) == record.step and not duplicate:
                del self.sending[agent]
                self.committed.add(agent)
                self.came += kind == "arrived"

    @property
    def _down(self) -> bool:
        return self.troubles.is_down

    def _present(self) -> set[int]:
        over = self.troubles.done.keys() | self.troubles.gone.keys() | self.troubles.off
        return {agent for agent in self.everybody - over if agent in self.targets or not self.closed}

    def _may(self, now: float) -> bool:
        everybody = self._present() <= self.committed | self.quiet
        limit = self.exchange.deadline_of(Rounds(self.closed))
        enough = self.k is not None and self.came >= self.k
        return everybody or enough or (limit is not None and self.came >= self.least and now >= self.opened + limit - NEAR)

    def _must(self, now: float) -> bool:
        """Return whether the round should have closed before now; agents whose last message is on its way count as missing."""
        if self._down or not self.committed - self.troubles.done.keys() - self.troubles.gone.keys():
            return False
        under_way = {agent for agent in self.sending if agent not in self.troubles.gone}
        # Who sits a round out under a Bernoulli model is back with the answer, which the log does not show.
        sits_out = any(hasattr(self.run.environment.of(agent).availability, "probability") for agent in self.troubles.absent)
        everybody = self._present() <= self.committed and not under_way and not sits_out
        limit = self.exchange.deadline_of(Rounds(self.closed))
        enough = self.k is not None and self.came >= self.k
        return everybody or enough or (limit is not None and self.came >= self.least and now > self.opened + limit + NEAR)

    def rest(self, now: float) -> None:
        """Check that no round was due to close before the time moved on to `now`."""
        if self.follows:
            need(not self._must(now), f"round {self.closed} should have closed before {now}")

    def end(self) -> None:
        """Check that no round that could close was left open."""
        if not self.run.ends_early and self.follows:
            left = self.committed - self.troubles.done.keys() - self.troubles.gone.keys() - self.troubles.absent
            need(not left, f"round {self.closed} never closed, to which agents {sorted(left)} had reported")
