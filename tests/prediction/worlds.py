"""Random worlds for the predictors, as plain numbers, and the same worlds carried out by the engine."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from exchange_predictor import Line
from small_runs import Setting, logged
from talking import Talk

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.hosts import InlineHosts
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.detection import Detection
from fedbo.coordinator.environment.availability import Always, Daily
from fedbo.coordinator.environment.duration_blocks import Durations
from fedbo.coordinator.environment.environment import AgentModels, Environment, Ways
from fedbo.coordinator.environment.faults import FAULTS
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Deadline, FirstK, Immediate, Rounds
from fedbo.coordinator.logged.table import LoggedEvent
from fedbo.coordinator.modes import Adaptive
from fedbo.coordinator.selection import Knowledge, Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.coordinator.turns import TurnServer
from fedbo.settings.durations import DurationLaw
from fedbo.workers.job_log import read_load
from fedbo.workers.models import ClusterModel, LoadPart, Resources, WorkerClass

World = dict[str, Any]
FAULT_KINDS = "hung woke slowed recovered cut joined down up absent returned suspected trusted".split()
WINDOWS = ("loss", "delay", "duplication")
LASTING = ("partition", "hang", "slow", "coordinator")


def draw_exchange(seed: int) -> World:
    """Draw a world of messages, rounds and faults; no two of its times are equal by chance."""
    rng = random.Random(f"exchange {seed}")
    agents, iterations = rng.randint(1, 5), rng.randint(1, 6)
    lengths = [rng.uniform(0.3, 2.5) for _ in range(agents)]
    span = 1.3 * iterations * sum(lengths) / agents

    def some() -> tuple[int, ...]:
        return tuple(sorted(rng.sample(range(agents), rng.randint(1, agents))))

    faults: list[dict[str, Any]] = []
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        start = rng.uniform(0.0, span)
        ways = {"direction": rng.choice(["both", "up", "down"]), "start": start, "end": start + rng.uniform(0.2, span)}
        kind = rng.choice(WINDOWS)
        by = {} if kind == "loss" else {"by": rng.choice([rng.uniform(0.01, 3.0)])}
        faults.append({"kind": kind, "agents": some(), **ways, **by})
    for _ in range(rng.choice([0, 1, 2, 3, 4])):
        kind = rng.choice(LASTING)
        lasts = {"at": rng.uniform(0.0, 1.3 * span), "duration": rng.uniform(0.1, 4.0)}
        whom = {} if kind == "coordinator" else {"agents": some()}
        faults.append({"kind": kind, **whom, **lasts, **({"factor": rng.uniform(1.1, 4.0)} if kind == "slow" else {})})
    idle, more = random.Random(f"idle {seed}"), random.Random(f"more {seed}")
    world: World = {
        "seed": seed,
        "agents": agents,
        "iterations": iterations,
        "lengths": lengths,
        "latency": rng.choice([0.0, rng.uniform(0.01, 0.4), rng.uniform(0.5, 3.0)]),
        "bandwidth": rng.choice([None, None, rng.uniform(10.0, 200.0)]),
        "link": rng.choice([None, None, rng.uniform(5.0, 100.0)]),
        "up": rng.randint(1, 3),
        "down": rng.randint(1, 3),
        "retry": rng.uniform(0.2, 1.5),
        "attempts": rng.choice([1, 2, 3, 8]),
        "mode": rng.choice(["immediate", "buffered", "barrier", "deadline", "first_k"]),
        "k": rng.randint(1, agents),
        "late": rng.choice(["drop", "carry"]),
        "length": rng.uniform(0.5, 3.0),
        "least": 1,
        "limited": more.random() < 0.5,
        "bound": rng.choice([None, None, rng.randint(0, 2)]),
        "days": [(day := rng.uniform(3.0, 8.0), rng.uniform(0.4, 0.9) * day) if rng.random() < 0.25 else None] * agents,
        "faults": faults,
        "choose": None,
        "lengths of rounds": list[float](),
        "turns": 0,
        "heartbeats": None,
        "drawn": list[int](),
        "rows": idle.random() < 0.25,
    }
    laws = random.Random(f"laws {seed}")
    if world["bandwidth"] is not None:
        ways: dict[str, float | None] = {"up": world["bandwidth"], "down": laws.choice([None, laws.uniform(10.0, 200.0)])}
        world["bandwidth"] = laws.choice([dict.fromkeys(ways, world["bandwidth"]), ways])
    for place, fault in enumerate(faults):
        if "at" not in fault:
            continue
        fault["at"] = [fault["at"], *([fault["at"] + laws.uniform(0.1, 3.0)] if laws.random() < 0.3 else [])]
        if laws.random() < 0.3:
            law = DurationLaw(laws.choice(["exponential", "gamma"]), laws.uniform(0.2, 2.0))
            together = fault["kind"] != "coordinator" and fault["kind"] != "partition" and laws.random() < 0.4
            fault |= {"duration": _Drawn(seed, place, law, together or "factor" not in fault and fault["kind"] != "hang")}
            fault |= {"together": True} if together else {}
    if world["mode"] == "deadline":
        world["least"] = more.choice([1, 2, 3])
        world["lengths of rounds"] = [more.uniform(0.3, 4.0) for _ in range(more.choice([0, 0, 1, 3]))]
    if world["mode"] == "barrier" and more.random() < 0.5:
        world |= {"mode": "adaptive", "quorum": more.choice([0.3, 0.5, 1.0]), "factor": more.choice([0.0, 0.9, 2.7])}
    if world["mode"] in ("immediate", "buffered") and more.random() < 0.5:
        world["turns"] = more.randint(1, agents)
    beats = random.Random(f"heartbeats {seed}")
    if beats.random() < 0.4:
        world |= {"heartbeats": (every := beats.uniform(0.1, 1.0), every * beats.uniform(1.0, 4.0)), "rows": True}
    if idle.random() < 0.7:
        world["choose"] = _Chooser(seed, idle.choice([0.3, 0.6, 1.0]))
        if idle.random() < 0.7:
            world["days"] = [(day := idle.uniform(1.0, 8.0), idle.uniform(0.3, 0.9) * day) for _ in range(agents)]
    return world


class _Drawn:
    """How long each strike of a fault lasts for an agent, drawn as the engine draws it: apart, or one for all."""

    def __init__(self, seed: int, place: int, law: DurationLaw, is_shared: bool) -> None:
        self.law, self._is_shared = law, is_shared
        self._lengths = Durations(lambda owner: law.make(), f"fault {place} lasts", Streams(seed))

    def __call__(self, agent: int, number: int) -> float:
        return self._lengths.of(COORDINATOR if self._is_shared else agent, number)


class _Chooser:
    """Who is asked in a round, drawn as the coordinator draws it, or everybody."""

    def __init__(self, seed: int, share: float) -> None:
        self.selection, self._streams = Selection("fraction", share, others="idle"), Streams(seed).of(COORDINATOR)

    def __call__(self, agents: list[int], number: int) -> set[int]:
        if self.selection.share == 1.0:
            return set(agents)
        known = Knowledge(SimpleNamespace(rounds=Rounds(number)), None)
        return self.selection.of_round(np.array(agents), known, self._streams.at(number))


def exchange_run(world: World) -> list[LoggedEvent]:
    """Carry a world of messages out; return the log."""
    staleness = Staleness(bound=world["bound"])
    late = {"late": world["late"], "staleness": staleness}
    exchange: Any = {
        "immediate": lambda: Immediate(staleness),
        "buffered": lambda: Buffered(world["k"], staleness),
        "barrier": lambda: Barrier(staleness),
        "deadline": lambda: Deadline(
            world["length"], minimum=world["least"], lengths=tuple(world["lengths of rounds"]), **late
        ),
        "adaptive": lambda: Adaptive(
            world["quorum"], world["factor"], length=world["length"] if world["limited"] else None, **late
        ),
        "first_k": lambda: FirstK(world["k"], length=world["length"] if world["limited"] else None, **late),
    }[world["mode"]]()
    if world["choose"] is not None and exchange.is_synchronous:
        exchange = replace(exchange, selection=world["choose"].selection)
    if world["turns"] and not exchange.is_synchronous:
        exchange = replace(exchange, selection=Selection(concurrency=world["turns"]))
    common = AgentModels(latency=Constant(world["latency"]), bandwidth=Ways(**(world["bandwidth"] or {})))
    names = ("kind", "day")
    plan = tuple(
        FAULTS[fault["kind"]](**{name: made(value) for name, value in fault.items() if name not in names}, **certain(fault))
        for fault in world["faults"]
    )
    talking = Talk(up=world["up"], down=world["down"])
    setting = Setting(talking, agents=world["agents"], initial=1, iterations=world["iterations"], seed=world["seed"])
    lengths = {
        number: replace(common, evaluation=Constant(length), availability=there(day))
        for number, (length, day) in enumerate(zip(world["lengths"], world["days"], strict=True))
    }
    detection = Detection(*world["heartbeats"]) if world["heartbeats"] else None
    sending: dict[str, Any] = {"detection": detection} | {name: world[name] for name in ("link", "retry", "attempts")}
    core = assembled(setting.task(), exchange, Environment(common, lengths, plan=plan, idle_rows=world["rows"], **sending))
    take, drawn = TurnServer.take, world["drawn"]
    drawn.clear()
    with mock.patch.object(TurnServer, "take", lambda self, state, place: drawn.append(got := take(self, state, place)) or got):
        return _log(setting, core)


def made(value: Any) -> Any:
    """Return a setting of a fault as the engine takes it."""
    return value.law if isinstance(value, _Drawn) else tuple(value) if isinstance(value, list) else value


def there(day: tuple[float, float] | None) -> Always | Daily:
    return Always() if day is None else Daily(day=day[0], present=day[1], start=0.0, zones=1)


def certain(fault: dict[str, Any]) -> dict[str, float]:
    return {"probability": 1.0} if fault["kind"] in WINDOWS else {}


def _log(setting: Setting, core: Core) -> list[LoggedEvent]:
    records, hosts = list[Any](), InlineHosts(setting.task(), range(setting.agents))
    run_virtual(core, hosts, RunHooks(records.extend), EventQueue())
    return logged(records)


def told(event: LoggedEvent) -> Line:
    """Return what is predicted of an event."""
    number = next(one for one in (event.step, event.answer, event.round) if one is not None)
    said: str | int = {
        "sent": "again" if event.again else "",
        "lost": f"{event.direction}: {event.reason if event.fault is None else f'fault {event.fault}'}",
        "arrived": event.staleness or 0,
        "missed": event.attempts or event.reason or "",
        "rejected": event.reason or "",
    }.get(event.kind, "")
    return event.time, event.kind, event.agent, number, said


def exchange_lines(lines: list[Line]) -> Counter[Any]:
    """Reduce a log to what is predicted: times to seven digits, faults without steps and up to the last other line."""
    last = max((time for time, kind, *_ in lines if kind not in FAULT_KINDS), default=0.0)
    found = Counter[Any]()
    for time, kind, agent, *facts in lines:
        if kind in FAULT_KINDS:
            if time <= last:
                found[round(time, 7), kind, agent] += 1
            continue
        found[round(time, 7), kind, agent, *facts] += 1
    return found


def draw_cluster(seed: int) -> World:
    """Draw a world of workers; evaluations of an agent take a constant time of its own."""
    rng = random.Random(f"cluster {seed}")
    agents = rng.randint(1, 6)
    classes = []
    for number in range(rng.randint(1, 3)):
        joins = rng.choice([0.0, 0.0, rng.uniform(0.1, 4.0)]) if number else 0.0
        classes.append(
            {
                "name": f"w{number}",
                "count": rng.randint(1, 4),
                "speed": rng.choice([1.0, 1.0, 2.0, rng.uniform(0.5, 3.0)]),
                "startup": rng.choice([0.0, 0.0, rng.uniform(0.05, 0.5)]),
                "has": (float(rng.randint(1, 4)), float(rng.randint(0, 2)), float(rng.choice([0, 64, 128]))),
                "joins": joins,
                "leaves": joins + rng.uniform(0.5, 6.0) if number and rng.random() < 0.4 else float("inf"),
            }
        )
    first = classes[0]["has"]
    preemptions = [
        {
            "workers": rng.choice(["all", *(group["name"] for group in classes)]),
            "at": rng.choice([0.0, 1.0, rng.uniform(0.1, 5.0)]),
            "duration": rng.uniform(0.2, 2.0),
            "checkpoint": rng.choice([None, 0.0, rng.uniform(0.05, 0.5)]),
        }
        for _ in range(rng.choice([0, 1, 1, 2, 3]))
    ]
    more = random.Random(f"saves {seed}")
    for fault in preemptions:
        fault["notice"] = more.choice([0.0, 0.0, more.uniform(0.05, 1.0)])
        fault["at"] = [fault["at"], *more.choice([[], [fault["at"] + more.uniform(0.1, 2.0)]])]
    some = random.Random(f"copies {seed}")
    load, scaled = random.Random(f"load {seed}"), random.Random(f"scaled {seed}")
    jobs = []
    for _ in range(load.choice([0, 0, 3, 12])):
        submit = load.choice([0.0, load.uniform(0.0, 15.0)])
        begin = submit + load.choice([0.0, load.uniform(0.0, 4.0)])
        jobs.append((submit, begin, begin + load.uniform(0.1, 6.0), float(load.randint(1, 6))))
    jobs.sort()
    start = load.choice([0.0, 0.0, load.uniform(0.0, 6.0)])
    if jobs and all(end <= start and submit < start for submit, _, end, _ in jobs):
        start = 0.0
    for group in classes:
        group |= {"least": None, "delay": 0.0, "idle": 0.0}
        if scaled.random() < 0.4:
            group |= {"least": scaled.randint(0, group["count"]), "delay": scaled.choice([0.0, scaled.uniform(0.05, 1.5)])}
            group |= {"idle": scaled.choice([0.0, scaled.uniform(0.05, 3.0)])}
    return {
        "jobs": jobs,
        "start": start,
        "unit": load.choice([1.0, load.uniform(0.5, 2.0)]),
        "copies": some.choice(
            [None, {"after": some.uniform(0.3, 2.0), "quantile": some.choice([0.2, 0.5, some.uniform(0.1, 0.9)])}]
        ),
        "saves": more.choice([None, {"every": more.uniform(0.2, 1.5), "cost": more.choice([0.0, more.uniform(0.02, 0.4)])}]),
        "seed": seed,
        "agents": agents,
        "classes": classes,
        "rule": rng.choice(["first_come", "fair_share", "priority"]),
        "priorities": [float(rng.randint(0, 2)) for _ in range(agents)],
        "needs": [tuple(rng.choice([0.5, 1.0]) * part if part else 0.0 for part in first) for _ in range(agents)],
        "parallel": (parallel := rng.choice([1, 1, 2, 3])),
        "evaluations": rng.randint(parallel + 1, 8),
        "lengths": [rng.uniform(0.3, 2.5) for _ in range(agents)],
        "preemptions": preemptions,
    }


def cluster_run(world: World) -> list[LoggedEvent]:
    """Carry a world of workers out; return the log."""
    classes = tuple(
        WorkerClass(
            group["name"],
            group["count"],
            group["speed"],
            Resources(*group["has"]),
            group["startup"],
            group["joins"],
            group["leaves"],
            group["least"],
            group["delay"],
            group["idle"],
        )
        for group in world["classes"]
    )
    needs = tuple(Resources(*need) for need in world["needs"])
    more = (world["saves"] or {}) | (world["copies"] or {})
    model = ClusterModel(classes, world["rule"], needs, tuple(world["priorities"]), **more, load=_load(world))
    plan = tuple(FAULTS["preemption"](**{**fault, "at": tuple(fault["at"])}) for fault in world["preemptions"])
    policy = Policy(parallel=world["parallel"])
    setting = Setting(
        entry("random").make(),
        agents=world["agents"],
        initial=world["evaluations"] - 1,
        iterations=1,
        seed=world["seed"],
        policy=policy,
    )
    common = AgentModels()
    lengths = {number: replace(common, evaluation=Constant(length)) for number, length in enumerate(world["lengths"])}
    return _log(setting, assembled(setting.task(), Immediate(), Environment(common, lengths, plan=plan, cluster=model)))


def _load(world: World) -> tuple[LoadPart, ...]:
    """Write the jobs of a world to a file and read it."""
    if not world["jobs"]:
        return ()
    most = max(group["has"][0] for group in world["classes"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        path.write_text("submit,start,end,cores\n" + "".join(",".join(map(repr, job)) + "\n" for job in world["jobs"]))
        return read_load(path, world["unit"], world["start"], most)
