"""The ask/tell interface: one agent that suggests configurations and learns their values."""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from html import escape
from pathlib import Path
from threading import RLock
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np

from fedbo.actors.evaluation.failed_points import learns_failures, other_than, takes_worst
from fedbo.actors.storage.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from fedbo.actors.threads import blas_threads
from fedbo.algorithms.base import Array, Inbound, Problem, Starting
from fedbo.algorithms.returned import asked, initial, outgoing, updated
from fedbo.algorithms.streams import Streams
from fedbo.analysis.recommendation import best_by_gp
from fedbo.objectives.typed_spaces.declared_space import as_declared, flattened, read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings import arguments
from fedbo.settings.errors import ArgumentError, warn_caller
from fedbo.settings.own_code import note_step
from fedbo.settings.shown import shown
from fedbo.tuning.ask_log import AskLog, LogEntry, StoredLog
from fedbo.tuning.evaluated import Evaluated, evaluated
from fedbo.tuning.message_folder import Meeting, answer_to
from fedbo.tuning.messages import MessageStore, secret_step
from fedbo.tuning.metrics import ToldMetrics, told_of, with_goals
from fedbo.tuning.terms import Terms, check_agent

MOST_ASKED = 10_000  # points of one call
P = ParamSpec("P")
R = TypeVar("R")
_limited = RLock()  # the number of threads of linear algebra is one setting of the whole process


class Suggestion(NamedTuple):
    """A configuration to evaluate, and the token that identifies it in `tell`."""

    token: str
    configuration: dict[str, Any]


def _alone(method: Callable[Concatenate[Agent, P], R]) -> Callable[Concatenate[Agent, P], R]:
    """Let one thread at a time call a method of an agent."""

    @wraps(method)
    def called(agent: Agent, /, *given: P.args, **named: P.kwargs) -> R:
        with agent.lock:
            return method(agent, *given, **named)

    return called


class _AgentFile(NamedTuple):
    """The agent's checkpoint.

    - `algorithm`: state of the algorithm; `inbox`: answers that it has not read.
    - `asked`, `told`, `added`: numbers of points; added points count as told, too.
    - `lines`: log lines that the checkpoint covers; `sum`: their SHA-256, which must match the log.
    """

    algorithm: Any
    inbox: tuple[Inbound, ...] = ()
    asked: int = 0
    told: int = 0
    added: int = 0
    lines: int = 0
    sum: str = ""


class Agent:
    """An ask/tell agent in a folder, or without one (None) in memory, whose messages go through a `meeting`.

    What messages reveal of its observations depends on the algorithm (`fedbo list algorithms`). ArgumentError when that is more
    than the meeting accepts: `Meeting(folder, reveals="computable")` or `reveals="observations"` accepts more than draws. Every
    `ask` and `tell`, and every fetched message, is appended to `log.jsonl` before the call returns. So the agent resumes when
    its folder is opened again. One process at a time may have it open, whose threads may share the agent. A pickle of it opens
    the folder; one of an agent in memory holds all. ArgumentError when the space or the terms are invalid, or a meeting has no
    folder; DirectoryError when they differ from those of the folder, or it is open elsewhere.

    `start` are earlier evaluations: pairs of a configuration and its value, a file, a run, from which it takes the observations
    of the agent with its number, or an `optuna.Study` (see `fedbo.tuning.evaluated.evaluated`).
    """

    _file: _AgentFile

    def __init__(
        self,
        folder: str | Path | None,
        space: Any,
        terms: Terms = Terms(),  # noqa: B008
        number: int = 0,
        meeting: Meeting | None = None,  # noqa: B008
        *,
        start: Any = None,
    ) -> None:
        check_agent(folder, terms, number, meeting)
        written = written_space(space)
        self.folder = None if folder is None else Path(folder)
        self.terms, self.number, self._meeting = terms, number, meeting
        self.space, self._written = space, written
        self._space, self._sign = read_space(written), 1.0 if terms.mode == "max" else -1.0
        self._algorithm: Any = terms.make()
        targets = tuple(range(terms.agents))
        dim = len(self._space.parameters)
        problem = Problem(
            dim, terms.agents, targets, initial=terms.initial, iterations=10**6, agent=number, rounds=False, lattice=self._space
        )
        self._problem = with_goals(problem, terms.goals)
        self._streams = Streams(terms.seed).of(number)
        agreed = json.dumps([terms.shared(), written], sort_keys=True)
        self._digest = hashlib.sha256(agreed.encode()).hexdigest()
        self._handed: set[str] = set()
        self.lock = RLock()
        # One thread each, as in studies: bits must not depend on how many there are, nor agents on what else runs.
        self._threads = blas_threads()
        self._log = AskLog()
        if self.folder is not None:
            self._log = StoredLog(self.folder, {"terms": json.loads(agreed)[0], "space": written, "agent": number})
            declared = self._algorithm.upload(self._problem) or {}
            keys, place = terms.message_keys(self._digest, meeting), (number, terms.agents)
            self._messages = MessageStore(self.folder / "messages", self._digest[:16], place, declared, keys)
            self._secret = secret_step(self.folder, begun=bool(self._log.entries))
        self._metrics = ToldMetrics(terms.goals, self._log)
        with self._computing():
            self._recall()
            for point in () if start is None else self._started(start):
                self.add(*point)

    @_alone
    def ask(self, n: int = 1, client: str | None = None) -> list[Suggestion]:
        """Return `n` configurations to evaluate, each with its token; fewer when all configurations of the space were asked.

        Open configurations without an active client come first. For a named `client` these are the ones it got before,
        otherwise those of an earlier process. Those with an expired lease follow, and then new ones.
        """
        arguments.whole("n", n, 1, MOST_ASKED)
        if client is not None:
            arguments.text("client", client)
        found = self._log.again(client, self._handed)[:n]
        for token in found if self.terms.lease is not None else ():
            self._enter({"ask": token, **self._log.points[token], "client": client, "until": self._until()})
        with self._computing():
            while len(found) < n and (self._log.queued or not self.exhausted):
                found.append(self._new(client))
        self._handed.update(found)
        return [self._suggestion(token) for token in found]

    def tell(self, token: str, value: float | Mapping[str, float | None] | None) -> bool:
        """Report the value of a configuration to the agent; return whether it was still open.

        `value` is None or not finite for a failed evaluation. With `metrics` in the terms it is a dictionary of numbers by
        name, in which None stands for one that is not known. If called twice, the first value stays.
        ArgumentError when the token is not of this agent. OSError when the meeting cannot be reached; the value
        is kept, and the message is sent later.
        """
        return self._closed(token, value, {})

    def withdraw(self, token: str) -> bool:
        """Withdraw a configuration that will not be evaluated; return whether it was still open.

        The agent learns nothing from it, whereas `tell` with None reports a failure. Raises the errors of `tell`.
        """
        return self._closed(token, None, {"withdrawn": True})

    @_alone
    def _closed(self, token: str, told: Any, more: Mapping[str, Any]) -> bool:
        """Close an open configuration, and send the message that is due then."""
        value, metrics = told_of(told, self._metrics.goals)
        self._known(token)
        if token in self._log.told:
            return False
        due = self._meeting is not None and self._due(self._file.told + 1)
        entry = {"tell": token, "value": value, "at": time.time(), **more} | ({"sends": True} if due else {})
        self._enter(entry if metrics is None else {**entry, "metrics": metrics})
        with self._computing():
            self._file = self._told(token, value, due)
            self._save()
        if due:
            self.exchange()
        return True

    @_alone
    def exchange(self) -> bool:
        """Send missing messages to the meeting and fetch those of others; return whether there were new ones.

        `tell` calls this whenever a message is due. Raises OSError as `tell` does, and ArgumentError without a meeting.
        """
        if self._meeting is None:
            raise ArgumentError("meeting = None: this agent has no meeting; pass a meeting to fedbo.Agent")
        self._messages.exchange(self._meeting)
        taken = set(self._log.taken)
        new = [name for name in self._messages.names if name not in taken]
        if new:
            step = max(self._file.told - self.terms.initial, 0)
            with self._computing():
                answered = self._answered(step, new)
            # Only what has been answered is noted: a folder whose log names a message that raises could not be opened again.
            self._enter({"met": step, "took": new})
            self._file = answered._replace(lines=self._file.lines)
            self._save()
        return bool(new)

    @_alone
    def add(
        self, configuration: Mapping[str, Any], value: float | Mapping[str, float | None] | None, name: str | None = None
    ) -> bool:
        """Add the value of a configuration that was not asked for, such as one of an earlier study; return whether it was new.

        With a `name` that was added before, nothing happens. Added points replace the random ones at the start. ArgumentError
        when the configuration is not in the space.
        """
        (known, metrics), u = told_of(value, self._metrics.goals), self._encoded(configuration)
        token = f"{self.number:05d}-added-{len(self._log.told)}" if name is None else f"{self.number:05d}-added:{name}"
        if token in self._log.told:
            return False
        entry = {"add": token, "u": u.tolist(), "value": known, "at": time.time()}
        self._enter(entry if metrics is None else {**entry, "metrics": metrics})
        self._file = self._taken_in(token, known)
        self._save()
        return True

    @_alone
    def enqueue(self, configuration: Mapping[str, Any]) -> None:
        """Make `ask` return this configuration before any other new one; ArgumentError when it is not in the space."""
        self._enter({"queue": self._encoded(configuration).tolist()})
        self._save()

    @_alone
    def pending(self, client: str | None = None) -> list[Suggestion]:
        """Return the suggestions without a value, of one `client` if it is set; oldest first."""
        return [self._suggestion(token) for token in self._log.open if client in (None, self._log.points[token]["client"])]

    @_alone
    def given(self, token: str) -> Suggestion:
        """Return a suggestion again; ArgumentError when the token is not of this agent."""
        return self._suggestion(self._known(token))

    @_alone
    def best(self, by: Literal["value", "model"] = "value") -> tuple[dict[str, Any], float] | None:
        """Return the best configuration with a value, and the value; None before the first.

        With `by="model"`, for noisy values, it is the best by a Gaussian process (`Result.best`), with its mean. With limits it
        is the best that keeps them. With several objectives it is that of the first objective; see `front`.
        """
        values = {
            token: value for token, value in self._log.told.items() if value is not None and self._metrics.is_feasible(token)
        }
        if not values:
            return None
        if arguments.one_of("by", by, ("value", "model")) == "model":
            rows = [{"u": self._log.points[each]["u"], "value": self._sign * value} for each, value in values.items()]
            place, mean, _ = best_by_gp(rows, rows)
            return self._suggestion([*values][place]).configuration, self._sign * float(mean[place])
        token = max(values, key=lambda each: self._sign * values[each])
        return self._suggestion(token).configuration, values[token]

    @_alone
    def front(self) -> list[tuple[dict[str, Any], dict[str, float | None]]]:
        """Return the configurations that keep all limits and that no other one dominates, each with its metrics by name."""
        return [(self._suggestion(token).configuration, dict(self._log.metrics[token])) for token in self._metrics.front()]

    def _started(self, start: Any) -> list[Evaluated]:
        is_run = isinstance(start, str | Path) and Path(start).is_dir()
        agent = self.number if is_run else None
        return evaluated(start, self._written, mode=self.terms.mode, agent=agent, goals=self._metrics.goals)

    @_alone
    def __repr__(self) -> str:
        """Return the agent's number, its number of values, and the best configuration."""
        values = sum(value is not None for value in self._log.told.values())
        best = self.best()
        said = "no value yet" if best is None else f"best {best[1]:.6g} at {best[0]}"
        where = "memory" if self.folder is None else f"'{self.folder}'"
        counted = f"{values} values, {len(self._log.open)} open"
        return f"<Agent {self.number} of {self.terms.agents} in {where}: {counted}, {said}>"

    def _repr_html_(self) -> str:
        """Return the same as HTML for a notebook."""
        return f"<p>{escape(shown(repr(self)))}</p>"

    def _known(self, token: str) -> str:
        """Return a token of this agent; ArgumentError for any other."""
        if not isinstance(token, str) or token not in self._log.points:
            raise arguments.wrong("token", token, "is not a token of this agent; use the token that ask returned")
        return token

    def _encoded(self, configuration: Mapping[str, Any]) -> Array:
        """Return the point of a configuration, nested or flat; ArgumentError when it is not in the space."""
        if not isinstance(configuration, Mapping):
            raise arguments.wrong("configuration", configuration, "must be a dictionary with a value for each parameter")
        try:
            return self._space.encode(flattened(configuration))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"configuration: {error}") from None

    @_alone
    def __reduce__(self) -> Any:
        """Pickle the arguments of an agent in a folder, and all but the lock of one in memory."""
        if self.folder is not None:
            return Agent, (self.folder.absolute(), self.space, self.terms, self.number, self._meeting)
        state = {name: value for name, value in self.__dict__.items() if name not in ("lock", "_threads")}
        return object.__new__, (Agent,), pickle.dumps(state)  # now, while the lock is held

    def __setstate__(self, state: bytes) -> None:
        self.__dict__.update(pickle.loads(state), lock=RLock(), _threads=blas_threads())

    @_alone
    def close(self) -> None:
        """Close the folder, so that another process can open it."""
        self._log.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Compute in one thread, and note the agent and the number of its decisions in an error of the algorithm."""
        with _limited, self._threads.limit(limits=1):
            try:
                yield
            except Exception as error:
                note_step(error, self.number, self._file.asked)
                raise

    def _recall(self) -> None:
        """Restore the state from the log; the checkpoint only saves recomputing the algorithm's state."""
        self._file: _AgentFile = _AgentFile(self._algorithm.agent_init(self._problem, self._streams.at(0)))
        if self.folder is None or not isinstance(self._log, StoredLog):
            return
        with suppress(FileNotFoundError, CheckpointError):  # of another version, or cut short: the log has everything
            kept: _AgentFile = read_checkpoint(self.folder / "state.checkpoint")
            self._file = kept if self._log.had(kept.lines, kept.sum) else self._file
        known = self._file.lines
        for place, entry in enumerate(self._log.entries):
            again = entry.get("ask") in self._log.points
            if place >= known and "ask" in entry and not again:
                queued = entry.get("queued", False)
                self._file = self._file._replace(asked=self._file.asked + 1) if queued else self._decided()[1]
            self._log.note(entry)
            if place >= known and "tell" in entry:
                self._file = self._told(entry["tell"], entry["value"], entry.get("sends", False))
            if place >= known and "met" in entry:
                self._file = self._answered(entry["met"])
            if place >= known and "add" in entry:
                self._file = self._taken_in(entry["add"], entry["value"])
            self._file = self._file._replace(lines=max(known, place + 1))

    def _enter(self, entry: LogEntry) -> None:
        self._log.append(entry)
        self._file = self._file._replace(lines=self._file.lines + 1)

    def _save(self) -> None:
        if self.folder is not None and isinstance(self._log, StoredLog):
            self._file = self._file._replace(sum=self._log.sum)
            write_checkpoint(self._file, self.folder / "state.checkpoint")

    def _until(self) -> float | None:
        return None if self.terms.lease is None else time.time() + self.terms.lease

    def _new(self, client: str | None) -> str:
        token, queued = f"{self.number:05d}-{self._file.asked:06d}", self._log.queued[:1]
        u, file = (queued[0], self._file._replace(asked=self._file.asked + 1)) if queued else self._decided()
        entry = {"ask": token, "u": [float(each) for each in u], "client": client, "until": self._until()}
        self._enter({**entry, "queued": True} if queued else entry)
        self._file = file._replace(lines=self._file.lines)
        self._save()
        return token

    def _decided(self) -> tuple[Array, _AgentFile]:
        """Choose the next point `(d,)`: random ones first, then the algorithm's decision given the pending points."""
        file = self._file
        if file.asked + file.added < self.terms.initial:
            uniform = self._streams.at(0).rng("initial points").random((self.terms.initial, self._problem.dim))
            if isinstance(self._algorithm, Starting):
                uniform = initial(self._algorithm, self._problem, uniform)
            u, state = uniform[file.asked % len(uniform)], file.algorithm
            file = file._replace(asked=file.asked + 1)
        else:
            # Each decision has a step of its own, so that a replay of the log draws the same points.
            streams = self._streams.at(file.asked + file.added - self.terms.initial + 1)
            waiting = np.array([self._log.points[token]["u"] for token in self._log.open]).reshape(-1, self._problem.dim)
            state, failed = updated(self._algorithm, "pending", file.algorithm, waiting), self._log.failed
            if len(failed) and learns_failures(self._algorithm):
                state = updated(self._algorithm, "avoiding", state, failed)
            decision, state = asked(self._algorithm, state, file.inbox, streams, self._problem.dim)
            if len(failed):
                decision = decision._replace(x=self._space.project(decision.x))
                decision = other_than(failed, decision, self._problem, streams)
            u, file = decision.x[0], file._replace(asked=file.asked + 1, inbox=())
        u = self._space.project(u[None, :])[0]
        if self._evaluated is not None and tuple(u) in self._evaluated and (left := self._left()):
            rng = self._streams.at(file.asked).rng("instead of a repeated point")
            u = np.array(left[int(rng.integers(len(left)))])
        return u, file._replace(algorithm=state)

    @property
    @_alone
    def exhausted(self) -> bool:
        """Whether every configuration of the space was asked or added, and repeats are off."""
        return self._evaluated is not None and not self._left()

    @property
    def _evaluated(self) -> set[tuple[float, ...]] | None:
        """Return the points that are not asked again; None where the space cannot run out, or repeats are on."""
        if self.terms.repeats or self._space.every() is None:
            return None
        points = self._log.points.items()
        return {tuple(point["u"]) for token, point in points if token not in self._log.withdrawn}

    def _left(self) -> list[tuple[float, ...]]:
        every, known = self._space.every(), self._evaluated or set()
        return [] if every is None else [point for point in map(tuple, every.tolist()) if point not in known]

    def _learned(self, token: str, value: float | None) -> _AgentFile:
        file = self._file._replace(told=self._file.told + 1)
        if value is None and token not in self._log.withdrawn and takes_worst(self._algorithm):
            told = [self._sign * known for known in self._log.told.values() if known is not None]
            value = self._sign * min(told) if told else None
        if self._metrics.goals is not None and token not in self._log.withdrawn:
            signed = None if value is None else self._sign * value
            return file._replace(algorithm=self._metrics.learned(self._algorithm, file.algorithm, token, signed))
        if value is None:
            return file
        u = np.array([self._log.points[token]["u"]])
        return file._replace(algorithm=updated(self._algorithm, "tell", file.algorithm, u, np.array([self._sign * value])))

    def _taken_in(self, token: str, value: float | None) -> _AgentFile:
        learned = self._learned(token, value)
        return learned._replace(added=learned.added + (value is not None))

    def _due(self, told: int) -> bool:
        """Return whether a message is due once this many values have been told."""
        return told >= self.terms.initial and bool(self._algorithm.sends(told - self.terms.initial))

    def _told(self, token: str, value: float | None, due: bool) -> _AgentFile:
        """Learn a value, and write the message that is due."""
        file = self._learned(token, value)
        if not due:
            return file
        step = file.told - self.terms.initial
        payload, state = outgoing(self._algorithm, file.algorithm, self._streams.at(self._secret + step), self._problem)
        if payload is not None:
            self._messages.write(step, payload)
        return file._replace(algorithm=state)

    def _answered(self, step: int, new: Sequence[str] = ()) -> _AgentFile:
        """Process the coordinator's answer to all messages so far and the `new` ones."""
        messages = {name: self._messages.read(name) for name in (*self._log.taken, *new)}
        answered = answer_to(self.number, step, messages, (self._algorithm, self._problem, self._streams))
        for name, why in answered.left_out.items():
            self._messages.leave_out(name, why)
        return self._file._replace(inbox=(*self._file.inbox, *answered.inbox))

    def _suggestion(self, token: str) -> Suggestion:
        return Suggestion(token, as_declared(self._written, self._space.decode(np.array(self._log.points[token]["u"]))))


def tell_or_fail(agent: Agent, token: str, value: Any, what: str) -> None:
    """Tell an agent the value of another program's trial; one that cannot be learned counts as failed, with a warning."""
    try:
        agent.tell(token, value)
    except ArgumentError as error:
        warn_caller(f"{what} counts as failed: {error}", UserWarning)
        agent.tell(token, None)
