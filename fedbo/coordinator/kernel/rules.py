"""The constants of a run between agents, in one place for all parts of the core, and the receipt of messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from fedbo.actors.task import Task
from fedbo.algorithms.base import LARGEST, Array, Inbound, Payload, Waiting
from fedbo.algorithms.messages import named
from fedbo.algorithms.returned import pair, updated
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.kernel.events import Message
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.kernel.state import CoreState
from fedbo.coordinator.logged.messages import TransmissionRejected
from fedbo.coordinator.selection import Knowledge
from fedbo.settings.own_code import ReturnError, note_step


class Part(Protocol):
    """A part of the core."""

    @property
    def is_plain(self) -> bool:
        """Check whether its rules, as this run sets them, are among those that windows repeat."""


class Receipt:
    """The plain receipt: the exchange mode selects who sends, and the algorithm's coordinator half reads each message at once.

    A subclass may select otherwise, and hold messages back. These constants hold for a whole run:

    - `is_plain`: whether windows repeat it.
    - `asks_all`: whether without rounds every agent is asked for every message.
    - `sends_dummies`: whether agents that are not asked send a dummy message.
    - `hides_asked`: whether a round waits for all agents, so that its length does not depend on who was asked.
    - `drops_late`: whether a message that misses its round is dropped under every mode.
    - `notes_sent`: whether `sent` needs to be called.
    - `largest`: the largest number that a message may have.
    - `more_up`, `more_down`: the bytes that messages and answers have beyond their declaration.
    - `aggregator`: what holds private messages back until they are released; None where they are not private.
    """

    is_plain = True
    sends_dummies = hides_asked = drops_late = notes_sent = False
    largest = LARGEST
    more_up = more_down = 0
    aggregator: Any = None

    def __init__(self, rules: Rules) -> None:
        self._rules, self._method = rules, rules.algorithm
        self.asks_all = rules.exchange.selection.who == "all"

    def start(self, state: CoreState) -> None:
        """Enter what the receipt keeps into the state before the first event."""

    def sample(self, state: CoreState, agents: Sequence[int]) -> set[int]:
        """Select the agents that send, among those that begin a round."""
        rules, known = self._rules, Knowledge(state, self._method)
        return rules.exchange.selection.of_round(agents, known, rules.streams.at(state.rounds.number))

    def asks(self, state: CoreState, agent: int, step: int) -> bool:
        """Check whether an agent is asked for the message of a step, where there are no rounds."""
        return self._rules.exchange.selection.of_step(self._rules.streams.of(agent).at(step))

    def sent(self, state: CoreState, agent: int, payload: Payload, now: float) -> None:
        """Note a message that an agent sends."""

    def accept(self, state: CoreState, message: Message, asked: bool, now: float) -> TransmissionRejected | None:
        """Process a message that nothing is wrong with, or return the log line that refuses it."""
        sender, step = message.claimed_sender, message.step
        try:
            inbound = Inbound(sender, step=step, sent=message.sent, payload=message.payload)
            state.server = updated(self._method, "receive", state.server, inbound, now)
        except ReturnError as error:
            note_step(error, sender, step)
            raise
        except Exception as error:  # noqa: BLE001 -- one agent's message must not end the study of all
            return TransmissionRejected(now, sender, "unusable", step, message=named(error))
        return None

    def answer(self, state: CoreState, recipients: Sequence[int], weights: Array, now: float) -> dict[int, Any]:
        """Return the payloads for some recipients, where the newest message of each agent has its weight `(N,)`."""
        streams = self._rules.streams.at(state.rounds.number)
        payloads: dict[int, Any]
        payloads, state.server = pair(self._method, "broadcast", state.server, recipients, weights, streams)
        return payloads

    def take_entries(self) -> list[Any]:
        """Remove and return the entries of the privacy ledger."""
        return []


class Rules:
    """The task, the exchange mode, the environment and the receipt of messages of a run, and the log that its parts write.

    - `streams`: those of the coordinator.
    - `targets`: the agents that optimise.
    - `log`: the lines since the last flush.
    - `sends_dummies`: whether agents that are not sampled send a dummy message.
    - `participants`: the agents that take part from the start, which are the targets and agents that send a message before.
    - `idles`: whether agents that are not sampled in a round are idle; a study then has one round more than iterations.
    - `turns`: the number of agents that may work at once, 0 for all; `rests`: whether an agent that has sent waits to be told.
    - `is_lazy`: whether what happens to idle agents is no event. It is one where they may evaluate all the same, or where the
      method hears of each agent that is lost.
    - `orders`: whether events have an `Order`: their numbers would tell what has happened to idle agents.
    """

    def __init__(self, task: Task, exchange: Exchange, environment: Environment, receipt: Callable[[Rules], Receipt]) -> None:
        self.task, self.exchange, self.environment = task, exchange, environment
        self.algorithm, self.problem, self.streams = task.algorithm, task.problem, task.streams.of(COORDINATOR)
        self.upload, self.download = self.algorithm.upload(self.problem), self.algorithm.download(self.problem)
        targets = self.problem.targets
        self.targets: Collection[int] = targets if isinstance(targets, range) else frozenset(targets)
        self.is_synchronous = exchange.is_synchronous
        everybody = self.upload is not None and self.algorithm.sends(0)
        self.participants: Collection[int] = range(self.problem.n_agents) if everybody else self.targets
        self.idles = self.is_synchronous and exchange.selection.idles and self.upload is not None
        self.turns: int = (self.upload is not None and not self.is_synchronous and exchange.selection.concurrency) or 0
        self.rests = self.is_synchronous or self.turns > 0
        counted = any(getattr(fault, "event", None) is not None for fault in environment.plan)
        self.orders = self.idles and not (environment.is_real_time or counted)
        busy = task.overlaps or task.stopping is not None or isinstance(self.algorithm, Waiting)
        self.is_lazy = self.orders and not (environment.idle_rows or busy or environment.detection)
        self.log: list[Any] = []  # EventLine or EventColumns
        self.receipt = receipt(self)
        # A dummy message takes as long as any. So nothing but releases depends on who was asked, neither when rounds close nor
        # who is late. Amplification by sampling needs that.
        self.sends_dummies = self.receipt.sends_dummies
