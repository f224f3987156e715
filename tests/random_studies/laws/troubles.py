"""The interruptions of agents and the cut-offs of messages, followed through the events of a run."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from itertools import product
from typing import Any

from fedbo.coordinator.environment.faults import Crash, Hang, NetworkPartition, Restart, Slow, set_times
from fedbo.settings.durations import DurationLaw
from fedbo.testing.contract import need
from tests.random_studies.run_tables import NEAR, RunTables

COORDINATOR = -2
BEGINS: dict[str, Any] = {"hung": Hang, "crashed": Crash, "slowed": Slow, "cut": NetworkPartition, "down": Restart}
ENDS = {"woke": "hung", "restarted": "crashed", "recovered": "slowed", "joined": "cut", "up": "down"}


def lasting(fault: Any) -> tuple[float, float]:
    """Return how long a fault lasts at least, and at most."""
    lasts = fault.restart if isinstance(fault, Crash) else fault.duration
    if isinstance(lasts, DurationLaw):
        return 0.0, math.inf
    return (math.inf, math.inf) if lasts is None else (float(lasts), float(lasts))


class Troubles:
    """The agents that are interrupted or cut off, and the work that each agent could have done over time."""

    def __init__(self, run: RunTables) -> None:
        self.run = run
        # Of idle agents only what lasts is in rows, from when they are asked.
        self.some = run.exchange.selection.idles and not run.environment.idle_rows
        self.plan: tuple[Any, ...] = run.environment.plan
        self.open: dict[tuple[str, int], list[tuple[float, Any]]] = defaultdict(list)
        self.absent: set[int] = set()
        self.off: set[int] = set()
        self.gone: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self.lost_state: dict[int, list[float]] = defaultdict(list)
        self.struck: set[tuple[str, int, float]] = set()
        self.paces: dict[int, tuple[list[float], list[float], list[float]]] = defaultdict(lambda: ([0.0], [0.0], [1.0]))

    def line(self, record: Any) -> None:
        """Process an event."""
        kind, agent = record.kind, record.agent
        if kind in ("absent", "returned", *BEGINS, *ENDS) and kind not in ("cut", "joined") and agent >= 0:
            need(agent not in self.gone and agent not in self.done, f"{kind} happened to agent {agent}, who is not there")
        if kind == "absent":
            need(agent not in self.absent, f"agent {agent} left twice")
            self.absent.add(agent)
            self.off.add(agent)
        elif kind == "returned":
            self.absent.discard(agent)
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
        """Find the planned faults that may have caused an event."""
        kind, agent = record.kind, record.agent
        self.struck.add((kind, agent, record.time))
        if record.permanent:
            self.gone[agent] = record.time
            return
        if record.state == "lost":
            self.lost_state[agent].append(record.time)
        if kind == "crashed":
            self.off.add(agent)
        fitting = [fault for fault in self.plan if type(fault) is BEGINS[kind] and (agent < 0 or agent in fault.agents)]
        if kind == "slowed":
            fitting = [fault for fault in fitting if fault.factor == record.factor]
        if kind == "crashed":
            fitting = [fault for fault in fitting if fault.state == record.state and fault.restart is not None]
        need(bool(fitting), f"{kind} at {record.time} without a cause")
        self.open[kind, agent].append((record.time, fitting))

    def _ends(self, record: Any) -> None:
        began = self.open[ENDS[record.kind], record.agent]
        lasted = [
            (high - low, place)  # what lasts for a drawn time comes after what fits to a set one
            for place, (time, fitting) in enumerate(began)
            for low, high in map(lasting, fitting)
            if low - NEAR < record.time - time < high + NEAR or (self.some and record.time - time < high)
        ]
        need(bool(lasted), f"{record.kind} at {record.time}, but {ENDS[record.kind]} were {began}")
        del began[min(lasted)[1]]

    def kept(self, agent: int) -> bool:
        """Return whether an agent is interrupted."""
        return agent in self.absent or bool(self.open["hung", agent] or self.open["crashed", agent])

    def cut(self, agent: int, now: float, surely: bool = True) -> bool:
        """Return whether a partition cuts an agent off; its end is not logged for agents that have ended."""
        cuts = self.open["cut", agent]
        if agent not in self.done and agent not in self.gone:
            return bool(cuts)
        spans = ((time, [lasting(fault) for fault in fitting]) for time, fitting in cuts)
        return any(
            now < time + (min(low for low, _ in ends) if surely else max(high for _, high in ends)) for time, ends in spans
        )

    @property
    def is_down(self) -> bool:
        """Return whether the coordinator is down."""
        return bool(self.open["down", COORDINATOR])

    def work(self, agent: int, start: float, end: float) -> float:
        """Return the work that an agent could do between two times."""
        times, works, paces = self.paces[agent]

        def until(time: float) -> float:
            place = bisect_right(times, time) - 1
            return works[place] + (time - times[place]) * paces[place]

        return until(end) - until(start)

    def end(self) -> None:
        """Check that each fault has struck, and that each agent has ended."""
        problem, last = self.run.task.problem, self.run.events[-1]["time"] if self.run.events else 0.0
        for kind, declared in BEGINS.items():
            for fault in self.plan:
                times = () if type(fault) is not declared else [time for time in set_times(fault) if time < last]
                for agent, at in product(getattr(fault, "agents", (COORDINATOR,)), times):
                    over = min(self.done.get(agent, math.inf), self.gone.get(agent, math.inf))
                    target = agent < 0 or (agent in problem.targets and not self.some)
                    need(over <= at or not target or (kind, agent, at) in self.struck, f"{fault} never struck at {at}")
        if not self.run.ends_early and not self.run.exchange.selection.idles:  # idle agents may never be asked again
            left = set(problem.targets) - self.gone.keys() - self.done.keys() - self.absent
            need(not left, f"agents {sorted(left)} neither ended nor were lost")
