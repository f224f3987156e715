"""Laws of steps: each agent's present step, and the possible durations of its evaluations."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.testing.contract import need
from tests.random_studies.laws.troubles import Troubles
from tests.random_studies.run_tables import NEAR, RunTables


class StepCauses:
    """The present step of each agent, and the possible durations of its evaluations."""

    def __init__(self, run: RunTables, troubles: Troubles) -> None:
        self.run, self.troubles = run, troubles
        self.waits = run.exchange.is_synchronous
        self.busy: dict[int, Any] = {}
        self.last: dict[int, int] = defaultdict(lambda: -1)
        self.void: set[int] = set()
        self.interrupted: dict[int, float] = {}
        self.begun: dict[tuple[int, int], float] = {}
        self.ended: dict[tuple[int, int], float] = {}
        self.rounds = 0
        self.held: dict[int, int] = {}
        self.failed: dict[int, int] = defaultdict(int)

    def line(self, record: Any) -> None:
        """Process an event."""
        kind, agent, step = record.kind, record.agent, record.step
        self.rounds += kind == "round"
        if kind == "started":
            self._started(record)
        elif kind == "finished":
            need(self.busy.pop(agent, None) == step, f"agent {agent} ended step {step}, which it was not at")
            need(agent not in self.void, f"agent {agent} ended step {step}, whose work was lost")
            need(not self.troubles.kept(agent), f"agent {agent} ended while something was in its way")
            self.ended[agent, step] = record.time
            self.held[agent] = self.rounds if self.waits and self.run.task.algorithm.sends(step) else -1
        elif kind == "failed":
            self.failed[agent] += 1
        elif kind == "absent" and agent not in self.busy and self.waits and self.sits_out(agent):
            self.last[agent] = step
        if agent in self.busy and kind in ("absent", "crashed", "hung"):
            self.interrupted.setdefault(agent, record.time)
            if kind == "crashed" or (kind == "absent" and self.run.environment.of(agent).leaving == "lost"):
                self.void.add(agent)
        if record.permanent:
            self.busy.pop(agent, None)

    def sits_out(self, agent: int) -> bool:
        """Return whether an agent that is absent before a step skips it."""
        return hasattr(self.run.environment.of(agent).availability, "probability")

    def _started(self, record: Any) -> None:
        agent, step = record.agent, record.step
        need(not self.troubles.kept(agent), f"agent {agent} began while something was in its way")
        need(agent not in self.troubles.gone and agent not in self.troubles.done, f"agent {agent} began after its end")
        if record.again:
            need(self.busy.get(agent) == step, f"agent {agent} began step {step} again, which it was not at")
            undecided = self.run.task.algorithm.queries is None and self.interrupted.get(agent) == self.begun.get((agent, step))
            need(agent in self.void or undecided, "a step was begun again for no reason")
            self.void.discard(agent)
        else:
            last = self.last[agent]
            need(agent not in self.busy and step == last + 1, f"agent {agent} began step {step} after step {last}")
            need(not self.waits or self.held.get(agent, -1) < self.rounds, "it did not wait for its round")
        self.interrupted.pop(agent, None)
        self.busy[agent], self.last[agent] = step, step
        self.begun[agent, step] = record.time

    def end(self) -> None:
        """Check the observations of each agent against its steps."""
        rows = defaultdict[tuple[int, int], list[Any]](list)
        for row in sorted(self.run.rows, key=lambda row: (row["started"], row["finished"])):
            rows[row["agent"], row["step"]].append(SimpleNamespace(**row))
        targets, task = self.run.task.problem.targets, self.run.task
        expected = {key for key in self.ended if key[0] in targets and (key[1] or task.budget_of(key[0]).initial)}
        empty = expected - rows.keys() if task.algorithm.queries is None else set[tuple[int, int]]()  # a decision on no point
        need(rows.keys() == expected - empty, f"steps {sorted(rows.keys() ^ expected)} have rows or have ended, and not both")
        for agent in targets:
            own = [(key[1], rows[key]) for key in sorted(rows) if key[0] == agent]
            self._counts(agent, [row for _, found in own for row in found])
            if self._planned(agent):
                self._lengths(agent, own)

    def _counts(self, agent: int, own: list[Any]) -> None:
        good = sorted((row for row in own if row.error is None), key=lambda row: row.t_n)
        counted = list(accumulate(row.pulls for row in good))
        need([row.t_n for row in good] == counted, f"agent {agent}: t_n is not the number of observations")
        failed = sum(row.error is not None and row.error != "forgotten in a crash" for row in own)
        need(failed == self.failed[agent], f"agent {agent}: {failed} rows failed, {self.failed[agent]} events tell of it")
        for row in own:
            if row.error == "forgotten in a crash":
                late = any(time >= row.finished for time in self.troubles.lost_state[agent])
                need(row.step % self.run.task.checkpoint > 0 and late, f"agent {agent} forgot step {row.step} for no reason")

    def _planned(self, agent: int) -> bool:
        """Return whether the durations of an agent follow from its models alone."""
        models, task = self.run.environment.of(agent), self.run.task
        return not (models.evaluation is None or models.evaluation.costs or task.slopes or task.problem.pulls)

    def _lengths(self, agent: int, own: list[tuple[int, list[Any]]]) -> None:
        """Check durations: a restarted step has numbers of its own, which change no later length."""
        models, policy, streams = self.run.environment.of(agent), self.run.task.policy, self.run.task.streams
        timing = models.evaluation
        assert timing is not None
        draw, once_more = (durations(lambda _: timing, f"evaluation time{more}", streams) for more in ("", " again"))
        factor = models.speed.factor(streams.of(agent).at(0).rng("speed class"))
        limit, number, again = policy.time_limit or math.inf, 0, -1
        for step, rows in own:
            now, first, points = self.begun[agent, step], rows[0], len({row.query for row in rows})
            known = first.t_n - (first.error is None or "forgotten" in first.error)
            took = self.troubles.work(agent, now, first.started)
            need(abs(took - models.decision(known)) < NEAR, f"agent {agent} decided on step {step} for {took}")
            now = first.started
            for place, row in enumerate(rows):
                need(abs(row.started - now) < NEAR, f"agent {agent} evaluated twice at once in step {step}, or paused")
                worked = self.troubles.work(agent, now, row.finished)
                if place >= points or abs(min(limit, factor * draw(agent, number + place)) - worked) >= NEAR:
                    later = range(again + 1, again + 2000)
                    found = (n for n in later if abs(min(limit, factor * once_more(agent, n)) - worked) < NEAR)
                    again = next(found, -1)
                    need(again >= 0, f"agent {agent} evaluated for {worked} in step {step}, which its model does not draw")
                now = row.finished
            number += points
            need(abs(now - self.ended[agent, step]) < NEAR, f"agent {agent} ended step {step} at another time than its rows")
