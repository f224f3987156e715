"""What must hold at every line of a run's log, and of its tables at the end, computed anew from the log alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from typing import Any

from small_runs import Ran, Setting

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.faults import (
    Corruption,
    Crash,
    Delay,
    Duplication,
    Hang,
    Lie,
    Loss,
    NetworkPartition,
    Reordering,
    Restart,
    Slow,
)
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.messages import declared_size

NEAR = 1e-6
COORDINATOR = -2
BEGINS = {"hung": Hang, "crashed": Crash, "slowed": Slow, "cut": NetworkPartition, "down": Restart}
ENDS = {"woke": "hung", "restarted": "crashed", "recovered": "slowed", "joined": "cut", "up": "down"}


def check(setting: Setting) -> Ran:
    """Run a setting and check it, line by line."""
    ran = setting.run()
    troubles = Troubles(setting)
    followers = [troubles, Steps(setting, troubles), Messages(setting, troubles), Rounds(setting, troubles)]
    before = 0.0
    for record in ran.records:
        assert record.time >= before, "time went back"
        if record.time > before:
            followers[3].rest(record.time)
        before = record.time
        for follower in followers:
            follower.line(record)
    first = ran.outcome.next_time()
    whole = first is None or first <= setting.until
    for follower in followers:
        follower.end(ran, whole)
    return ran


def lasting(fault: Any) -> float:
    """Give for how long a fault acts."""
    lasts = fault.restart if isinstance(fault, Crash) else fault.duration
    return math.inf if lasts is None else float(lasts)


class Troubles:
    """Who is kept from working or cut off, and how much work each agent could have done by when."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.plan = setting, setting.world["plan"]
        self.open: dict[tuple[str, int], list[tuple[float, Any]]] = defaultdict(list)
        self.absent: set[int] = set()
        self.off: set[int] = set()
        self.gone: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self.lost_state: dict[int, list[float]] = defaultdict(list)
        self.struck: set[tuple[str, int, float]] = set()
        self.paces: dict[int, tuple[list[float], list[float], list[float]]] = defaultdict(lambda: ([0.0], [0.0], [1.0]))

    def line(self, record: Any) -> None:
        kind, agent = record.kind, record.agent
        if kind in ("absent", "returned", *BEGINS, *ENDS) and kind not in ("cut", "joined") and agent >= 0:
            assert agent not in self.gone and agent not in self.done, f"{kind} happened to agent {agent}, who is not there"
        if kind == "absent":
            assert agent not in self.absent
            self.absent.add(agent)
            self.off.add(agent)
        elif kind == "returned":
            self.absent.remove(agent)
        elif kind in BEGINS:
            self._begins(record)
        elif kind in ENDS:
            self._ends(record)
        elif kind == "done":
            self.done[agent] = record.time
        if agent >= 0 and not self.kept(agent):
            self.off.discard(agent)
        if kind in ("absent", "returned", *BEGINS, *ENDS) and agent >= 0:
            times, works, paces = self.paces[agent]
            works.append(works[-1] + (record.time - times[-1]) * paces[-1])
            times.append(record.time)
            paces.append(0.0 if self.kept(agent) else 1 / math.prod(f[0].factor for _, f in self.open["slowed", agent]))

    def _begins(self, record: Any) -> None:
        kind, agent = record.kind, record.agent
        self.struck.add((kind, agent, record.time))
        if record.detail == "for good":
            self.gone[agent] = record.time
            return
        if record.detail == "lost":
            self.lost_state[agent].append(record.time)
        if kind == "crashed":
            self.off.add(agent)
        fitting = [fault for fault in self.plan if type(fault) is BEGINS[kind] and (agent < 0 or agent in fault.agents)]
        if kind == "slowed":
            fitting = [fault for fault in fitting if f"{fault.factor:g} times" == record.detail]
        if kind == "crashed":
            fitting = [fault for fault in fitting if fault.state == record.detail and fault.restart is not None]
        assert fitting, f"{kind} without a cause"
        self.open[kind, agent].append((record.time, fitting))

    def _ends(self, record: Any) -> None:
        began = self.open[ENDS[record.kind], record.agent]
        lasted = [
            (time, fitting)
            for time, fitting in began
            if any(abs(record.time - time - lasting(fault)) < NEAR for fault in fitting)
        ]
        assert lasted, f"{record.kind} at {record.time}, but {ENDS[record.kind]} were {began}"
        began.remove(lasted[0])

    def kept(self, agent: int) -> bool:
        """Say whether an agent is kept from working."""
        return agent in self.absent or bool(self.open["hung", agent] or self.open["crashed", agent])

    def cut(self, agent: int, now: float, surely: bool = True) -> bool:
        """Return whether a partition cuts an agent off; that ends untold for agents at their end."""
        cuts = self.open["cut", agent]
        if agent in self.done or agent in self.gone:
            end = min if surely else max
            cuts = [time for time, fitting in cuts if now < time + end(map(lasting, fitting))]
        return bool(cuts)

    @property
    def is_down(self) -> bool:
        """Return whether the coordinator is down."""
        return bool(self.open["down", COORDINATOR])

    def work(self, agent: int, start: float, end: float) -> float:
        """Give how much an agent could work between two times."""
        times, works, paces = self.paces[agent]

        def until(time: float) -> float:
            place = bisect_right(times, time) - 1
            return works[place] + (time - times[place]) * paces[place]

        return until(end) - until(start)

    def end(self, ran: Ran, whole: bool) -> None:
        last = ran.outcome.time
        for kind, declared in BEGINS.items():
            for fault in self.plan:
                if type(fault) is not declared or fault.at is None or fault.at >= last:
                    continue
                for agent in getattr(fault, "agents", (COORDINATOR,)):
                    over = min(self.done.get(agent, math.inf), self.gone.get(agent, math.inf))
                    target = agent < 0 or agent in ran.core.rules.problem.targets
                    assert over <= fault.at or not target or (kind, agent, fault.at) in self.struck, f"{fault} never struck"
        if whole:
            lost = set(ran.core.rules.problem.targets) - self.gone.keys() - self.done.keys()
            if ran.core.rules.idles:  # others may never be asked again
                lost &= ran.core.state.rounds.active
            assert not lost, f"agents {lost} neither ended nor were lost"


class Steps:
    """What each agent is at, and how long each of its evaluations may have taken."""

    def __init__(self, setting: Setting, troubles: Troubles) -> None:
        self.setting, self.troubles = setting, troubles
        self.waits = setting.exchange.is_synchronous
        self.busy: dict[int, Any] = {}
        self.last: dict[int, int] = defaultdict(lambda: -1)
        self.void: set[int] = set()
        self.interrupted: dict[int, float] = {}
        self.begun: dict[tuple[int, int], float] = {}
        self.ended: dict[tuple[int, int], float] = {}
        self.rounds, self.held = 0, {}
        self.failed: dict[int, int] = defaultdict(int)

    def line(self, record: Any) -> None:
        kind, agent, step = record.kind, record.agent, record.step
        self.rounds += kind == "round"
        if kind == "started":
            self._started(record)
        elif kind == "finished":
            assert self.busy.pop(agent) == step and agent not in self.void
            assert not self.troubles.kept(agent), f"agent {agent} ended while something was in its way"
            self.ended[agent, step] = record.time
            self.held[agent] = self.rounds if self.waits and self.setting.algorithm.sends(step) else -1
        elif kind == "failed":
            self.failed[agent] += 1
        elif kind == "absent" and agent not in self.busy and self.waits and self.bernoulli:
            self.last[agent] = step
        if agent in self.busy and kind in ("absent", "crashed", "hung"):
            self.interrupted.setdefault(agent, record.time)
            if kind == "crashed" or (kind == "absent" and self.setting.models["leaving"] == "lost"):
                self.void.add(agent)
        if kind == "crashed" and record.detail == "for good":
            self.busy.pop(agent, None)

    @property
    def bernoulli(self) -> bool:
        return hasattr(self.setting.availability, "probability")

    def _started(self, record: Any) -> None:
        agent, step = record.agent, record.step
        assert not self.troubles.kept(agent), f"agent {agent} began while something was in its way"
        assert agent not in self.troubles.gone and agent not in self.troubles.done
        if record.detail == "again":
            assert self.busy[agent] == step
            undecided = self.setting.algorithm.queries is None and self.interrupted.get(agent) == self.begun[agent, step]
            assert agent in self.void or undecided, "a step was begun again for no reason"
            self.void.discard(agent)
        else:
            assert agent not in self.busy and step == self.last[agent] + 1
            assert not self.waits or self.held.get(agent, -1) < self.rounds, "it did not wait for its round"
        self.interrupted.pop(agent, None)
        self.busy[agent], self.last[agent] = step, step
        self.begun[agent, step] = record.time

    def end(self, ran: Ran, whole: bool) -> None:
        rows = defaultdict(list)
        for row in ran.rows:
            rows[row.agent, row.step].append(row)
        points = {key for key in self.ended if key[0] in ran.core.rules.problem.targets and (key[1] or self.setting.initial)}
        assert rows.keys() == points, "rows and finished steps differ"
        for agent in range(self.setting.agents):
            own = [(key[1], rows[key]) for key in sorted(rows) if key[0] == agent]
            self._counts(ran, agent, [row for _, rows in own for row in rows])
            self._lengths(agent, own)

    def _counts(self, ran: Ran, agent: int, own: list[Any]) -> None:
        good = [row for row in own if row.error is None]
        assert [row.t_n for row in good] == list(range(1, len(good) + 1)), "t_n is not the number of observations"
        known = ran.hosts.host.agents[agent].committed
        late_loss = ran.core.state.agents[agent].needs_restore  # it forgot, but has not begun again
        assert known.t_n == len(good) and (late_loss or ran.core.state.agents[agent].t_n == len(good))
        slow = [row for row in own if row.error and "took longer" in row.error]
        assert len(slow) == self.failed[agent]
        for row in own:
            if row.error == "forgotten in a crash":
                assert row.step % self.setting.checkpoint
                assert any(time >= row.finished for time in self.troubles.lost_state[agent])

    def _lengths(self, agent: int, own: list[tuple[int, list[Any]]]) -> None:
        """Nothing that was begun again shifts the length of what comes later: that has numbers of its own."""
        setting, streams = self.setting, Streams(self.setting.seed)
        draw, once_more = (
            durations(lambda agent: setting.evaluation, purpose, streams)
            for purpose in ("evaluation time", "evaluation time again")
        )
        factor = setting.models["speed"].factor(streams.of(agent).at(0).rng("speed class"))
        limit, number, again = setting.policy.time_limit or math.inf, 0, -1
        for step, rows in own:
            now, first, points = self.begun[agent, step], rows[0], len({row.query for row in rows})
            known = first.t_n - (first.error is None or "forgotten" in first.error)
            thought = setting.models["decision"](known)
            assert abs(self.troubles.work(agent, now, first.started) - thought) < NEAR, "a decision took another time"
            now = first.started
            for place, row in enumerate(rows):
                assert abs(row.started - now) < NEAR, "two evaluations at once, or a gap"
                worked = self.troubles.work(agent, now, row.finished)
                planned = place < points and abs(min(limit, factor * draw(agent, number + place)) - worked) < NEAR
                if not planned:
                    later = range(again + 1, again + 2000)
                    again = next(n for n in later if abs(min(limit, factor * once_more(agent, n)) - worked) < NEAR)
                now = row.finished
            number += points
            assert abs(now - self.ended[agent, step]) < NEAR


class Messages:
    """What was sent, what became of it, and whether it could have."""

    def __init__(self, setting: Setting, troubles: Troubles) -> None:
        self.setting, self.troubles, self.world = setting, troubles, setting.world
        self.plan = setting.world["plan"]
        problem = setting.task().problem
        self.up, self.down = (
            declared_size(setting.algorithm.upload(problem)),
            declared_size(setting.algorithm.download(problem)),
        )
        self.sent: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.lost: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.alive: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.before: Any = None
        self.fate: dict[tuple[int, int], list[str]] = defaultdict(list)
        self.heard: set[tuple[int, int]] = set()
        self.rounds, self.base = 0, {}
        self.must_be_lost: tuple[float, int, int] | None = None

    def line(self, record: Any) -> None:
        kind, key = record.kind, (record.agent, record.step)
        if self.must_be_lost is not None:
            assert (record.time, *key) == self.must_be_lost and kind == "lost", "a message passed where its way was cut"
        self.must_be_lost = None
        self.rounds += kind == "round"
        if kind == "started" and record.detail != "again":
            self.base[key] = self.rounds
        elif kind == "falsified":
            assert any(isinstance(f, Lie) and key[0] in f.agents for f in self.plan) and key not in self.sent
        elif kind in ("sent", "lost", "arrived", "late", "rejected", "delivered", "missed"):
            getattr(self, f"_{kind}")(record, key)
        self.before = record

    def _sent(self, record: Any, key: tuple[int, int]) -> None:
        assert record.bytes == self.up
        if record.detail == "again":
            causes = self.lost[key] + (self.sent[key] if self.replays(key[0]) else [])
            assert any(abs(record.time - time - self.world["retry"]) < NEAR for time in causes), "sent again for no reason"
        else:
            assert key not in self.sent
        self.sent[key].append(record.time)
        self.alive[key].append(record.time)
        assert len(self.sent[key]) <= self.world["attempts"], f"{len(self.sent[key])} transmissions"
        if self.troubles.cut(key[0], record.time):
            self.must_be_lost = (record.time, *key)

    def replays(self, agent: int) -> bool:
        return any(isinstance(f, Corruption) and f.how == "replay" and agent in f.agents for f in self.plan)

    def _lost(self, record: Any, key: tuple[int, int]) -> None:
        way, why = record.detail.split(": ")
        assert record.bytes == self.up if way == "up" else record.bytes in (0, self.down)
        if why.startswith("fault "):
            fault = self.plan[int(why.removeprefix("fault "))]
            assert isinstance(fault, Loss) and key[0] in fault.agents and fault.direction in (way, "both"), "lost for no reason"
        else:
            is_cut = self.troubles.cut(key[0], record.time, surely=False)
            assert {"partition": is_cut, "coordinator down": self.troubles.is_down}[why], "lost for no reason"
        if way == "up":
            assert key in self.sent
            self.lost[key].append(record.time)
            if (self.before.kind, self.before.agent, self.before.step) == ("sent", *key):
                self.alive[key].pop()  # lost when it was sent, and not at the door

    def _passes(self, record: Any, key: tuple[int, int]) -> None:
        assert key in self.sent and not self.troubles.cut(key[0], record.time), "a message arrived through a cut"
        assert not self.troubles.is_down, "a message arrived at a coordinator that was down"
        bandwidth, link = self.setting.models["bandwidth"], self.world["link"]
        cut_short = any(isinstance(fault, Corruption) and fault.how == "shape" for fault in self.plan)
        least = (self.up / bandwidth if bandwidth else 0.0) + (self.up / link if link and not cut_short else 0.0)
        steady = isinstance(self.setting.latency, Constant)
        least += self.setting.latency.mean if steady else 0.0
        ages = [record.time - time for time in (self.sent if self.replays(key[0]) else self.alive)[key]]
        assert ages, "a message arrived all of whose transmissions had been lost"
        assert max(ages) >= least - NEAR, "faster than its way allows"
        detours = any(isinstance(f, Delay | Reordering | Duplication | Corruption) for f in self.plan)
        if steady and not detours and not link:
            assert min(abs(age - least) for age in ages) < NEAR, f"it took {ages}, not {least}"

    def _arrived(self, record: Any, key: tuple[int, int]) -> None:
        self._passes(record, key)
        assert record.bytes == self.up and not {"arrived", "late"} & set(self.fate[key]), "a message took effect twice"
        detained = any(isinstance(fault, Duplication) for fault in self.plan) or self.replays(key[0])
        assert detained or "given up" not in self.fate[key], "a message took effect that had been given up"
        stale, exchange = int(record.detail), self.setting.exchange
        if exchange.is_synchronous:
            assert stale == self.rounds - self.base[key]
            assert stale == 0 or exchange.accepts_late
        assert exchange.staleness.bound is None or stale <= exchange.staleness.bound
        self.fate[key].append("arrived")

    def _late(self, record: Any, key: tuple[int, int]) -> None:
        self._passes(record, key)
        assert not self.setting.exchange.accepts_late and self.rounds > self.base[key]
        assert not {"arrived", "late"} & set(self.fate[key])
        self.fate[key].append("late")

    def _rejected(self, record: Any, key: tuple[int, int]) -> None:
        why = record.detail
        if why == "duplicate: the agent has had this answer":
            assert any(isinstance(fault, Duplication) for fault in self.plan)
        elif why.startswith("given up"):
            assert len(self.sent[key]) == self.world["attempts"] and not {"arrived", "late"} & set(self.fate[key])
            self.fate[key].append("given up")
        else:
            self._passes(record, key)
            if why.startswith("duplicate"):
                assert {"arrived", "late", "refused"} & set(self.fate[key])
                assert any(isinstance(fault, Duplication | Corruption) for fault in self.plan)
            else:
                assert why.startswith("stale") or any(isinstance(fault, Corruption) for fault in self.plan)
                self.fate[key].append("refused")

    def _delivered(self, record: Any, key: tuple[int, int]) -> None:
        assert key not in self.heard and record.bytes == self.down and not self.troubles.cut(key[0], record.time)
        assert not self.setting.exchange.is_synchronous or record.step < self.rounds, "an answer before its round closed"
        assert key[0] not in self.troubles.done and key[0] not in self.troubles.gone
        self.heard.add(key)

    def _missed(self, record: Any, key: tuple[int, int]) -> None:
        assert key not in self.heard
        if record.detail == "the agent had ended":
            assert (key[0] in self.troubles.done or key[0] in self.troubles.gone) and record.bytes == self.down
            return
        assert record.detail == f"given up after {self.world['attempts']} transmissions"
        assert any(isinstance(f, Loss | NetworkPartition | Restart) and key[0] in getattr(f, "agents", key) for f in self.plan)

    def end(self, ran: Ran, whole: bool) -> None:
        if whole:
            unsettled = [key for key in self.sent if not self.fate[key] and key[0] not in self.troubles.gone]
            assert not unsettled, f"nothing became of the messages {unsettled}"


class Rounds:
    """When rounds may close, and when they must, where everybody is asked."""

    def __init__(self, setting: Setting, troubles: Troubles) -> None:
        self.setting, self.troubles, self.exchange = setting, troubles, setting.exchange
        problem = setting.task().problem
        self.everybody = set(range(setting.agents)) if setting.algorithm.upload(problem) else set(problem.targets)
        self.targets, self.down = set(problem.targets), declared_size(setting.algorithm.download(problem))
        self.closed, self.opened, self.came = 0, 0.0, 0
        self.committed: set[int] = set()
        self.quiet: set[int] = set()
        self.left: set[int] = set()
        self.sending: dict[int, int] = {}
        self.follows = self.exchange.is_synchronous and self.exchange.selection.who == "all"

    def line(self, record: Any) -> None:
        kind, agent = record.kind, record.agent
        if kind == "round":
            assert self.exchange.is_synchronous and record.step == self.closed and not self._down
            assert record.bytes % self.down == 0 and record.bytes <= self.setting.agents * self.down
            if self.follows:
                assert self._may(record.time), f"round {self.closed} closed too early, or with nobody"
            self.closed, self.opened, self.came = self.closed + 1, record.time, 0
            self.committed.clear()
            self.quiet.clear()
        elif kind == "started":
            self.sending.pop(agent, None)
        elif kind == "finished" and self.setting.algorithm.sends(record.step):
            self.quiet.add(agent)  # until it turns out that it has sent something
        elif kind == "sent":
            self.quiet.discard(agent)
            self.sending[agent] = record.step
        elif kind in ("arrived", "late", "rejected"):
            self.came += kind == "arrived"
            duplicate = record.detail.startswith("duplicate")
            if self.sending.get(agent) == record.step and not duplicate:
                del self.sending[agent]
                self.committed.add(agent)

    @property
    def _down(self) -> bool:
        return self.troubles.is_down

    def _present(self) -> set[int]:
        over = self.troubles.done.keys() | self.troubles.gone.keys() | self.troubles.off
        return {agent for agent in self.everybody - over if agent in self.targets or not self.closed}

    def _may(self, now: float) -> bool:
        everybody = self._present() <= self.committed | self.quiet
        limit = self.exchange.deadline
        enough = self.exchange.mode == "first_k" and self.came >= self.exchange.k
        return everybody or enough or (limit is not None and now >= self.opened + limit - NEAR)

    def _must(self, now: float) -> bool:
        """Say whether the round should have closed before now; those whose last message is under way count as missing."""
        if self._down or not self.committed - self.troubles.done.keys() - self.troubles.gone.keys():
            return False
        under_way = {agent for agent in self.sending if agent not in self.troubles.gone}
        # Who sits a round out under a Bernoulli model is back with the answer, which the log does not show.
        sits_out = hasattr(self.setting.availability, "probability") and bool(self.troubles.absent)
        everybody = self._present() <= self.committed and not under_way and not sits_out
        limit = self.exchange.deadline
        enough = self.exchange.mode == "first_k" and self.came >= self.exchange.k
        return everybody or enough or (limit is not None and now > self.opened + limit + NEAR)

    def rest(self, now: float) -> None:
        """Check that nothing was left to be done before the time moved on to now."""
        if self.follows:
            assert not self._must(now), f"round {self.closed} should have closed before {now}"

    def end(self, ran: Ran, whole: bool) -> None:
        assert ran.core.state.rounds.number == self.closed or not self.exchange.is_synchronous
        if whole:
            assert not self.follows or not self.committed - self.troubles.done.keys() - self.troubles.gone.keys()


def events_of(ran: Ran) -> set[tuple[str, str]]:
    """Name the kinds of events that occurred in a run, with what tells them apart."""
    found = set()
    for record in ran.records:
        word = record.detail
        if record.kind == "arrived":
            word = "stale" if int(record.detail) else ""
        elif record.kind == "rejected":
            reasons = ("duplicate: this message", "duplicate: the agent", "stale", "not finite", "given up", "payload is")
            word = next((reason for reason in reasons if reason in record.detail), record.detail)
        elif record.kind in ("slowed", "late", "failed", "falsified", "missed"):
            word = ""
        elif record.kind == "lost":
            word = record.detail.partition(":")[0]  # the cause follows
        found.add((record.kind, word))
    return found
