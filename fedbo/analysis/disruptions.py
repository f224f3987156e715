"""The disruptions of a run in numbers: rounds, messages by their fate, staleness, time by state, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.analysis.agent_states import STATES, state_intervals
from fedbo.analysis.finished_run import FinishedRun, counted_tables, fault_names
from fedbo.analysis.grouping import by_run, bytes_of, column_of, of_kinds, runs_by_algorithm, sent_down, sent_up
from fedbo.analysis.ledger_of_time import LOST, LedgerOfTime
from fedbo.analysis.records.records import Records
from fedbo.analysis.traces import targets_of
from fedbo.coordinator.logged.messages import LossReason

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Who:
    cell: int
    """Cell of the sweep, from 0."""
    algorithm: str
    """Label of the algorithm."""


@dataclass(frozen=True)
class Messages:
    """The messages of a run, or of one of its agents: means over replicates.

    - Of the transmissions `sent`, `arrived` took effect (`lies` of them were falsified), `late` ones missed their round and
      were dropped, `lost` ones never arrived, and `rejected` ones were refused (`stale` of them as too old).
    - `duplicates`: additional copies that were refused; `given_up`: messages lost in all their transmissions; `falsified`:
      messages of agents that lied.
    - `answers` reached an agent; `answers_lost`: lost transmissions of answers; `answer_copies`: copies that were refused.
    - `lost_to`: losses in both directions by their cause: a fault, a partition, a coordinator that was down.
    - `bytes_up` and `bytes_down` were transmitted, of which `bytes_arrived` took effect and `bytes_delivered` reached an agent.
    - `staleness`: the mean over all messages that took effect, in rounds or updates, and `max_staleness` the largest in any
      replicate; both None if unknown.
    """

    sent: float
    """Transmissions to the coordinator, repeated ones included."""
    arrived: float
    """Messages that took effect."""
    late: float
    """Messages dropped because their round had closed."""
    lost: float
    """Lost transmissions to the coordinator."""
    rejected: float
    """Messages refused for another reason."""
    stale: float
    """Refused messages that were older than the bound of staleness."""
    duplicates: float
    """Second copies of messages, which were refused."""
    given_up: float
    """Messages that were not repeated after their last transmission."""
    falsified: float
    """Messages of agents that lied."""
    lies: float
    """Falsified messages that took effect."""
    answers: float
    """Answers that reached an agent."""
    answers_lost: float
    """Lost transmissions of answers."""
    answer_copies: float
    """Second copies of answers, which were refused."""
    lost_to: Mapping[str, float]
    """Losses both ways by cause: a fault, `partition`, or `coordinator down`."""
    bytes_up: float
    """Bytes transmitted to the coordinator."""
    bytes_arrived: float
    """Bytes of messages that took effect."""
    bytes_down: float
    """Bytes transmitted to agents."""
    bytes_delivered: float
    """Bytes of answers that reached an agent."""
    staleness: float | None
    """Mean staleness of messages that took effect [rounds, or updates of the server without rounds]."""
    max_staleness: float | None
    """Largest staleness of them in any replicate [the same]."""


@dataclass(frozen=True)
class LifeTimes:
    """The mean times of a target from 0 to the end of its life (see `fedbo.analysis.agent_states`).

    `evaluating` includes deciding, and is the sum of the four times after it. With `queueing`, `waiting`, `away` and `down` it
    is the whole life. `utilisation` is its share of that.
    """

    utilisation: float
    """Share of `evaluating` in the whole time."""
    evaluating: float
    """Time of work on steps, deciding included, without pauses."""
    useful: float
    """Part of it that was not lost."""
    lost_to_crashes: float
    """Part of it that a crash, or an absence with `leaving = "lost"`, made void."""
    lost_to_preemption: float
    """Part of it that was lost with a worker."""
    lost_to_lateness: float
    """Part of it in steps whose message came too late or was refused."""
    queueing: float
    """Time in which all evaluations of a step waited for workers."""
    waiting: float
    """Time without work, though present."""
    away: float
    """Time from `absent` to `returned`."""
    down: float
    """Time from `crashed` to `restarted`, and from `hung` to `woke`."""


@dataclass(frozen=True)
class Disruptions(Messages, LifeTimes, _Who):
    """The disruptions of one algorithm in one cell: means over replicates of counts and times in a whole run.

    `round_length` is the mean time from the close of a round to that of the next, None with fewer than two rounds. `failed`
    evaluations returned no value; `forgotten` ones were lost by a crash or arrived too late to count. `barren` targets have
    begun, and never had a successful observation.
    """

    replicates: int
    """Number of replicates."""
    rounds: float
    """Rounds that closed, or buffers that were answered."""
    round_length: float | None
    """Mean time between the ends of two rounds."""
    crashes: float
    """Crashes of all agents."""
    failed: float
    """Evaluations without a value."""
    forgotten: float
    """Evaluations lost by a crash, or too late to count."""
    barren: float
    """Targets without any good observation."""


@dataclass(frozen=True)
class AgentTrouble(Messages, LifeTimes, _Who):
    """The messages and times of one agent in one cell under one algorithm: means over replicates."""

    agent: int
    crashes: float


def trouble(result: FinishedRun) -> Records[Disruptions]:
    """Measure disruptions, one row for each algorithm in each cell."""
    optimising, place = {cell.number: cell.study.agents.targets for cell in result.study.cells()}, result.study.labels.index
    rows = disruptions(*counted_tables(result), fault_names(result.study), optimising)
    return Records("trouble", Disruptions, sorted(rows, key=lambda row: (row.cell, place(row.algorithm))))


def trouble_by_agent(result: FinishedRun) -> Records[AgentTrouble]:
    """Measure the messages and the times of every agent, one row for each algorithm in each cell."""
    found, (observations, events), faults = list[AgentTrouble](), counted_tables(result), fault_names(result.study)
    evaluated, nothing = dict(by_run(observations)), observations.slice(0, 0)
    for (cell, label), runs in runs_by_algorithm(events).items():
        facts: dict[int, list[dict[str, Any]]] = {}
        for key, own in runs:
            times = lifetimes(evaluated.get(key, nothing), own)
            for agent, part in _by_agent(own):
                facts.setdefault(agent, []).append({**_messages(part, faults), **times(np.array([agent]))})
        found += [AgentTrouble(cell=cell, algorithm=label, agent=agent, **_averaged(facts[agent])) for agent in facts]
    place = result.study.labels.index
    return Records("agents", AgentTrouble, sorted(found, key=lambda row: (row.cell, place(row.algorithm), row.agent)))


def disruptions(
    observations: Any, events: Any, faults: Sequence[str] = (), optimising: Mapping[int, Any] | None = None
) -> list[Disruptions]:
    """Measure every algorithm in every cell; both tables are in canonical order.

    `faults` are the names of the planned faults, which name causes of losses; `optimising` are each cell's targets or "all".
    """
    targets, evaluated, nothing = targets_of(observations), dict(by_run(observations)), observations.slice(0, 0)
    found = []
    for (cell, label), runs in runs_by_algorithm(events).items():
        mine = targets.get(cell, np.zeros(0, dtype=np.int64))
        facts = [
            {**_messages(own, faults), **lifetimes(rows, own)(mine), "rounds": len(of_kinds(own, "round"))}
            | _failures(rows, own, mine, (optimising or {}).get(cell, ()))
            for key, own in runs
            for rows in [evaluated.get(key, nothing)]
        ]
        gaps = np.concatenate([np.diff(column_of(of_kinds(own, "round"), "time").astype(np.float64)) for _, own in runs])
        length = float(gaps.mean()) if len(gaps) else None
        found.append(Disruptions(cell=cell, algorithm=label, replicates=len(facts), round_length=length, **_averaged(facts)))
    return found


def staleness_of(events: Any) -> Array:
    """List the age in rounds of each message that took effect, `(s,)`, if known."""
    return column_of(of_kinds(events, "arrived").filter(pc.is_valid(pc.field("staleness"))), "staleness").astype(np.float64)


def falsified_arrivals(events: Any) -> int:
    """Count the messages of one run that took effect although their sender lied."""
    lies = set(_steps_of(events, "falsified"))
    return sum(step in lies for step in _steps_of(events, "arrived"))


def _steps_of(events: Any, kind: str) -> list[tuple[int, int]]:
    found = of_kinds(events, kind)
    return list(zip(found["agent"].to_pylist(), found["step"].to_pylist(), strict=True))


def _by_agent(events: Any) -> Iterator[tuple[int, Any]]:
    """Yield the events of each agent, in their order, without those of the coordinator."""
    agents = column_of(events, "agent")
    order = np.argsort(agents, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(agents[order])) + 1):
        if agents[places[0]] >= 0:
            yield int(agents[places[0]]), events.take(pa.array(places))


def _averaged(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Average facts over replicates: numbers, and counts by their cause; staleness over all messages."""
    stale = np.concatenate([facts.pop("staleness") for facts in found])
    causes = sorted({cause for facts in found for cause in facts["lost_to"]})
    lost_to = {cause: float(np.mean([facts["lost_to"].get(cause, 0) for facts in found])) for cause in causes}
    mean = {name: float(np.mean([facts[name] for facts in found])) for name in found[0] if name != "lost_to"}
    life = sum(mean[state] for state in (*STATES, "queueing"))
    return {
        **mean,
        "lost_to": lost_to,
        "staleness": float(stale.mean()) if len(stale) else None,
        "max_staleness": float(stale.max()) if len(stale) else None,
        "utilisation": mean["evaluating"] / life if life else 0.0,
    }


def _messages(events: Any, faults: Sequence[str]) -> dict[str, Any]:
    counts = {item["values"]: item["counts"] for item in pc.value_counts(events["kind"]).to_pylist()}
    refused = of_kinds(events, "rejected").select(["reason", "answer"]).to_pylist()
    reasons = Counter(row["reason"] for row in refused)
    answered = sum(row["answer"] is not None for row in refused)
    copies, given_up = reasons["duplicate"] - answered, reasons["given_up"]
    lost = of_kinds(events, "lost").select(["direction", "reason", "fault"]).to_pylist()
    down = sum(row["direction"] == "down" for row in lost)
    came = of_kinds(events, "arrived")
    return {
        "sent": counts.get("sent", 0),
        "arrived": counts.get("arrived", 0),
        "late": counts.get("late", 0),
        "lost": len(lost) - down,
        "rejected": len(refused) - copies - answered - given_up,
        "stale": reasons["stale"],
        "duplicates": copies,
        "given_up": given_up,
        "falsified": counts.get("falsified", 0),
        "lies": falsified_arrivals(events),
        "answers": counts.get("delivered", 0),
        "answers_lost": down,
        "answer_copies": answered,
        "lost_to": Counter(cause_of(row["reason"], row["fault"], faults) for row in lost),
        "bytes_up": bytes_of(sent_up(events)),
        "bytes_arrived": bytes_of(came),
        "bytes_down": bytes_of(sent_down(events)),
        "bytes_delivered": bytes_of(of_kinds(events, "delivered")),
        "staleness": staleness_of(events),
        "crashes": counts.get("crashed", 0),
    }


def cause_of(reason: LossReason | None, fault: int | None, faults: Sequence[str]) -> str:
    """Return the cause of a lost transmission; runs of earlier versions do not record it."""
    if fault is not None:
        return faults[fault] if fault < len(faults) else f"fault {fault}"
    return "not recorded" if reason is None else reason.replace("_", " ")


def lifetimes(observations: Any, events: Any) -> Callable[[npt.NDArray[np.int64]], dict[str, float]]:
    """Return the function of some agents of one run, `(n,)`, that returns their mean times by the names of `LifeTimes`."""
    lived = state_intervals(events)
    ledger = LedgerOfTime(lived, observations, events)

    def times(agents: npt.NDArray[np.int64]) -> dict[str, float]:
        total = {state: lived.total(state, agents) for state in STATES} | ledger.times(agents)
        total["evaluating"] -= total["queueing"]
        total["useful"] = total["evaluating"] - sum(total[part] for part in LOST)
        return {name: time / max(1, len(agents)) for name, time in total.items()}

    return times


def _failures(observations: Any, events: Any, targets: npt.NDArray[np.int64], optimising: Any) -> dict[str, float]:
    good = observations.filter(pc.is_null(observations["error"]))
    begun = column_of(of_kinds(events, "started"), "agent")
    begun = begun if optimising == "all" else begun[np.isin(begun, optimising)]
    forgotten = sum((error or "").startswith("forgotten") for error in observations["error"].to_pylist())
    return {
        "failed": len(of_kinds(events, "failed")),
        "forgotten": forgotten + len(of_kinds(events, "discarded")),
        "barren": len(np.union1d(targets, begun)) - len(np.unique(column_of(good, "agent"))),
    }
