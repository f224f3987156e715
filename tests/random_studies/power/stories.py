"""What power cuts strike: a run, an extension, a fork, agents that meet, and a run in real time in one process."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import ray

from fedbo.actors import supervision
from fedbo.actors.remote import HostActor
from fedbo.actors.storage.rows import read_table
from fedbo.analysis.manifest import STUDY, read_manifest
from fedbo.analysis.result import Result
from fedbo.coordinator.runtime import actor
from fedbo.coordinator.runtime.event_log import read_moments
from fedbo.execution import runner, workers
from fedbo.execution.replay import replay
from fedbo.execution.runner import resume_study
from fedbo.lab.fork.fork import fork_run
from fedbo.lab.fork.room import ANSWER
from fedbo.lab.fork.trunk import ForkPoint
from fedbo.study.study import Study, load_study
from fedbo.tuning.ask_tell import Agent
from fedbo.tuning.message_folder import Meeting, is_whole
from fedbo.tuning.terms import Terms
from tests.random_studies.carrying_out import Untried, begin_or_go_on, differences, tables
from tests.random_studies.invariants import violations
from tests.random_studies.promises import with_less

_TOLD, _AGENTS = 6, 2  # values that each asked agent is told, and their number


@dataclass(frozen=True)
class CutStory:
    """Something that is carried out in the folder `place`.

    `before` is done once, on a disk that loses nothing. `work` begins, or goes on with what it finds. `known` lists what has
    been reported as done. `check` lists what is wrong in the end, given what had been reported as done before the cut.
    """

    name: str
    place: Path
    work: Callable[[], object]
    check: Callable[[Sequence[str]], list[str]]
    before: Callable[[], object] = lambda: None
    known: Callable[[], list[str]] = list


def run_story(study: Study, folder: Path) -> CutStory:
    """Run a study, which ends with the bytes of one that was never cut."""
    place, alone = folder / "run", folder / "alone"
    return CutStory(
        "run",
        place,
        lambda: begin_or_go_on(study, place),
        lambda known: differences(tables(alone), tables(place), "run"),
        lambda: begin_or_go_on(study, alone),
    )


def extension_story(study: Study, folder: Path, rng: random.Random) -> CutStory:
    """Extend a study that has ended, which ends with the bytes of one that was larger from the beginning."""
    given = with_less(study, rng)
    if given is None:
        raise Untried("it has no budget of which it can be given less")
    whole, less, sets = given
    place, alone = folder / "run", folder / "alone"

    def before() -> None:
        begin_or_go_on(whole, alone)
        begin_or_go_on(less, place)

    def work() -> None:
        noted = read_manifest(place)
        ended = noted["status"] == "complete"
        if not ended or load_study(place / STUDY, sets).digest() != noted["study_sha256"]:
            resume_study(place, sets if ended else ())

    return CutStory("extension", place, work, lambda known: differences(tables(alone), tables(place), "extension"), before)


def fork_story(study: Study, folder: Path, rng: random.Random) -> CutStory:
    """Fork a run with nothing changed, whose branch ends with the bytes of the run."""
    if study.privacy.secure_noise:
        raise Untried("its noise cannot be drawn again")
    place, alone, share = folder / "fork", folder / "alone", rng.uniform(0.1, 0.6)

    def work() -> None:
        if not ANSWER.is_in(place):
            times = Result.open(alone).events["time"].to_pylist()
            fork_run(alone, [ForkPoint(time=share * max(times) + 1e-9)], [], place)

    def check(known: Sequence[str]) -> list[str]:
        pairs = ((alone, place / "branch-0001"), (alone, place / "original"))
        return list(chain.from_iterable(differences(tables(one), tables(two), f"fork: {two.name}") for one, two in pairs))

    return CutStory("fork", place, work, check, lambda: begin_or_go_on(study, alone))


def meeting_story(folder: Path, seed: int) -> CutStory:
    """Ask and tell agents in turn, which exchange messages in a folder."""
    place, done = folder / "sites", folder / "done.jsonl"
    terms = Terms({"name": "fts", "features": 20}, _AGENTS, initial=2, seed=seed)

    def opened(number: int) -> Agent:
        return Agent(place / f"agent-{number}", {"x": (0.0, 1.0)}, terms, number, Meeting(place / "meeting"))

    def work() -> None:
        with done.open("w") as file, opened(0) as first, opened(1) as second:
            for _ in range(_TOLD):
                for agent in (first, second):
                    if len(agent._log.told) < _TOLD:
                        (asked,) = agent.ask()
                        file.write(f"asked {asked.token} {json.dumps(asked.configuration)}\n")
                        file.flush()
                        value = -((asked.configuration["x"] - 0.3 * agent.number) ** 2)
                        agent.tell(asked.token, value)
                        file.write(f"told {asked.token} {value!r}\n")
                        file.flush()
            for agent in (first, second, first):
                agent.exchange()

    def known() -> list[str]:
        return done.read_text().splitlines() if done.exists() else []

    def check(known: Sequence[str]) -> list[str]:
        """Look for every value and point that was handed out, and for every message in the meeting."""
        wrong = list[str]()
        for number in range(_AGENTS):
            with opened(number) as agent:
                found = {f"told {token} {value!r}" for token, value in agent._log.told.items()}
                found |= {f"asked {token} {json.dumps(agent.given(token).configuration)}" for token in agent._log.points}
                wrong += [f"agent {number}: lost '{line}'" for line in known if f" {number:05d}-" in line and line not in found]
                wrong += [f"agent {number}: was told {len(agent._log.told)} values"] * (len(agent._log.told) != _TOLD)
                messages = {name: _content(place / "meeting" / name) for name in agent._messages.names}
                wrong += [f"{name}: is not whole" for name, data in messages.items() if not is_whole(name, data)]
                wrong += [f"agent {number}: has {len(messages)} messages"] * (len(messages) != _AGENTS * (_TOLD - 1))
        return wrong

    return CutStory("meeting", place, work, check, known=known)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def real_time_story(study: Study, folder: Path) -> CutStory:
    """Run a study in real time; what happened before the cut stands in its record, and a replay gives the same."""
    place = folder / "run"

    def known() -> list[str]:
        """List the events in the record, but for the last one, which may not be on the disk yet."""
        files = sorted(place.glob("parts/0*/*.moments"))
        return [f"{recorded.time!r}" for path in files for recorded, _ in list(read_moments(path))][:-1]

    def check(known: Sequence[str]) -> list[str]:
        found = {repr(time) for time in read_table(place / "record.parquet", columns=["time"])["time"].to_pylist()}
        lost = [f"the event at {time} was forgotten" for time in known if time not in found]
        again = replay(place, verify=True, trust=True)
        return lost + violations(study, place) + ([] if again.same else [f"the replay: {again.difference}"])

    def work() -> None:
        with hosts_here():
            begin_or_go_on(study, place)

    return CutStory("real time", place, work, check, known=known)


class _Call:
    """A call of a host in this process, which has been carried out."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.value: Any = None

    def remote(self, *arguments: Any) -> _Call:
        """Carry the call out."""
        self.value = self._method(*arguments)
        return self

    def options(self, **kept: Any) -> _Call:
        """Return the call itself, whatever Ray is asked for."""
        return self


class _LocalHost:
    """A host of agents in this process, to be called as one on Ray."""

    def __init__(self) -> None:
        self._host = HostActor()

    def __getattr__(self, name: str) -> Any:
        return _Call(getattr(self._host, name))


def _in_process(study: Study, folder: Path, note: Any = None) -> Iterator[workers.InProcess]:
    yield workers.InProcess()


@contextmanager
def hosts_here() -> Iterator[None]:
    """Keep the hosts of agents in real time in this process, which Ray then has no part in."""
    started: Any = lambda count, labels=None: [_LocalHost() for _ in range(count)]  # noqa: E731
    changes: list[tuple[Any, str, Any]] = [
        (supervision, "start_hosts", started),
        (actor, "start_hosts", started),
        (runner, "job_runner", contextmanager(_in_process)),
        (ray, "get", lambda call, **kept: [one.value for one in call] if isinstance(call, list) else call.value),
        (ray, "wait", lambda calls, num_returns=1, **kept: (calls[:num_returns], calls[num_returns:])),
        (ray, "kill", lambda host: None),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
