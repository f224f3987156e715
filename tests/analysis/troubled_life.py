"""The life of one agent in a made-up run in which everything goes wrong that can: rows and events as a study writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.actors.storage.rows import RunKey

INITIAL = 3
SIZE_UP, SIZE_DOWN = 800, 400


class Life:
    """One agent: what happens to it is drawn anew in each step, the same in every cell."""

    def __init__(self, key: RunKey, agent: int, troubled: bool, into: tuple[list[Any], list[Any]]) -> None:
        self.key, self.agent, self.troubled = key, agent, troubled
        self.rows, self.events = into
        self.rng = np.random.default_rng([7, key.replicate, agent])
        self.federated = key.algorithm == "Together"
        self.pace = float(np.exp(0.5 * self.rng.standard_normal()))
        self.now, self.good, self.mine = 0.0, 0, list[dict[str, Any]]()

    def tell(self, kind: str, step: int | None, size: int | None = None, after: float = 0.0, **facts: Any) -> None:
        """Note an event, now or later."""
        who = {**self.key._asdict(), "agent": self.agent, "step": step}
        self.events.append({**who, "time": self.now + after, "kind": kind, "bytes": size, **facts})

    def live(self, iterations: int) -> None:
        """Live from the first point to the last, or to a crash for good."""
        last = iterations // 2 if self.troubled and self.agent == 3 and iterations > 1 else iterations
        for number in range(INITIAL + iterations):
            step = max(0, number - INITIAL + 1)
            if step and self.rng.random() < 0.1:
                self.pause("absent", "returned", step, 1.0)
            if step and self.federated:
                self.now += 0.1 + 0.4 * self.rng.random()
            self.evaluate(number, step)
            if step == last < iterations:
                self.now += 0.3
                return self.tell("crashed", step, permanent=True)
            if self.federated and step:
                self.send(step)
        return self.tell("done", iterations)

    def pause(self, begins: str, ends: str, step: int, length: float) -> None:
        """Stand still for a while."""
        self.tell(begins, step)
        self.now += length
        self.tell(ends, step)

    def evaluate(self, number: int, step: int) -> None:
        """Evaluate one point, perhaps with an interruption, a crash, or in vain."""
        fate, u = self.rng.random(4), self.rng.random(2)
        length = float(self.pace * np.exp(0.8 * self.rng.standard_normal() - 0.32))
        self.tell("started", step)
        begun = self.now
        if self.troubled and step:
            begun = self.interrupted(float(fate[0]), step, length)
        self.now += length * (1 - 0.4 * (self.now > begun))
        if self.troubled and fate[1] < 0.07 and step:
            self.tell("failed", step, message="ValueError: no")
        self.tell("finished", step)
        error = "ValueError: no" if self.troubled and fate[1] < 0.07 and step else None
        self.good += error is None
        value = float(-0.05 - 0.5 * fate[2] * np.exp(-(0.2 if self.federated else 0.1) * step / (1 + 0.3 * self.key.cell)))
        origin = "initial" if not step else "federated" if self.federated and fate[3] < 0.5 else "own"
        row = {
            **self.key._asdict(), "agent": self.agent, "phase": "search" if step else "initial", "step": step,
            "query": 0 if step else number, "origin": origin, "x": [0.1 * 100 ** u[0], u[1]], "u": list(u),
            "value": np.nan if error else value, "score": np.nan if error else value, "started": begun,
            "finished": self.now, "t_n": self.good, "pulls": 1, "error": error,
        }  # fmt: skip
        self.rows.append(row)
        self.mine.append(row)

    def interrupted(self, fate: float, step: int, length: float) -> float:
        """Work for the first 0.4 of an evaluation and be interrupted; give when the one that counts began."""
        begun = self.now
        if fate > 0.3:
            return begun
        self.now += 0.4 * length
        if fate < 0.1:
            self.pause("absent", "returned", step, 0.7)
        elif fate < 0.15:
            self.pause("hung", "woke", step, 1.5)
        elif fate < 0.2:
            self.tell("slowed", step)
            self.tell("recovered", step, after=2.0)
        elif fate < 0.23:
            self.tell("cut", step)
            self.tell("joined", step, after=3.0)
        else:
            self.crash("lost" if fate < 0.26 else "kept", step)
            begun = self.now
            self.now += 0.4 * length
        return begun

    def crash(self, state: str, step: int) -> None:
        """Crash, perhaps forget the last observation, and begin the step again."""
        self.tell("crashed", step, permanent=False, state=state)
        if state == "lost" and self.mine[-1]["error"] is None:
            self.mine[-1]["error"] = "forgotten in a crash"
            self.good -= 1
        self.now += 1.2
        self.tell("restarted", step)
        self.tell("started", step, again=True)

    def send(self, step: int) -> None:
        """Send a message, which has a fate of its own."""
        fate = self.rng.random()
        self.tell("sent", step, SIZE_UP)
        if not self.troubled or fate < 0.7:
            self.tell("arrived", step, SIZE_UP, 0.05, staleness=int(10 * fate**2))
            self.tell("delivered", None, SIZE_DOWN, 0.1, answer=step)
        elif fate < 0.8:
            self.tell("lost", step, SIZE_UP, 0.01, direction="up", reason="partition")
            self.tell("sent", step, SIZE_UP, after=0.2)
            self.tell("arrived", step, SIZE_UP, 0.25, staleness=1)
            self.tell("lost", None, SIZE_DOWN, 0.3, direction="down", reason="coordinator_down", answer=step)
        elif fate < 0.9:
            self.tell("late", step, SIZE_UP, 0.4, round=step)
        elif fate < 0.95:
            self.tell("rejected", step, after=0.05, reason="malformed", message="omega: not finite")
        else:
            self.tell("arrived", step, SIZE_UP, 0.05, staleness=0)
            self.tell("rejected", step, after=0.06, reason="duplicate")


def coordinate(events: list[dict[str, Any]]) -> None:
    """Add what the coordinator does: a round every 2.5 units of time, and an hour in which it is down."""
    if not events:
        return
    key = {name: events[0][name] for name in ("cell", "algorithm", "replicate")}
    end = max(event["time"] for event in events)
    blank = {**key, "agent": -2}
    for number in range(1, int(end / 2.5)):
        events.append({**blank, "kind": "round", "time": 2.5 * number, "round": number, "bytes": 6 * SIZE_DOWN})
    events.append({**blank, "kind": "down", "time": 0.4 * end, "round": 0})
    events.append({**blank, "kind": "up", "time": 0.45 * end, "round": 0})
