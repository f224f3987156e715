"""Situations that random studies must reach: `SITUATIONS` names each in plain English and finds it in the tables of a run.

A study that never meets a message doubled while the coordinator is down says nothing about that case. Kills are no events:
`KILLS` finds them by the file that was about to be written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from fedbo.coordinator.logged.messages import RefusalReason
from fedbo.study.study import Study
from tests.random_studies.chaos.run_view import RunView, transmissions
from tests.random_studies.run_tables import runs_of

Found = Callable[[RunView], bool]


def _rejected(view: RunView, *reasons: RefusalReason) -> bool:
    return any(event["reason"] in reasons for event in view.of("rejected"))


def _overtakes(view: RunView) -> bool:
    flights = view.spans["in flight"]
    return any(one.begin < two.begin and two.end < one.end and one.agent == two.agent for one in flights for two in flights)


def _out_of_order(view: RunView) -> bool:
    """Find two evaluations of one agent that end in another order than they began in."""
    rows = [(row["agent"], row["started"], row["finished"]) for row in view.run.rows]
    return any(one[0] == two[0] and one[1] < two[1] and two[2] < one[2] for one in rows for two in rows)


def _fewest(view: RunView) -> int:
    """Return the smallest number of messages that a round closed with."""
    fewest, arrived = 10**9, 0
    for event in view.of("arrived", "round"):
        if event["kind"] == "round":
            fewest, arrived = min(fewest, arrived), 0
        else:
            arrived += 1
    return fewest


def _shares(view: RunView, spare: int, kind: str = "unmasked") -> bool:
    """Find a sum for which as many agents more than the threshold gave shares."""
    return any(event["answering"] - event["needed"] == spare for event in view.of(kind))


def _all(view: RunView) -> int:
    return max(2, len(view.run.task.problem.targets))  # one agent alone is no situation


def _down(view: RunView) -> int:
    return len(view.of("down"))


SITUATIONS: dict[str, Found] = {
    # Messages.
    "a message is lost on its way to the coordinator": lambda view: any(e["direction"] == "up" for e in view.of("lost")),
    "an answer is lost on its way to an agent": lambda view: any(e["direction"] == "down" for e in view.of("lost")),
    "a message arrives twice": lambda view: _rejected(view, "duplicate"),
    "an answer arrives twice": lambda view: any(event["answer"] is not None for event in view.of("rejected")),
    "a message is sent three times": lambda view: any(count >= 3 for count in transmissions(view.run).values()),
    "a message is given up after its last transmission": lambda view: _rejected(view, "given_up"),
    "a message arrives after its round has closed": lambda view: bool(view.of("late")),
    "a message that is a round old takes effect": lambda view: any(event["staleness"] for event in view.of("arrived")),
    "a message is refused since it is too old": lambda view: _rejected(view, "stale"),
    "a message is refused for its content": lambda view: _rejected(view, "malformed", "unusable"),
    "a message overtakes an earlier one of its agent": _overtakes,
    "two messages of one agent are in flight": lambda view: any(
        one.meets(two) and one.agent == two.agent and one.begin != two.begin
        for one in view.spans["in flight"]
        for two in view.spans["in flight"]
    ),
    "messages of all agents are in flight": lambda view: view.at_once("in flight", _all(view)),
    "a lie is told": lambda view: bool(view.of("falsified")),
    "a lie is lost": lambda view: any(
        (lie["agent"], lie["step"]) == (lost["agent"], lost["step"]) for lie in view.of("falsified") for lost in view.of("lost")
    ),
    "a round closes with a single message": lambda view: _fewest(view) == 1,
    # The coordinator.
    "the coordinator goes down with a message in flight": lambda view: view.any_during(["down"], "in flight", own=False),
    "a message is sent while the coordinator is down": lambda view: view.any_during(["sent"], "down", own=False),
    "a message is doubled and the coordinator goes down": lambda view: _rejected(view, "duplicate") and _down(view) > 0,
    "a second copy arrives after the coordinator was down": lambda view: any(
        event["sequence"] > down["sequence"]
        for down in view.of("down")
        for event in view.of("rejected")
        if event["reason"] == "duplicate"
    ),
    "the coordinator goes down twice": lambda view: _down(view) >= 2,
    "an agent crashes while the coordinator is down": lambda view: view.any_during(["crashed"], "down", own=False),
    "an agent comes back while the coordinator is down": lambda view: view.any_during(["returned"], "down", own=False),
    "a step ends while the coordinator is down": lambda view: view.any_during(["finished"], "down", own=False),
    # Agents.
    "two agents are away at once": lambda view: view.at_once("absent", 2),
    "all agents are away at once": lambda view: view.at_once("absent", _all(view)),
    "an agent leaves in the middle of a step": lambda view: view.any_during(["absent"], "working"),
    "an agent leaves with its message in flight": lambda view: view.any_during(["absent"], "in flight"),
    "a step is begun again": lambda view: any(event["again"] for event in view.of("started")),
    "a round closes while an agent is away": lambda view: view.any_during(["round"], "absent", own=False),
    "an agent crashes in the middle of a step": lambda view: view.any_during(["crashed"], "working"),
    "an agent crashes with its message in flight": lambda view: view.any_during(["crashed"], "in flight"),
    "an agent loses its state and restarts": lambda view: any(event["state"] == "lost" for event in view.of("crashed")),
    "an agent is lost for good": lambda view: any(event["permanent"] for event in view.of("crashed")),
    "two agents are crashed at once": lambda view: view.at_once("crashed", 2),
    "all agents are crashed at once": lambda view: view.at_once("crashed", _all(view)),
    "an agent hangs with its message in flight": lambda view: view.any_during(["hung"], "in flight"),
    "an agent hangs in the middle of a step": lambda view: view.any_during(["hung"], "working"),
    "an agent hangs while another is away": lambda view: view.meet("hung", "absent"),
    "a result comes after its lease has expired": lambda view: bool(view.of("discarded")),
    "an agent is cut off with its message in flight": lambda view: view.any_during(["cut"], "in flight"),
    "an agent is cut off while the coordinator is down": lambda view: view.meet("cut", "down"),
    "two agents are cut off at once": lambda view: view.at_once("cut", 2),
    "a slowed agent crashes": lambda view: view.any_during(["crashed"], "slowed"),
    # Evaluations and workers.
    "an evaluation fails": lambda view: bool(view.of("failed")),
    "two evaluations of an agent end in another order": _out_of_order,
    "an evaluation stops at a rung": lambda view: any(event["verdict"] == "stop" for event in view.of("rung")),
    "an evaluation that was paused is promoted": lambda view: bool(view.of("promoted")),
    "an evaluation is preempted": lambda view: bool(view.of("preempted")),
    "an evaluation is preempted with its agent's message in flight": lambda view: view.any_during(["preempted"], "in flight"),
    "an agent crashes while its evaluation is on a worker": lambda view: view.any_during(["crashed"], "evaluating"),
    "workers leave during evaluations": lambda view: view.any_during(["workers_left"], "evaluating", own=False),
    # Privacy.
    "a sum is unmasked with exactly the threshold of survivors": lambda view: _shares(view, 0),
    "a sum cannot be unmasked": lambda view: bool(view.of("aborted")),
    "private messages are released while an agent is away": lambda view: (
        bool(view.run.releases) and view.any_during(["round"], "absent", own=False)
    ),
}
KILLS: dict[str, str] = {
    "a kill while the coordinator's snapshot is written": r"\.core",
    "a kill while a checkpoint of agents is written": r"\.agents",
    "a kill between a snapshot and the note that it counts": r"\.(latest|previous)\.json",
    "a kill while events are written": r"/parts/.*events",
    "a kill while the tables are gathered": r"run/\.?(events|observations|privacy|histories)|killed/\.(events|observations)",
    "a kill while the manifest is written": r"manifest",
}


def reached(study: Study, directory: Path, kills: Iterable[str] = ()) -> Counter[str]:
    """Count the runs of a study by the situations that they reached, and the kills by what they struck."""
    found = Counter[str]()
    for run in runs_of(study, directory):
        view = RunView(run)
        found.update(name for name, is_reached in SITUATIONS.items() if is_reached(view))
    found.update(name for path in kills for name, pattern in KILLS.items() if re.search(pattern, path))
    return found
