"""The command `fedbo export`: a run in the form of another tool, and its timeline in the form of Perfetto."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbo.actors.storage import atomic
from fedbo.analysis.agent_states import event_intervals
from fedbo.analysis.finished_run import ResultError, exported_runs, own_metric
from fedbo.analysis.grouping import by_run, of_kinds
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import EVENTS
from fedbo.analysis.timeline_bars import EVALUATION_KINDS, evaluation_bars, kind_of, lanes_of, placements
from fedbo.commands.arguments import RunFolderArgument, offered


class Tool(StrEnum):
    """A tool for which runs can be exported."""

    optuna = "optuna"
    perfetto = "perfetto"


def export(
    folder: RunFolderArgument,
    to: Annotated[
        Tool, typer.Option(help="Format: optuna writes a journal with one study per agent; perfetto writes a timeline as JSON.")
    ] = Tool.optuna,
    out: Annotated[
        Path | None, typer.Option(help="New file to write. Default: optuna.journal or perfetto.json in the run directory.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="Label of one algorithm. Default: all algorithms.")] = None,
    replicate: Annotated[int, typer.Option(min=-1, help="Number of the replicate; -1 exports all.")] = 0,
    public: Annotated[
        Path | None, typer.Option(help="Write only what a private run may publish, to this new JSON file.")
    ] = None,
) -> None:
    """Export the evaluations of a run to Optuna, its timeline to Perfetto, or its public results if it is private."""
    result = Result.open(folder)
    if public is not None:
        labels = offered("export_public", "--public")(result, public)
        print(f"{public}: releases of {', '.join(labels)}; contains no data of single agents")
        return
    if to is Tool.perfetto:
        path = out or folder / f"{to}.json"
        count = export_to_perfetto(result, path, algorithm, None if replicate < 0 else replicate)
        print(f"{path}: {count:,} events; open it at https://ui.perfetto.dev or chrome://tracing")
        return
    try:
        export_to_optuna = offered("export_to_optuna", "--to optuna")
    except ImportError:
        raise ResultError("--to optuna needs Optuna; install it with: pip install optuna") from None
    path = out or folder / f"{to}.journal"
    names = export_to_optuna(result, path, algorithm, None if replicate < 0 else replicate)
    print(f"{path}: {len(names)} studies; open them with: optuna-dashboard {path}")


Event = dict[str, Any]

MICROSECONDS = 1e6  # in one unit of a study's time: one second on the screen
LANES = 1000  # numbers of threads that an agent or worker may have; the last two of an agent are for its faults and messages
COORDINATOR = 0  # the thread of the coordinator; those of agent n begin at (n + 1) LANES
PAUSES = (
    *(("absent", "returned", "away"), ("crashed", "restarted", "down after a crash"), ("hung", "woke", "hanging")),
    *(("slowed", "recovered", "slowed"), ("cut", "joined", "disconnected")),
)
EVENT_FACTS = EVENTS.names[EVENTS.names.index("agent") + 1 :]
MESSAGES = ("sent", "lost", "arrived", "late", "rejected", "delivered", "missed", "falsified")


def export_to_perfetto(result: Result, path: Path, algorithm: str | None = None, replicate: int | None = 0) -> int:
    """Write the timelines of the chosen runs, and return their number of events; raise the errors of `exported_runs`."""
    runs = exported_runs(result, result.events, (algorithm, replicate), path)
    evaluated, titles = dict(by_run(result.observations)), result.study.titles()
    found = list[Event]()
    for number, (key, events) in enumerate(runs):
        words = ", ".join(word for word in (key.algorithm, titles[key.cell], f"replicate {key.replicate}") if word)
        rows = evaluated.get(key, result.observations.slice(0, 0))
        found += _agents(2 * number + 1, words, (rows, events), own_metric(result, key.cell))
        found += _workers(2 * number + 2, words, events)
    atomic.write_text(path, json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}, allow_nan=False))
    return len(found)


def _agents(process: int, words: str, tables: tuple[Any, Any], metric: Any) -> Iterator[Event]:
    """Yield the events of one run's agents and of its coordinator."""
    observations, events = tables
    yield _meta("process_name", process, COORDINATOR, f"agents: {words}")
    yield _meta("thread_name", process, COORDINATOR, "coordinator")
    for one in event_intervals(events, "down", "up"):
        yield _slice("down", "coordinator", (process, COORDINATOR), (one.begin, one.end))
    for row in of_kinds(events, "round").to_pylist():
        yield _instant("round", (process, COORDINATOR), row["time"], {"round": row["round"], "bytes": row["bytes"]})
    rows = [row for row in observations.to_pylist() if row["phase"] != "history"]
    agents = sorted({row["agent"] for row in rows})
    place = {agent: number for number, agent in enumerate(agents)}
    lane = lanes_of([(row["agent"], row["started"], row["finished"]) for row in rows])
    used = {(row["agent"], own) for row, own in zip(rows, lane, strict=True)} | {(agent, 0) for agent in agents}
    for agent, own in sorted(used):
        yield from _thread(process, _first(agent) + own, f"agent {agent}{f', lane {own + 1}' if own else ''}")
    for row, own in zip(rows, lane, strict=True):
        where, span = (process, _first(row["agent"]) + own), (row["started"], row["finished"])
        yield _slice(kind_of(row), "evaluation", where, span, _facts(row, metric))
    kinds, _ = evaluation_bars(observations, events, place)
    for kind in kinds.keys() - set(EVALUATION_KINDS):
        for number, begin, end in kinds[kind]:
            yield _slice(kind, "step", (process, _first(agents[int(number)])), (begin, end))
    yield from _befallen(process, events, agents)


def _facts(row: Mapping[str, Any], metric: Any) -> dict[str, Any]:
    """Return the facts that a click on an evaluation shows."""
    value = float(metric.native(row["value"])) if row["error"] is None and math.isfinite(row["value"]) else None
    return {**{name: row[name] for name in ("step", "query", "origin", "error")}, metric.name: value}


def _befallen(process: int, events: Any, agents: Sequence[int]) -> Iterator[Event]:
    """Yield absences, faults and messages, in separate threads: they overlap evaluations."""
    known, faults, messages = set(agents), set[int](), set[int]()
    for begins, ends, word in PAUSES:
        for one in event_intervals(events, begins, ends):
            if one.agent in known:
                # Faults of unlike kinds overlap, and slices of a thread must not: each kind has a thread.
                thread = _first(one.agent) + LANES - len(PAUSES) - 1 + [each[2] for each in PAUSES].index(word)
                if thread not in faults:
                    faults.add(thread)
                    yield from _thread(process, thread, f"agent {one.agent}, {word}")
                yield _slice(word, "fault", (process, thread), (one.begin, one.end), _known(one.first))
    for row in of_kinds(events, *MESSAGES).to_pylist():
        if row["agent"] in known:
            thread = _first(row["agent"]) + LANES - 1
            if thread not in messages:
                messages.add(thread)
                yield from _thread(process, thread, f"agent {row['agent']}, messages")
            yield _instant(row["kind"], (process, thread), row["time"], _known(row))


def _known(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that a click on an event shows: those of its kind."""
    return {name: event[name] for name in EVENT_FACTS if event[name] is not None}


def _workers(process: int, words: str, events: Any) -> Iterator[Event]:
    """Yield the evaluations of a cluster's workers; nothing without a cluster."""
    rows = placements(events).to_pylist()
    if not rows:
        return
    yield _meta("process_name", process, 0, f"workers: {words}")
    lane = lanes_of([(row["worker"], row["started_at"], row["ended_at"]) for row in rows])
    for worker, own in sorted({(row["worker"], own) for row, own in zip(rows, lane, strict=True)}):
        yield from _thread(process, _first(worker) + own, f"worker {worker}{f', lane {own + 1}' if own else ''}")
    for row, own in zip(rows, lane, strict=True):
        name = f"agent {row['agent']}, step {row['step']}"
        facts = {key: row[key] for key in ("query", "queued_at", "preempted")}
        span = row["started_at"], row["ended_at"]
        yield _slice(name, "preempted" if row["preempted"] else "placed", (process, _first(row["worker"]) + own), span, facts)


def _first(number: int) -> int:
    return (number + 1) * LANES


def _thread(process: int, thread: int, name: str) -> Iterator[Event]:
    yield _meta("thread_name", process, thread, name)
    yield {**_meta("thread_sort_index", process, thread, name), "args": {"sort_index": thread}}


def _meta(what: str, process: int, thread: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _slice(
    name: str, category: str, where: tuple[int, int], span: tuple[float, float], facts: Mapping[str, Any] | None = None
) -> Event:
    """Return a complete event, with its time and its length in microseconds."""
    begin, end = (round(MICROSECONDS * time, 3) for time in span)
    times = {"ts": begin, "dur": max(0.0, round(end - begin, 3))}
    return {"name": name, "cat": category, "ph": "X", **times, "pid": where[0], "tid": where[1], "args": dict(facts or {})}


def _instant(name: str, where: tuple[int, int], time: float, facts: Mapping[str, Any]) -> Event:
    """Return an instant event of a thread."""
    at = {"s": "t", "ts": round(MICROSECONDS * time, 3)}
    return {"name": name, "cat": "message", "ph": "i", **at, "pid": where[0], "tid": where[1], "args": dict(facts)}
