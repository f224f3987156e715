"""The promise of liveness: once all is healed that is not broken for good, a study ends within a bounded virtual time.

A study is run with its faults, forked at a random moment, and healed there: no faults begin any more, and every agent is there
for good. What has begun ends by itself: a hang, a restart, an absence, a message on its way. From then on time passes by what
is done, and never by waiting for nothing. With

- E evaluations, each of which takes at most `e` on the slowest device and is tried `1 + retries` times,
- M transmissions and answers, each of which takes at most `l` and is followed by a wait of at most `retry`,
- D decisions of at most `d`, R rounds, each of which may wait for a deadline of `length`,
- and at most `h` until what had begun before is over,

all of them counted after the fork, the study ends at most E e (1 + retries) + M (l + retry) + D d + R length + h after it. The
durations are constants in these studies, so that the bound is a number and no distribution.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedbo.actors.storage.rows import read_table
from fedbo.analysis.grouping import by_run
from fedbo.coordinator.environment.faults import MESSAGE_FAULTS
from fedbo.lab.fork.fork import fork_run
from fedbo.lab.fork.trunk import ForkPoint
from fedbo.study.study import Study, StudyError, load_study
from tests.random_studies.carrying_out import LEGAL_NAMES, Untried, begin_or_go_on, forked, words
from tests.random_studies.invariants import violations

Document = dict[str, Any]
EVALUATION, LATENCY, RETRY = 1.0, 0.25, 1.0
NEVER = 100_000_000  # a time, and a number of an event, at which no study is any more
_TIMES = ("evaluation", "speed", "decision", "latency", "bandwidth", "availability", "leaving", "from", "until")
SLACK = 1e-6


def broken_liveness(study: Study, folder: Path, seconds: float, seed: int) -> list[str]:
    """Run a study, heal it in a fork at a random moment, and check that it ends in time; list what was broken."""
    rng = random.Random(f"liveness {seed}")
    try:
        plain = load_study(with_constant_times(study.document()))
    except StudyError as error:
        raise Untried(str(error)) from error
    run = folder / "run"
    ended = forked(lambda: begin_or_go_on(plain, run), folder, seconds)
    if ended.error.startswith(LEGAL_NAMES) or ended.killed:
        raise Untried("it cannot be run to its end with its faults, so that no moment of it can be forked")
    if ended.code:
        return [words(ended, "the run", seconds)]
    last = min(max(part["time"].to_pylist()) for _, part in by_run(read_table(run / "events.parquet")))
    moment = last * rng.random() + 1e-9
    sets = list(healing(plain, moment))
    if not sets:
        raise Untried("there is nothing to heal")
    healed = forked(lambda: _healed(run, moment, sets, folder / "fork"), folder, 2 * seconds)
    if healed.error.startswith(("ForkError: --at", "StudyError", "ForkError")):
        raise Untried(healed.error)
    if healed.error.startswith(LEGAL_NAMES):
        return [] if "for good" in healed.error or "stop" in healed.error else [f"healed at {moment:.6g}: {healed.error}"]
    if healed.code:
        return [words(healed, f"the study healed at {moment:.6g}", 2 * seconds)]
    return [f"healed at {moment:.6g}: {broken}" for broken in healed.given]


def with_constant_times(document: Document) -> Document:
    """Return a study with constant durations, without a limit of time, and with groups that differ in nothing else."""
    timing = {"evaluation": {"model": "constant", "mean": EVALUATION}, "latency": {"model": "constant", "mean": LATENCY}}
    network = {**document.get("network", {}), "retry": RETRY}
    for key in ("bandwidth", "link"):
        network.pop(key, None)
    budget = {key: value for key, value in document["budget"].items() if key not in ("time", "target", "evaluations")}
    budget |= {"time": 1e4}  # where the faults alone let it never end
    groups = [{key: value for key, value in group.items() if key not in _TIMES} for group in document.get("group", ())]
    changed = document | {"timing": timing, "network": network, "budget": budget, "group": groups}
    for key in ("sweep", "cluster", "stopping"):
        changed.pop(key, None)
    faults = [fault for fault in document.get("fault", ()) if fault["kind"] != "preemption"]
    changed["fault"] = [{**_constant(fault), "label": f"f{number}"} for number, fault in enumerate(faults)]
    if "resources" in changed.get("evaluation", {}):
        changed["evaluation"] = {key: value for key, value in changed["evaluation"].items() if key != "resources"}
    return {key: value for key, value in changed.items() if value != []}


def _constant(fault: Document) -> Document:
    """Return a fault that lasts for the mean of its law, and strikes at the first of its times."""
    found = {key: value["mean"] if isinstance(value, dict) else value for key, value in fault.items()}
    if "rate" not in found:
        found.pop("together", None)
    return found | ({"at": found["at"][0]} if isinstance(found.get("at"), list) else {})


def healing(study: Study, moment: float) -> Iterator[str]:
    """Yield the changes that end all faults of a study at a moment, but for those that have struck for good."""
    if study.availability.model != "always":
        yield "availability={model='always'}"
    if study.budget.time is not None:
        yield f"budget.time={NEVER}"
    for table in study.fault:
        fault = table.make()
        if isinstance(fault, MESSAGE_FAULTS):
            yield f"fault.{table.label}.probability=0"
        elif fault.rate is not None:
            yield f"fault.{table.label}.rate=0"
        elif fault.event is not None:
            yield f"fault.{table.label}.event={NEVER}"
        elif fault.at > moment:
            yield f"fault.{table.label}.at={NEVER}"


def _healed(run: Path, moment: float, sets: list[str], out: Path) -> list[str]:
    """Fork and heal a run; list what its branch breaks."""
    fork_run(run, [ForkPoint(time=moment)], sets, out)
    branch, before = out / "branch-0001", load_study(run / "study.toml")
    return [*violations(before, branch), *_late(before, branch, moment)]


def _late(study: Study, branch: Path, moment: float) -> Iterator[str]:
    """Yield each run that ended later than the bound allows."""
    rows = {key: part.to_pylist() for key, part in by_run(read_table(branch / "observations.parquet"))}
    for key, part in by_run(read_table(branch / "events.parquet")):
        events = [event for event in part.to_pylist() if event["time"] >= moment]
        after = [row for row in rows.get(key, ()) if row["finished"] >= moment]
        if not events:
            continue
        count = {kind: sum(event["kind"] == kind for event in events) for kind in {event["kind"] for event in events}}
        steps = count.get("started", 0) + count.get("finished", 0) + 1
        moves = sum(count.get(kind, 0) for kind in ("sent", "arrived", "delivered", "rejected", "late", "lost", "round")) + 1
        evaluation = EVALUATION * (1 + study.evaluation.make().retries) * _slowest(study)
        wait = getattr(study.exchange.make(), "length", 0.0) or 0.0
        evaluations = sum(row["pulls"] for row in after)  # a row may be the mean of several
        bound = evaluations * evaluation + steps * evaluation + moves * (2 * LATENCY + RETRY * study.network.attempts)
        bound += (count.get("round", 0) + 1) * wait + _lasting(study)
        took = events[-1]["time"] - moment
        if took > bound + SLACK:
            yield f"{key}: ended {took:.6g} after it was healed, and {bound:.6g} at most are allowed by {count}"


def _slowest(study: Study) -> float:
    return float(max([1.0, *(fault.settings.get("factor", 2.0) for fault in study.fault if fault.kind == "slow")]))


def _lasting(study: Study) -> float:
    """Return how long at most what had begun before the fork may last."""
    longest = [0.0]
    for fault in study.fault:
        made = fault.make()
        longest += [value for key in ("duration", "restart", "by") if (value := getattr(made, key, None))]
    return 3.0 * sum(longest)
