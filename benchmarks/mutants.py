"""Plants defects in hosting, resume, the privacy ledger and the exchange, and counts the random studies until each is found.

python benchmarks/mutants.py [--most 500] [--first 0] [--only NAME,NAME] [--seeds 8,28]

A study that finds a defect is also tried without it, and does not count if it fails there too. `--seeds` tries chosen studies:
if the study of seed S finds a defect, a series from 0 needs at most S + 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fedbo.actors.host_storage
import fedbo.coordinator.kernel.core
import fedbo.coordinator.kernel.event_queue
import fedbo.coordinator.runtime.actor
import fedbo.privacy.budget
import fedbo.privacy.ledger
from fedbo.actors.agent import HostedAgent
from fedbo.actors.remote import RayHosts, RemoteHost, got
from fedbo.analysis import ledger_of_time
from fedbo.coordinator.environment.lies import Lies
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.step_scheduler import StepScheduler
from fedbo.coordinator.kernel.uplink import Uplink
from fedbo.coordinator.runtime.snapshots import Snapshotter
from fedbo.privacy.aggregator import PrivateAggregator
from fedbo.privacy.budget import PrivacyBudget
from fedbo.privacy.receipt import DisclosedReceipt, PrivateReceipt
from fedbo.settings.records import changed
from fedbo.workers.running import WorkerEvents
from tests.random_studies.__main__ import Trial, tried
from tests.random_studies.carrying_out import Hostings
from tests.random_studies.promises import broken_by_kills, broken_hostings, broken_laws, start_ray
from tests.random_studies.studies import draw_study

LIMIT = 240.0  # seconds that a study may take, above what a busy machine needs
Plant = Callable[[Any], Any]


@contextmanager
def planted(owner: Any, name: str, make: Plant) -> Any:
    """Put what `make` gives for the present attribute in its place, for a while."""
    before = owner.__dict__[name]
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def restored(change: Callable[[Any], Any]) -> tuple[Any, str, Plant]:
    """Change the snapshot from which a run goes on."""

    def make(before: Any) -> Any:
        def restore(self: Any) -> Any:
            found = before(self)
            return found if found is None else change(found)

        return restore

    return Snapshotter, "load_latest", make


def forgets(*names: str) -> Callable[[Any], Any]:
    """Empty some collections of the rounds, or lower some flags of the agents, in the core's state."""

    def change(found: Any) -> Any:
        for name in names:
            if hasattr(found.state.rounds, name):
                getattr(found.state.rounds, name).clear()
                continue
            for agent in found.state.agents.every():
                setattr(agent, name, None if name == "faults" else False)
        return found

    return change


def sometimes(every: int, otherwise: Callable[..., Any]) -> Plant:
    """Call something else at every so many calls."""
    count = [0]

    def make(before: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            count[0] += 1
            return otherwise(*arguments, **named) if count[0] % every == 0 else before(*arguments, **named)

        return call

    return make


def _goes_on(before: Any) -> Any:
    return lambda self, order: before(self, changed(order, restore=""))


def _any_lease(self: Any, host: Any) -> None:
    (parts,) = got([host.calls.pop(0)])
    host.ended = max(host.ended - 1, 0)
    for reports in parts:
        self._reports.put(reports)


def _submit_short(before: Any) -> Any:
    def submit(self: Any, order: Any) -> None:
        crowded = len(self._host_of(order.agent).buffer) > 1
        before(self, changed(order, inbox=order.inbox[1:]) if crowded else order)

    return submit


def _lost_commits(before: Any) -> Any:
    return sometimes(7, lambda self: (before(self), [])[1])(before)


def _places_at_once(before: Any) -> Any:
    def preempted(self: Any, state: Any, event: Any, now: float) -> Any:
        return before(self, state, event, now) + self._evaluations.place(state, event, now)

    return preempted


def _half(before: Any) -> Any:
    return lambda *arguments: 0.5 * before(*arguments)


def _take_again(before: Any) -> Any:
    def take(self: Any, lossy: bool) -> Any:
        state = self.state
        rows = before(self, lossy)
        self.state = state if self.uncommitted is None else self.state
        return rows

    return take


def _become(self: Any, other: Any) -> None:
    for name in self.__slots__:
        if name != "scheduled":
            setattr(self, name, getattr(other, name))
    self.stopped = False


def _keeps_held(before: Any) -> Any:
    def release(self: Any, state: Any, *given: Any) -> Any:
        bases = state.bases.copy()
        server = before(self, state, *given)
        state.bases[:1] = bases[:1]
        return server

    return release


def _keeps_aborted(before: Any) -> Any:
    def unmasking(self: Any, state: Any, there: Any) -> Any:
        bases = state.bases.copy()
        found = before(self, state, there)
        state.bases[:] = bases
        return found

    return unmasking


def _blames(before: Any) -> Any:
    def falsified(self: Any, message: Any, newest: Any, now: float) -> Any:
        payload, lies = before(self, message, newest, now)
        return payload, lies or "inverted"

    return falsified


def _drops_entries(before: Any) -> Any:
    def take_entries(self: Any) -> Any:
        self.aggregator.entries = [entry for entry in self.aggregator.entries if entry.release != 1]
        return before(self)

    return take_entries


def _accepts_late(before: Any) -> Any:
    def init(self: Any, *parts: Any) -> None:
        before(self, *parts)
        self._drops_late = False

    return init


def _accepts_copies(before: Any) -> Any:
    def refusal(self: Any, *given: Any) -> Any:
        found = before(self, *given)
        return None if found and found.reason == "duplicate" else found

    return refusal


def _younger(before: Any) -> Any:
    def begin(self: Any, state: Any, agent: Any, now: float) -> Any:
        effects = before(self, state, agent, now)
        agent.base += 1
        return effects

    return begin


def _late_orders(before: Any) -> Any:
    return lambda self: before(self)[:-1] or before(self)


def _saved_now(before: Any) -> Any:
    return lambda agents, number, kept: before(agents, number, kept._replace(saved=kept.state))


def _no_end(before: Any) -> Any:
    return lambda core, hosts, hooks, queue, until=float("inf"): before(core, hosts, hooks, queue)


MUTANTS: dict[str, tuple[str, tuple[Any, str, Plant]]] = {
    "hosting: interrupted agents are not taken back": ("hostings", (RayHosts, "submit", _goes_on)),
    "hosting: commits without times": (
        "hostings",
        (RayHosts, "commit", lambda _: lambda self, agent, times: self._host_of(agent).commit((agent, ()), 1)),
    ),
    "hosting: commits get lost": ("hostings", (RemoteHost, "take_commits", _lost_commits)),
    "hosting: any report of the agent": ("hostings", (RayHosts, "_collect", lambda _: _any_lease)),
    "hosting: messages lost in a full buffer": ("hostings", (RayHosts, "submit", _submit_short)),
    "resume: order of equal times": ("kills", (EventQueue, "become", lambda _: _become)),
    "resume: the buffer is forgotten": ("kills", restored(forgets("buffer", "reported"))),
    "resume: who waits is forgotten": ("kills", restored(forgets("waiting"))),
    "resume: crashed states are forgotten": ("kills", restored(forgets("faults", "ready", "known_offline"))),
    "resume: the length of the log": ("kills", restored(lambda found: found._replace(lines=0))),
    "resume: an order is not given again": ("kills", (Core, "orders", _late_orders)),
    "resume: rows are written twice": ("laws", (HostedAgent, "take", _take_again)),
    "resume: checkpoints are too young": ("kills", (fedbo.actors.host_storage, "_restore", _saved_now)),
    "ledger: a release is missing": ("laws", (PrivateReceipt, "take_entries", _drops_entries)),
    "ledger: every third local message is missing": (
        "laws",
        (DisclosedReceipt, "sent", sometimes(3, lambda *_: None)),
    ),
    "ledger: half the norm is charged": ("laws", (fedbo.privacy.budget, "sensitivities", _half)),
    "ledger: nine tenths of epsilon": (
        "laws",
        (fedbo.privacy.ledger, "gaussian_epsilon", lambda before: lambda *given: 0.9 * before(*given)),
    ),
    "ledger: a message is released twice": ("laws", (PrivateAggregator, "release", _keeps_held)),
    "ledger: what cannot be unmasked is released": ("laws", (PrivateAggregator, "unmasking", _keeps_aborted)),
    "privacy: epsilon_max binds at the largest delta": (
        "laws",
        (PrivacyBudget, "binding_delta", lambda _: property(lambda self: max(self.deltas))),
    ),
    "exchange: honest agents are said to lie": ("laws", (Lies, "falsified", _blames)),
    "exchange: messages are thought younger": ("laws", (StepScheduler, "begin", _younger)),
    "exchange: late messages take effect": ("laws", (Uplink, "__init__", _accepts_late)),
    "exchange: copies take effect": ("laws", (Uplink, "_refusal", _accepts_copies)),
    "ledger of time: what a crash made void is useful": (
        "laws",
        (ledger_of_time, "_steps", lambda before: lambda events: {**before(events), "broken": before(events)["late"]}),
    ),
    "network: messages take half of their time": (
        "laws",
        (Network, "_delay", lambda before: lambda self, *given: 0.5 * before(self, *given)),
    ),
    "cluster: placements come in between": ("laws", (fedbo.coordinator.kernel.event_queue, "_LAST", lambda _: 0)),
    "cluster: workers go one after the other": ("laws", (WorkerEvents, "preempted", _places_at_once)),
    "exchange: [budget] time is passed": ("laws", (fedbo.coordinator.runtime.actor, "run_virtual", _no_end)),
}


def trial_of(what: str) -> Trial:
    """Give what a defect is looked for with."""
    if what == "hostings":
        start_ray()
        hostings = Hostings()
        return lambda study, folder, seed: broken_hostings(study, folder, hostings)
    if what == "kills":
        return lambda study, folder, seed: broken_by_kills(study, folder, LIMIT, 4, seed)[0]
    return lambda study, folder, seed: broken_laws(study, folder, LIMIT)


def first_found(trial: Trial, seeds: list[int], room: Path) -> tuple[int, list[str]]:
    """Try studies until one is broken; give its place among the seeds and what it broke, or of none the last place."""
    for place, seed in enumerate(seeds):
        if found := tried(trial, draw_study(seed)[1], seed, room):
            return place, found
    return len(seeds) - 1, []


def main() -> None:
    """Plant each, and print how many studies it took to be found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--most", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="try only defects whose names have these prefixes, separated by commas")
    parser.add_argument("--seeds", default="", help="try only studies of these seeds, separated by commas")
    given = parser.parse_args()
    series, missed = range(given.first, given.first + given.most), 0
    seeds = [int(seed) for seed in given.seeds.split(",")] if given.seeds else list(series)
    # Forks come first: a process in which Ray has started has threads.
    for name, (what, (owner, attribute, make)) in sorted(MUTANTS.items(), key=lambda item: item[1][0] == "hostings"):
        if not name.startswith(tuple(given.only.split(","))):
            continue
        trial, began = trial_of(what), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            with planted(owner, attribute, make):
                place, found = first_found(trial, seeds, Path(folder))
            seed = seeds[place]
            failed = any(Path(__file__).name in words or "<locals>" in words for words in found)
            sound = not failed and not (found and tried(trial, draw_study(seed)[1], seed, Path(folder)))
        said = f"seed {seed}: {found[0][:90]}" if found else "NOT FOUND"
        said += "" if sound else f"; NOT COUNTED: {'it fails itself' if failed else 'so without the defect'}"
        missed += not (found and sound)
        print(f"{place + 1:4} studies {time.monotonic() - began:6.0f} s  {name:48} {said}", flush=True)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
