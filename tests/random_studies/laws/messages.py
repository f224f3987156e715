"""Laws of messages: each sent message, its fate, and whether that fate was possible."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from fedbo.algorithms.base import Private
from fedbo.algorithms.messages import declared_size, varies
from fedbo.coordinator.environment.faults import (
    Corruption,
    Delay,
    Duplication,
    Lie,
    Loss,
    NetworkPartition,
    Reordering,
    Restart,
)
from fedbo.coordinator.environment.timing import Constant
from fedbo.testing.contract import need
from tests.random_studies.laws.troubles import Troubles
from tests.random_studies.run_tables import NEAR, RunTables


class MessageCauses:
    """The sent messages, their fates, and whether these were possible."""

    def __init__(self, run: RunTables, troubles: Troubles) -> None:
        self.run, self.troubles, self.world = run, troubles, run.environment
        self.plan: tuple[Any, ...] = run.environment.plan
        problem, algorithm = run.task.problem, run.task.algorithm
        # None where messages differ in length, or masks come with them.
        masked = run.job.budget.secure_aggregation is not None
        self.up = None if masked or varies(algorithm.upload(problem)) else declared_size(algorithm.upload(problem))
        self.down = None if masked or varies(algorithm.download(problem)) else declared_size(algorithm.download(problem))
        self.sent: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.lost: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.alive: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.before: Any = None
        self.fate: dict[tuple[int, int], list[str]] = defaultdict(list)
        self.heard: set[tuple[int, int]] = set()
        self.rounds = 0
        self.base: dict[tuple[int, int], int] = {}
        self.must_be_lost: tuple[float, int, int] | None = None

    def line(self, record: Any) -> None:
        """Process an event."""
        kind, key = record.kind, (record.agent, record.step if record.answer is None else record.answer)
        if self.must_be_lost is not None:
            need((record.time, *key) == self.must_be_lost and kind == "lost", "a message passed where its way was cut")
        self.must_be_lost = None
        self.rounds += kind == "round"
        if kind == "started" and not record.again:
            self.base[key] = self.rounds
        elif kind == "falsified":
            lies = any(isinstance(fault, Lie) and key[0] in fault.agents for fault in self.plan)
            need(lies and key not in self.sent, f"message {key} was falsified for no reason")
        elif kind in ("sent", "lost", "arrived", "late", "rejected", "delivered", "missed"):
            getattr(self, f"_{kind}")(record, key)
        self.before = record

    def _sent(self, record: Any, key: tuple[int, int]) -> None:
        need(self.up in (record.bytes, None), f"message {key} has {record.bytes} bytes, {self.up} are declared")
        if record.again:
            causes = self.lost[key] + (self.sent[key] if self.replays(key[0]) else [])
            need(any(abs(record.time - time - self.world.retry) < NEAR for time in causes), "sent again for no reason")
        else:
            need(key not in self.sent, f"message {key} was sent twice")
        self.sent[key].append(record.time)
        self.alive[key].append(record.time)
        if self.troubles.cut(key[0], record.time):
            self.must_be_lost = (record.time, *key)

    def replays(self, agent: int) -> bool:
        return any(isinstance(f, Corruption) and f.how == "replay" and agent in f.agents for f in self.plan)

    def _lost(self, record: Any, key: tuple[int, int]) -> None:
        way, why = record.direction, record.reason
        fits = self.up in (record.bytes, None) if way == "up" else record.bytes == 0 or self.down in (record.bytes, None)
        need(fits, f"message {key} was lost with {record.bytes} bytes")
        if why == "fault":
            fault = self.plan[record.fault]
            need(isinstance(fault, Loss) and key[0] in fault.agents and fault.direction in (way, "both"), "lost for no reason")
        else:
            is_cut = self.troubles.cut(key[0], record.time, surely=False)
            need({"partition": is_cut, "coordinator_down": self.troubles.is_down}[why], "lost for no reason")
        if way == "up":
            need(key in self.sent, f"message {key} was lost before it was sent")
            self.lost[key].append(record.time)
            if (self.before.kind, self.before.agent, self.before.step) == ("sent", *key):
                self.alive[key].pop()  # lost when it was sent, and not at the door

    def _passes(self, record: Any, key: tuple[int, int]) -> None:
        need(key in self.sent and not self.troubles.cut(key[0], record.time), "a message arrived through a cut")
        need(not self.troubles.is_down, "a message arrived at a coordinator that was down")
        models, link = self.world.of(key[0]), self.world.link
        cut_short = any(isinstance(fault, Corruption) and fault.how == "shape" for fault in self.plan)
        least, size = 0.0, self.up or 0
        least += size / (models.rate("up") or math.inf)
        least += size / link if link and not cut_short else 0.0
        steady, way = isinstance(models.latency, Constant) and self.up is not None, models.latency
        least += way.mean if isinstance(way, Constant) else 0.0
        ages = [record.time - time for time in (self.sent if self.replays(key[0]) else self.alive)[key]]
        need(bool(ages), "a message arrived all of whose transmissions had been lost")
        need(max(ages) >= least - NEAR, "faster than its way allows")
        detours = any(isinstance(f, Delay | Reordering | Duplication | Corruption) for f in self.plan)
        if steady and not detours and not link:
            need(min(abs(age - least) for age in ages) < NEAR, f"it took {ages}, not {least}")

    def _arrived(self, record: Any, key: tuple[int, int]) -> None:
        self._passes(record, key)
        need(not {"arrived", "late"} & {*self.fate[key]}, f"message {key} took effect twice")
        detained = any(isinstance(fault, Duplication) for fault in self.plan) or self.replays(key[0])
        need(detained or "given up" not in self.fate[key], "a message took effect that had been given up")
        if self.run.exchange.is_synchronous or getattr(self.run.exchange, "k", None) is not None:
            passed = self.rounds - self.base[key]
            need(record.staleness == passed, f"message {key} is {record.staleness} rounds old, and {passed} have closed")
        self.fate[key].append("arrived")

    def _late(self, record: Any, key: tuple[int, int]) -> None:
        self._passes(record, key)
        # Masks of one round hide nothing in another, and a sampled message joins no other round's sample.
        drops = not self.run.exchange.accepts_late or isinstance(self.run.task.algorithm, Private)
        need(drops and self.rounds > self.base[key], f"message {key} was in time")
        need(not {"arrived", "late"} & {*self.fate[key]}, f"message {key} took effect, and was late")
        self.fate[key].append("late")

    def _rejected(self, record: Any, key: tuple[int, int]) -> None:
        why = record.reason
        if record.answer is not None:
            need(self.run.suffers(Duplication), f"answer {key} came twice for no reason")
        elif why == "given_up":
            over = len(self.sent[key]) == self.world.attempts and not {"arrived", "late"} & {*self.fate[key]}
            need(over, f"message {key} was given up for no reason")
            self.fate[key].append("given up")
        else:
            self._passes(record, key)
            if why == "duplicate":
                doubled = self.run.suffers(Duplication) or self.run.suffers(Corruption)
                before = {"arrived", "late", "refused"} & {*self.fate[key]}
                need(doubled and bool(before), f"message {key} was taken for a duplicate")
            else:
                private = isinstance(self.run.task.algorithm, Private)  # whose held messages keep others out
                refuses = why == "unusable" and getattr(self.run.task.algorithm, "refuses", False)
                may = why == "stale" or private or refuses or self.run.suffers(Corruption)
                need(may, f"message {key} was refused: {why}")
                self.fate[key].append("refused")

    def _delivered(self, record: Any, key: tuple[int, int]) -> None:
        need(self.down in (record.bytes, None), f"answer {key} has {record.bytes} bytes, {self.down} are declared")
        need(not self.troubles.cut(key[0], record.time), f"answer {key} arrived through a cut")
        over = key[0] in self.troubles.done or key[0] in self.troubles.gone
        need(not over, f"answer {key} arrived after its agent's end")
        self.heard.add(key)

    def _missed(self, record: Any, key: tuple[int, int]) -> None:
        need(key not in self.heard, f"answer {key} arrived and was missed")
        if record.reason == "agent_ended":
            ended = {*self.troubles.done, *self.troubles.gone, *self.troubles.absent}  # some absences have no return
            need(key[0] in ended, f"agent {key[0]} had not ended")
            return
        need(record.attempts == self.world.attempts, f"answer {key} was missed for no reason")
        losing = (fault for fault in self.plan if isinstance(fault, Loss | NetworkPartition | Restart))
        need(any(key[0] in getattr(fault, "agents", key) for fault in losing), f"answer {key} was lost for no reason")

    def end(self) -> None:
        """Check that each message has a fate."""
        if not self.run.ends_early:
            unsettled = [key for key in self.sent if not self.fate[key] and key[0] not in self.troubles.gone]
            need(not unsettled, f"nothing became of the messages {unsettled}")
