"""Laws for the tables of any study in virtual time, checked from the tables and the study file alone."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fedbo.algorithms.base import ORIGINS
from fedbo.coordinator.environment.availability import Trace, Within
from fedbo.coordinator.environment.faults import Corruption, Crash, Duplication, Lie
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.study.study import Study
from tests.random_studies.laws.causes import causes
from tests.random_studies.laws.copies import copies
from tests.random_studies.laws.cost import cost
from tests.random_studies.laws.ledger import ledger
from tests.random_studies.laws.lifetimes import lifetimes_sum_to_lives
from tests.random_studies.laws.loads import loads, stays_of
from tests.random_studies.laws.metrics import metrics
from tests.random_studies.laws.placements import placements
from tests.random_studies.laws.stopping import is_resumed, stopping_early
from tests.random_studies.run_tables import NEAR, Row, RunTables, runs_of

_CLOCKS = 1e-3  # seconds: how long an evaluation took and when it ended are read from two clocks
PAIRS = {"absent": "returned", "hung": "woke", "crashed": "restarted", "slowed": "recovered", "cut": "joined", "down": "up"}


def violations(study: Study, directory: Path) -> list[str]:
    """List every law that the tables of a complete run break; empty if all of them hold."""
    found: list[str] = []
    for run in runs_of(study, directory):
        found += [f"{run.job.key.algorithm}: {words}" for words in violations_of(run)]
    return found


def violations_of(run: RunTables) -> list[str]:
    """List every law that the tables of one run break."""
    return [f"{law.__name__.strip('_')}: {words}" for law in LAWS for words in law(run)]


def _times(run: RunTables) -> Iterator[str]:
    """Check that time never goes back, events are numbered without gaps, and nothing happens after the budget's time.

    In real time no step begins after it, but one may end.
    """
    times = [event["time"] for event in run.events]
    if any(after < before for before, after in zip(times, times[1:], strict=False)):
        yield "the time of events goes back"
    if [event["sequence"] for event in run.events] != list(range(len(run.events))):
        yield "the events are not numbered one after the other"
    end = run.job.until
    if run.environment.is_real_time:
        if any(event["time"] > end for event in run.of("started")):
            yield f"a step began after [budget] time = {end}"
    elif times and times[-1] > end or any(row["finished"] > end + NEAR for row in run.rows):
        yield f"something happened after [budget] time = {end}"


def _steps(run: RunTables) -> Iterator[str]:
    """Check that steps of an agent begin in their order, end at most once, and end only after their start."""
    at: dict[int, int] = {}
    open_: set[int] = set()
    for event in run.of("started", "finished"):
        agent, step = event["agent"], event["step"]
        if event["kind"] == "started" and not event["again"]:
            if agent in open_ or step <= at.get(agent, -1):
                yield f"agent {agent} began step {step} after step {at.get(agent)}"
            at[agent] = step
            open_.add(agent)
        elif event["kind"] == "finished":
            if agent not in open_ or step != at[agent]:
                yield f"agent {agent} ended step {step}, which it was not at"
            open_.discard(agent)


def _messages(run: RunTables) -> Iterator[str]:
    """Check that a message takes effect at most once, after it was sent, with the sent bytes, and has one fate."""
    sent: dict[tuple[int, int], list[Row]] = defaultdict(list)
    fates: dict[tuple[int, int], list[str]] = defaultdict(list)
    for event in run.of("sent", "arrived", "late", "rejected", "lost"):
        key, kind = (event["agent"], event["step"]), event["kind"]
        if kind == "sent":
            sent[key].append(event)
        elif kind == "lost":
            if event["direction"] == "up" and key not in sent:
                yield f"message {key} was lost before it was sent"
        elif event["answer"] is None:
            if key not in sent:
                yield f"message {key} {kind} without having been sent"
            elif kind == "arrived" and event["bytes"] != sent[key][0]["bytes"] and not run.suffers(Corruption):
                yield f"message {key} arrived with {event['bytes']} bytes of {sent[key][0]['bytes']}"
            fates[key].append(kind)
    for key, kinds in fates.items():
        count = Counter(kinds)
        if count["arrived"] + count["late"] > 1:
            yield f"message {key} took effect {count['arrived'] + count['late']} times"
        held = run.exchange.selection.concurrency is not None and getattr(run.task.algorithm, "refuses", False)
        if len(kinds) > 1 and not (run.suffers(Duplication) or run.suffers(Corruption) or held):
            yield f"message {key} had the fates {kinds}"
    for key, events in sent.items():
        if len(events) > run.environment.attempts:
            yield f"message {key} was transmitted {len(events)} times"
        if key not in fates and not run.ends_early and not _lost_for_good(run, key[0]):
            yield f"nothing became of message {key}"


def _lies(run: RunTables) -> Iterator[str]:
    """Check that a falsified message is the next one of an agent with a lie at that time, before its first transmission."""
    lies = [fault for fault in run.environment.plan if isinstance(fault, Lie)]
    for place, event in enumerate(run.events):
        if event["kind"] != "falsified":
            continue
        agent, time = event["agent"], event["time"]
        then = [lie for lie in lies if agent in lie.agents and lie.start <= time < (math.inf if lie.end is None else lie.end)]
        if len(event["lies"]) > len(then):
            yield f"agent {agent} told {event['lies']} at {time}, its lies then are {then}"
        after = run.events[place + 1] if place + 1 < len(run.events) else {}
        if (after.get("kind"), after.get("agent"), after.get("step")) != ("sent", agent, event["step"]) or after.get("again"):
            yield f"what agent {agent} falsified at {time} was not sent"


def _lost_for_good(run: RunTables, agent: int) -> bool:
    ended = [e for e in run.events if e["agent"] == agent and e["permanent"]]
    model = run.environment.of(agent).availability
    leaves = isinstance(model, Within) and model.end < math.inf
    return bool(ended) or leaves or isinstance(model.model if isinstance(model, Within) else model, Trace)


def _answers(run: RunTables) -> Iterator[str]:
    """Check that rounds and buffers close in their order, and that an answer reaches an agent once, after its close."""
    closed = 0
    heard: set[tuple[int, int]] = set()
    drawn: set[tuple[int, int]] = set()
    turns = run.exchange.selection.concurrency is not None and run.task.algorithm.upload(run.task.problem) is not None
    waits = run.exchange.is_synchronous or getattr(run.exchange, "k", None) is not None
    for event in run.of("round", "drawn", "delivered"):
        if event["kind"] == "drawn":
            drawn.add((event["agent"], event["answer"]))
            continue
        if event["kind"] == "round":
            if event["round"] != closed or not waits:
                yield f"round {event['round']} closed after {closed} rounds"
            closed += 1
            continue
        key = (event["agent"], event["answer"])
        if key in heard:
            yield f"agent {key[0]} had answer {key[1]} twice"
        if key not in drawn if turns else waits and event["answer"] >= closed:
            yield f"agent {key[0]} had answer {key[1]} before the round had closed, or it was drawn"
        heard.add(key)


def _observations(run: RunTables) -> Iterator[str]:
    """Check that points lie in the box, values without failure are finite, and t_n counts the observations of each agent."""
    low = np.array([parameter.low for parameter in run.task.federation.parameters])
    high = np.array([parameter.high for parameter in run.task.federation.parameters])
    counted: Counter[int] = Counter()
    for row in sorted(run.rows, key=lambda row: (row["agent"], row["t_n"], row["error"] is None)):
        x, u = np.array(row["x"]), np.array(row["u"])
        slack = 1e-9 * (high - low)
        if (x < low - slack).any() or (x > high + slack).any() or (u < 0).any() or (u > 1).any():
            yield f"agent {row['agent']} evaluated {row['x']}, outside the box"
        if row["origin"] not in ORIGINS:
            yield f"the origin {row['origin']!r} is not one that results know"
        if row["error"] is None:
            counted[row["agent"]] += row["pulls"]
            if not math.isfinite(row["value"]) or not math.isfinite(row["score"]):
                yield f"agent {row['agent']} observed {row['value']}"
            if row["t_n"] != counted[row["agent"]] and not run.suffers(Crash):
                yield f"agent {row['agent']}: t_n is {row['t_n']} at its observation {counted[row['agent']]}"


def _evaluations(run: RunTables) -> Iterator[str]:
    """Check that each row belongs to a finished step, no agent exceeds its evaluations at once, and failures are logged.

    If evaluations overlap, those that have ended count at the end, although their step may not.
    """
    policy = run.task.policy
    ended = {(event["agent"], event["step"]) for event in run.of("started" if policy.overlaps else "finished")}
    ends: dict[int, list[float]] = defaultdict(list)
    near = NEAR if not run.environment.is_real_time else _CLOCKS
    for row in sorted(run.rows, key=lambda row: (row["agent"], row["started"], row["finished"])):
        agent = row["agent"]
        if (agent, row["step"]) not in ended:
            yield f"agent {agent} has a row of step {row['step']}, which has not ended"
        ends[agent] = [end for end in ends[agent] if end > row["started"] + near]
        if row["finished"] < row["started"] - near or len(ends[agent]) >= policy.most_pending:
            yield f"agent {agent} evaluated from {row['started']} to {row['finished']} beside what ends at {ends[agent]}"
        ends[agent].append(row["finished"])
    failed = sum(row["error"] is not None and row["error"] != "forgotten in a crash" for row in run.rows)
    if failed != len(run.of("failed")) and not run.suffers(Crash):
        yield f"{failed} rows failed, {len(run.of('failed'))} events tell of it"


def _workers(run: RunTables) -> Iterator[str]:
    """Check that no worker of a cluster exceeds its resources, and that evaluations end on the worker on which they began."""
    model, used = run.environment.cluster, defaultdict[int, dict[tuple[int, ...], float]](dict)
    if model is None:
        return
    holds = [one.resources.cpus for one in model.classes for _ in range(one.count)]
    loads, ends = defaultdict[int, list[tuple[float, float]]](list), {stay.number: stay.left for stay in stays_of(run)}
    for event in run.of("placed", "released", "preempted", "job_placed"):
        worker = event["worker"]
        job, jobs = (event["agent"], event["step"], event["query"], event["copy"] is True), used[worker]
        for part, end in [*loads[worker]]:
            if end <= event["time"]:
                loads[worker].remove((part, end))
        if event["kind"] == "job_placed":
            loads[worker].append((event["cpus"], ends[event["sequence"]]))
        elif event["kind"] == "placed":
            jobs[job] = model.need(event["agent"]).cpus
        elif jobs.pop(job, None) is None:
            yield f"evaluation {job} was {event['kind']} on worker {worker}, where it was not"
        if sum(jobs.values()) + sum(cpus for cpus, _ in loads[worker]) > holds[worker] + NEAR:
            yield f"worker {worker} had {jobs} and {loads[worker]} at {event['time']}, and has {holds[worker]:g} CPUs"


def _budget(run: RunTables) -> Iterator[str]:
    """Check that no agent exceeds its budget, and that agents present to the end have used it or have been waiting."""
    task, targets = run.task, run.task.problem.targets
    idle = run.exchange.selection.idles  # rounds count then, of which an agent may miss any
    done = Counter(event["agent"] for event in run.of("done"))
    steps = {agent: max((row["step"] for row in run.rows if row["agent"] == agent), default=0) for agent in targets}
    for agent in targets:
        _, most, most_pulls = task.budget_of(agent)
        rows = [row for row in run.rows if row["agent"] == agent and "forgotten" not in (row["error"] or "")]
        if (stopping := task.stopping) is not None:
            rows = [row for row in rows if not is_resumed(run, stopping, row)]
        pulls = sum(row["pulls"] for row in rows)
        if not most_pulls and steps[agent] > most:
            yield f"agent {agent} made step {steps[agent]} of {most}"
        if most_pulls and pulls > most_pulls and not task.policy.retries:
            yield f"agent {agent} made {pulls} evaluations of {most_pulls}"
        if done[agent] > 1:
            yield f"agent {agent} was done {done[agent]} times"
        if not idle and not done[agent] and not run.ends_early and not _lost_for_good(run, agent):
            yield f"agent {agent} was never done, and nothing tells why"
    rounds, largest = len(run.of("round")), task.problem.iterations
    if idle and not task.problem.pulls and rounds > largest + 1:
        yield f"{rounds} rounds closed, with {largest} iterations"


def _interruptions(run: RunTables) -> Iterator[str]:
    """Check that every interruption of an agent or the coordinator ends only after its start."""
    begun: Counter[tuple[str, int]] = Counter()
    over: set[int] = set()
    for event in run.events:
        kind, agent = event["kind"], event["agent"]
        # A partition also cuts off the last messages of an agent that has ended.
        if agent in over and agent >= 0 and kind in (*PAIRS, *PAIRS.values()) and kind not in ("cut", "joined"):
            yield f"{kind} happened to agent {agent}, which had ended"
        if kind == "done" or event["permanent"]:
            over.add(agent)
        for first, last in PAIRS.items():
            begun[first, agent] += (kind == first) - (kind == last)
            if begun[first, agent] < 0:
                yield f"agent {agent} {last} without {first}"
                begun[first, agent] = 0


def _staleness(run: RunTables) -> Iterator[str]:
    """Check that no message takes effect beyond the allowed age."""
    exchange: Exchange = run.exchange
    bound, closed, base = exchange.staleness.bound, 0, dict[tuple[int, int], int]()
    for event in run.of("started", "arrived", "round"):
        key = (event["agent"], event["step"])
        if event["kind"] == "round":
            closed += 1
        elif event["kind"] == "started":
            base.setdefault(key, closed)
        else:
            stale = event["staleness"]
            if bound is not None and stale > bound:
                yield f"message {key} took effect {stale} rounds old, the bound is {bound}"
            if exchange.is_synchronous and stale != closed - base.get(key, closed):
                yield f"message {key} is said to be {stale} rounds old, and is {closed - base.get(key, closed)}"
            if exchange.is_synchronous and stale and not exchange.accepts_late:
                yield f"message {key} took effect {stale} rounds late"


LAWS: tuple[Callable[[RunTables], Iterator[str]], ...] = (
    _times,
    _steps,
    _messages,
    _lies,
    _answers,
    _observations,
    _evaluations,
    _workers,
    placements,
    copies,
    loads,
    _budget,
    cost,
    _interruptions,
    _staleness,
    ledger,
    metrics,
    stopping_early,
    causes,
    lifetimes_sum_to_lives,
)
