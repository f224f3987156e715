"""A prediction of every event between agents and coordinator, from the pages of the documentation alone.

It shares no code with the package. A world is a dictionary of plain numbers: agents take a constant time for each step, send a
message after it, and meet faults at given times. `predicted` gives the lines that the log must have. Where agents idle, the
world says by `choose(agents, round)` whom a round asks among those that it could ask, and by `rows` whether all that happens to
idle agents is told, or only what is under way when a round asks them. Where agents take `turns`, the world says by `drawn` who
was drawn, one after the other, and it must be one of those that may be.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable
from typing import Any

World = dict[str, Any]
# Time, kind, agent, the number of its step, of a round or of an answer, and what else is told.
Line = tuple[float, str, int, int, str | int]
DONE = math.inf


class Agent:
    def __init__(self, number: int) -> None:
        self.number, self.step, self.left = number, 0, 0.0
        self.silent, self.silences = False, 0
        self.working = self.ready = self.waiting = self.ended = self.away = False
        self.awaited = 0.0
        self.pace, self.held, self.cuts, self.since, self.turn = 1.0, 0, 0, 0.0, 0
        self.begun, self.untold = False, list[tuple[str, Any]]()  # what has begun while it was idle, and by what
        self.base: dict[int, int] = {}
        self.under_way: dict[int, int] = {}  # step: attempt
        self.taken: set[int] = set()
        self.heard: set[int] = set()
        self.tries: dict[int, int] = {}


class Prediction:
    """The simulation: a heap of what happens, and the coordinator's round or buffer."""

    def __init__(self, world: World) -> None:
        self.world, self.lines, self.now, self.count = world, list[Line](), 0.0, 0
        self.agents = [Agent(number) for number in range(world["agents"])]
        self.heap: list[tuple[float, int, bool, Callable[[], None]]] = []
        self.waits = world["mode"] in ("barrier", "deadline", "first_k", "adaptive")
        self.idles = self.waits and world["choose"] is not None
        self.turns = 0 if self.waits else world["turns"]
        self.rests = self.waits or self.turns
        self.active = set[int]() if self.idles or self.turns else set(range(world["agents"]))
        self.missing, self.reported, self.buffer, self.effective = set(self.active), set[int](), list[int](), 0
        self.round, self.over, self.down, self.link_free = 0, False, 0, 0.0
        self.heard, self.awaited, self.opened, self.due = list[float](), 0, 0.0, DONE

    def after(self, delay: float, happens: Callable[[], None], counts: bool = True) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay, self.count, counts, happens))

    def say(self, kind: str, agent: int, step: int, detail: str | int = "") -> None:
        self.lines.append((self.now, kind, agent, step, detail))

    def run(self) -> list[Line]:
        for fault in self.world["faults"]:
            for number, time in enumerate(fault.get("at", ())):
                self.after(time, lambda fault=fault, number=number: self.strike(fault, number), counts=False)
        for agent in self.agents:
            if self.world["days"][agent.number]:
                self.after(self.world["days"][agent.number][1], lambda agent=agent: self.leave(agent), counts=False)
        self.missing |= (first := set(self.enlist(0)))
        self.time_round()
        while self.turns and (drawn := self.draw()) is not None:
            first.add(drawn)
        for agent in self.agents:
            if not (self.idles or self.turns) or agent.number in first:
                self.begin(agent)
        while self.heap and (self.active or any(counts for _, _, counts, _ in self.heap)):
            self.now, _, _, happens = heapq.heappop(self.heap)
            happens()
        return self.lines

    # Steps

    def begin(self, agent: Agent) -> None:
        if agent.held:
            agent.ready = True
            return
        agent.ready, agent.working, agent.left = False, True, self.world["lengths"][agent.number]
        agent.begun = True
        agent.base[agent.step] = self.round
        self.say("started", agent.number, agent.step)
        if self.waits and not agent.away:
            self.missing.add(agent.number)
        self.work(agent)

    def work(self, agent: Agent) -> None:
        agent.since, agent.turn = self.now, agent.turn + 1
        turn = agent.turn
        self.after(agent.left / agent.pace, lambda: self.finish(agent) if agent.turn == turn else None)

    def pause(self, agent: Agent) -> None:
        if agent.working and not agent.held:
            agent.left -= (self.now - agent.since) * agent.pace
            agent.turn += 1

    def finish(self, agent: Agent) -> None:
        agent.working = False
        self.say("finished", agent.number, agent.step)
        step = agent.step
        agent.under_way[step] = 0
        self.transmit(agent, step, 0)
        if step == self.world["iterations"] or (self.idles and self.round >= self.world["iterations"]):
            self.say("done", agent.number, step)
            agent.ended = True
        elif self.rests:
            agent.waiting, agent.awaited = True, math.inf
        else:
            self.go_on(agent)

    def go_on(self, agent: Agent) -> None:
        agent.waiting, agent.step = False, agent.step + agent.begun
        self.begin(agent)

    # Messages

    def met(self, agent: Agent, way: str) -> list[dict[str, Any]]:
        return [
            fault
            for fault in self.world["faults"]
            if "start" in fault
            and agent.number in fault["agents"]
            and fault["direction"] in (way, "both")
            and fault["start"] <= self.now < fault["end"]
        ]

    def journey(self, agent: Agent, way: str, holds: bool = True) -> tuple[float, list[float]] | str:
        """Give the time on the way, and how much later each copy comes; where the transmission is lost, why."""
        met = self.met(agent, way)
        losses = [f"fault {self.world['faults'].index(fault)}" for fault in met if fault["kind"] == "loss"]
        if agent.cuts or losses:
            return "partition" if agent.cuts else losses[0]
        time, copies = self.world["latency"], [0.0]
        rate = (self.world["bandwidth"] or {}).get(way)
        if rate and holds:
            time += 8 * self.world[way] / rate
        for fault in met:
            if fault["kind"] == "delay":
                time += fault["by"]
            else:
                copies.append(copies[-1] + fault["by"])
        return time, copies

    def transmit(self, agent: Agent, step: int, attempt: int) -> None:
        self.say("sent", agent.number, step, "again" if attempt else "")
        way = self.journey(agent, "up")
        if isinstance(way, str):
            return self.lose_up(agent, step, attempt, way)
        for later in way[1]:
            self.after(way[0] + later, lambda: self.at_link(agent, step, attempt))

    def lose_up(self, agent: Agent, step: int, attempt: int, why: str) -> None:
        self.say("lost", agent.number, step, f"up: {why}")
        self.after(self.world["retry"], lambda: self.again_up(agent, step, attempt))

    def again_up(self, agent: Agent, step: int, attempt: int) -> None:
        if agent.under_way.get(step) != attempt:
            return
        if attempt + 1 < self.world["attempts"]:
            agent.under_way[step] = attempt + 1
            return self.transmit(agent, step, attempt + 1)
        del agent.under_way[step]
        self.say("rejected", agent.number, step, "given_up")
        if self.rests or agent.ended:
            self.report(agent, counted=False)

    def at_link(self, agent: Agent, step: int, attempt: int) -> None:
        if not self.world["link"]:
            return self.arrive(agent, step, attempt)
        self.link_free = max(self.now, self.link_free) + 8 * self.world["up"] / self.world["link"]
        self.after(self.link_free - self.now, lambda: self.arrive(agent, step, attempt))

    def arrive(self, agent: Agent, step: int, attempt: int) -> None:
        if self.down or agent.cuts:
            return self.lose_up(agent, step, attempt, "coordinator_down" if self.down else "partition")
        counted, world = False, self.world
        stale = self.round - agent.base[step]
        if step in agent.taken:
            self.say("rejected", agent.number, step, "duplicate")
        elif self.waits and world["late"] == "drop" and world["mode"] != "barrier" and stale:
            self.say("late", agent.number, step)
        elif world["bound"] is not None and stale > world["bound"]:
            self.say("rejected", agent.number, step, "stale")
        else:
            self.say("arrived", agent.number, step, stale)
            counted = True
        agent.taken.add(step)
        if agent.under_way.pop(step, None) is not None:
            self.report(agent, counted)

    # Rounds, or the buffer

    def report(self, agent: Agent, counted: bool) -> None:
        if counted and self.world["mode"] == "adaptive":
            self.heard.append(self.now - self.opened)
            self.limit_round()
        if agent.ended:
            self.effective += counted and bool(self.rests)
            if not agent.under_way:
                for members in (self.active, self.missing, self.reported):
                    members.discard(agent.number)
        elif self.rests:
            self.reported.add(agent.number)
            self.missing.discard(agent.number)
            self.effective += counted
        else:
            self.buffer.append(agent.number)
            self.effective += counted
        self.settle()

    def settle(self) -> None:
        mode, closes = self.world["mode"], False
        if self.down:
            return
        if self.turns:
            return self.give_turns()
        if self.idles and self.round > self.world["iterations"]:
            return self.rest(self.reported)
        if mode == "immediate":
            closes = bool(self.buffer)
        elif mode == "buffered":
            closes = self.effective >= self.world["k"] or (bool(self.buffer) and not self.active)
        elif self.reported:
            closes = not self.missing or (self.over and self.effective >= self.world["least"])
            closes = closes or (mode == "first_k" and self.effective >= self.world["k"])
        if closes:
            self.close()

    def give_turns(self) -> None:
        """Update with what has arrived, and let idle agents begin in place of those that have reported."""
        self.rest(self.reported)
        if self.effective >= (self.world["k"] if self.world["mode"] == "buffered" else 1):
            if self.world["mode"] == "buffered":
                self.say("round", -2, self.round)
            self.round, self.effective = self.round + 1, 0
        while (number := self.draw()) is not None:
            agent = self.agents[number]
            agent.waiting, agent.awaited = True, agent.step + agent.begun
            self.say("drawn", number, agent.step + agent.begun)
            self.answer(agent, agent.step + agent.begun, 0, agent.begun)

    def draw(self) -> int | None:
        """Take who was drawn next, if a turn is free, among idle agents that are there, or all of them where none is."""
        idle = [agent for agent in self.agents if not agent.ended and agent.number not in self.active]
        believed = [one for one in self.active if not (self.world["heartbeats"] and self.agents[one].away)]
        if len(believed) >= min(self.turns, len(self.agents)) or not idle:
            return None
        if self.world["heartbeats"] and self.active and all(agent.away for agent in idle):
            return None
        drawn: int = self.world["drawn"].pop(0)
        allowed = [agent.number for agent in idle if not agent.away] or [agent.number for agent in idle]
        assert drawn in allowed, f"agent {drawn} was drawn, and {allowed} are idle at {self.now}"
        self.active.add(drawn)
        return drawn

    def enlist(self, number: int) -> list[int]:
        """Ask idle agents: of those that are not known to be away, or of all of them where there is no other."""
        idle = [agent for agent in self.agents if self.idles and not agent.ended and agent.number not in self.active]
        there = [agent.number for agent in idle if not agent.away] or [agent.number for agent in idle]
        asked = sorted(self.world["choose"](there, number)) if there else []
        for agent in (self.agents[one] for one in asked):
            for kind, _ in agent.untold:
                self.say(kind, agent.number, 0)
            agent.untold.clear()
        self.active |= set(asked)
        return asked

    def rest(self, agents: set[int]) -> None:
        """Let agents idle whose messages have come."""
        for number in agents:
            self.agents[number].waiting = False
        self.active -= agents
        self.reported = self.reported - agents

    def next_round(self, number: int, reported: list[int]) -> list[int]:
        self.rest(set(reported))
        asked = self.enlist(number + 1) if number < self.world["iterations"] else []
        for agent in asked:
            self.agents[agent].waiting = True
        return asked

    def close(self) -> None:
        number, answered = self.round, sorted(self.active & (self.reported if self.waits else set(self.buffer)))
        if self.idles:
            answered = self.next_round(number, answered)
        if self.waits or self.world["mode"] == "buffered":
            self.say("round", -2, number)
        self.round = number + 1
        self.reported, self.buffer, self.effective, self.over, self.heard = set(), [], 0, False, []
        for agent in answered:
            self.agents[agent].awaited = number
            self.answer(self.agents[agent], number, 0, self.agents[agent].begun)
        if self.waits:
            self.missing |= {agent for agent in answered if not self.agents[agent].away}
        self.time_round()

    def time_round(self) -> None:
        mode, lengths = self.world["mode"], self.world["lengths of rounds"]
        self.opened, self.awaited, self.due = self.now, len(self.missing), DONE
        if mode == "adaptive":
            return self.limit_round()
        if not (mode == "deadline" or (mode == "first_k" and self.world["limited"])):
            return
        number = self.round
        length = lengths[number] if mode == "deadline" and number < len(lengths) else self.world["length"]

        def up() -> None:
            if number == self.round:
                self.over = True
                self.settle()

        self.after(length, up, counts=False)

    def limit_round(self) -> None:
        """Set the end of a round by its first messages, once these are a quorum; before that it may last so long."""
        quorum = math.ceil(self.world["quorum"] * self.awaited)
        if quorum and len(self.heard) >= quorum:
            first = self.heard[:quorum]
            middle = statistics.median(first)
            self.due = self.opened + middle + self.world["factor"] * statistics.median(abs(one - middle) for one in first)
        elif self.world["limited"]:
            self.due = self.opened + self.world["length"]
        else:
            return
        due, number = self.due, self.round

        def up() -> None:
            if number == self.round and due == self.due:
                self.over = True
                self.settle()

        self.after(max(0.0, due - self.now), up, counts=False)

    def answer(self, agent: Agent, number: int, attempt: int, holds: bool) -> None:
        """Send an answer; one that `holds` nothing only says that an agent shall begin."""
        way = "coordinator_down" if self.down else self.journey(agent, "down", holds)
        if isinstance(way, str):
            return self.lose_down(agent, number, attempt, holds, why=way)
        for later in way[1]:
            self.after(way[0] + later, lambda: self.deliver(agent, number, attempt, holds))

    def lose_down(self, agent: Agent, number: int, attempt: int, holds: bool, *, why: str) -> None:
        self.say("lost", agent.number, number, f"down: {why}")
        self.after(self.world["retry"], lambda: self.again_down(agent, number, attempt, holds))

    def again_down(self, agent: Agent, number: int, attempt: int, holds: bool) -> None:
        if agent.ended or number in agent.heard or agent.tries.get(number, 0) > attempt:
            return
        agent.tries[number] = attempt + 1
        if attempt + 1 < self.world["attempts"]:
            return self.answer(agent, number, attempt + 1, holds)
        self.say("missed", agent.number, number, attempt + 1)
        if agent.waiting and number >= agent.awaited:  # not by a late copy of an answer that was given up
            self.go_on(agent)

    def deliver(self, agent: Agent, number: int, attempt: int, holds: bool) -> None:
        if agent.ended:
            if number not in agent.heard and holds:
                self.say("missed", agent.number, number, "agent_ended")
            return agent.heard.add(number)
        if agent.cuts:
            return self.lose_down(agent, number, attempt, holds, why="partition")
        if number in agent.heard:
            return self.say("rejected", agent.number, number, "duplicate")
        agent.heard.add(number)
        if holds:
            self.say("delivered", agent.number, number)
        if agent.waiting and number >= agent.awaited:  # not by a late copy of an answer that was given up
            self.go_on(agent)

    # Faults and absences

    def tell_begin(self, kind: str, agent: Agent, cause: Any) -> None:
        if self.idles and not self.world["rows"] and not agent.ended and agent.number not in self.active:
            agent.untold.append((kind, cause))
        else:
            self.say(kind, agent.number, 0)

    def tell_end(self, kind: str, agent: Agent, cause: Any) -> None:
        told = [each for each in agent.untold if each[1] is not cause]
        if len(told) == len(agent.untold):
            self.say(kind, agent.number, 0)
        agent.untold = told

    @staticmethod
    def lasting(fault: dict[str, Any], agent: int, number: int) -> float:
        """Give how long a strike of this number lasts for an agent: a set time, or one that is drawn."""
        lasts = fault["duration"]
        return float(lasts(agent, number) if callable(lasts) else lasts)

    def strike(self, fault: dict[str, Any], number: int) -> None:
        kind = fault["kind"]
        if kind == "coordinator":
            self.say("down", -2, 0)
            self.down += 1
            self.after(self.lasting(fault, -2, number), self.come_up, counts=False)
            return
        begins = {"hang": "hung", "slow": "slowed", "partition": "cut"}[kind]
        for agent in (self.agents[number] for number in fault["agents"]):
            if agent.ended and not (kind == "partition" and agent.under_way):
                continue
            strike = (fault, number)
            self.tell_begin(begins, agent, strike)
            if kind == "hang":
                self.hold(agent)
            elif kind == "slow":
                self.change_pace(agent, 1 / fault["factor"])
            else:
                agent.cuts += 1
            self.listen(agent)
            lasts = self.lasting(fault, agent.number, number)
            self.after(lasts, lambda agent=agent, strike=strike: self.recover(strike, agent), counts=False)

    def come_up(self) -> None:
        self.say("up", -2, 0)
        self.down -= 1
        self.settle()

    def recover(self, strike: tuple[dict[str, Any], int], agent: Agent) -> None:
        fault, kind = strike[0], strike[0]["kind"]
        agent.cuts -= kind == "partition"
        if kind == "partition":
            self.listen(agent)
        if agent.ended and not (kind == "partition" and agent.under_way):
            return
        self.tell_end({"hang": "woke", "slow": "recovered", "partition": "joined"}[kind], agent, strike)
        if kind == "hang":
            self.let_go(agent)
        elif kind == "slow":
            self.change_pace(agent, fault["factor"])
        self.listen(agent)

    def change_pace(self, agent: Agent, factor: float) -> None:
        self.pause(agent)
        agent.pace *= factor
        if agent.working and not agent.held:
            self.work(agent)

    def hold(self, agent: Agent) -> None:
        self.pause(agent)
        agent.held += 1

    def let_go(self, agent: Agent) -> None:
        agent.held -= 1
        if agent.held:
            return
        agent.away = agent.away and bool(self.world["heartbeats"])
        if agent.ready:
            self.begin(agent)
        elif agent.working or (agent.waiting and agent.number not in self.reported):
            if self.waits and not agent.away:
                self.missing.add(agent.number)
            if agent.working:
                self.work(agent)

    def listen(self, agent: Agent) -> None:
        """Find out when the coordinator takes a silent agent for dead, or believes again one that is heard."""
        if not self.world["heartbeats"]:
            return
        interval, timeout = self.world["heartbeats"]
        silent = bool(agent.held or agent.cuts) or interval / agent.pace > timeout
        if silent == agent.silent or agent.ended:
            return
        agent.silent, agent.silences = silent, agent.silences + 1
        phase, number = interval * agent.number / len(self.agents), agent.silences
        last = math.floor((self.now - phase) / interval) * interval + phase
        if silent:
            self.after(max(0.0, last + timeout - self.now), lambda: self.suspect(agent, number), counts=False)
        elif agent.away:
            self.after(max(0.0, last + interval - self.now), lambda: self.trust(agent, number), counts=False)

    def suspect(self, agent: Agent, number: int) -> None:
        if number != agent.silences or agent.away or agent.ended:
            return
        self.say("suspected", agent.number, 0)
        agent.away = True
        self.missing.discard(agent.number)
        self.settle()

    def trust(self, agent: Agent, number: int) -> None:
        if number != agent.silences or not agent.away or agent.ended:
            return
        self.say("trusted", agent.number, 0)
        agent.away = False
        if self.waits and agent.number in self.active:
            if agent.working or (agent.waiting and agent.number not in self.reported):
                self.missing.add(agent.number)
        self.settle()

    def leave(self, agent: Agent) -> None:
        """Leave until the next day; the coordinator knows that."""
        if agent.ended:
            return
        day, present = self.world["days"][agent.number]
        self.tell_begin("absent", agent, "day")
        self.hold(agent)
        if self.world["heartbeats"]:
            self.listen(agent)
        else:
            agent.away = True
            self.missing.discard(agent.number)
            if self.waits:
                self.settle()
        self.after(day - present, lambda: self.come_back(agent), counts=False)

    def come_back(self, agent: Agent) -> None:
        if agent.ended:
            return
        self.tell_end("returned", agent, "day")
        self.let_go(agent)
        self.listen(agent)
        self.after(self.world["days"][agent.number][1], lambda: self.leave(agent), counts=False)


def predicted(world: World) -> list[Line]:
    """Predict the log of a world."""
    return Prediction(world).run()
