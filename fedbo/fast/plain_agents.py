"""Agents in columns in place of their records, with the ends of their steps and all that is on its way.

An agent is `inside` while nothing about it is unusual: nothing interrupts it, and each of its steps is one evaluation. An agent
that the core asks for leaves the columns, and returns when an event of its own has passed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from heapq import heapify, heappush
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import Ints
from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import LARGEST, Inbound
from fedbo.algorithms.messages import DUMMY, checker
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.event_queue import Entry, EventQueue
from fedbo.coordinator.kernel.events import Answer, AnswerReceived, Event, Finished, Message, MessageReceived, StudyStarted
from fedbo.coordinator.kernel.state import AgentRecord, AgentStep
from fedbo.fast import window_kernel as kernel
from fedbo.fast.coordinator_half import is_joint
from fedbo.fast.payload_slots import PayloadSlots

_BLOCKS = 6_400_000  # durations that are held
_ARRIVED = 1000  # entries of what has arrived, at most

_FIELDS = kernel.AGENT.names or ()


class PlainAgents:
    """The columns of a run: agents, durations, ends of steps, messages and answers; `left` while they hold nothing."""

    def __init__(self, core: Core, queue: EventQueue) -> None:
        rules, durations, latency = core.rules, core.scheduler.durations, core.network.latency
        assert durations is not None and latency is not None and rules.upload is not None
        self._core, self._queue, self.latency, self.left = core, queue, latency, True
        self._private, self._dummies = rules.receipt.aggregator is not None, rules.sends_dummies
        self._synchronous, self._targets, self._final = rules.is_synchronous, rules.targets, rules.task.budget_of
        self.wrong = checker(rules.upload, LARGEST)
        count, joint = rules.problem.n_agents, is_joint(rules)
        most = max((own.iterations for own in rules.task.budgets.values()), default=0)
        self.sends = np.array([rules.algorithm.sends(step) for step in range(max(most, rules.problem.iterations) + 2)])
        self._block, width = durations.block, 64 if 64 * count <= _BLOCKS else 16
        self.lengths = np.empty((count, width))
        self.counters = np.zeros(len(kernel.COUNTERS), np.int64)
        self.agents, self.ends = np.zeros(count, kernel.AGENT), np.zeros(2 * count + 1, kernel.END)
        self.sent, self.past = np.zeros(0, kernel.SENT), np.zeros((0, 2), np.int64)
        self.up = PayloadSlots(rules.upload if joint else None, self.counters, kernel.UP)
        self.down = PayloadSlots(rules.download if joint else None, self.counters, kernel.DOWN)
        self._refused = dict[int, Message]()  # by slot
        self._records = dict[int, AgentRecord]()
        self.first_steps = dict[int, AgentStep]()  # step 0 of agents, with any number of evaluations

    def __contains__(self, number: int) -> bool:
        """Check whether an agent is inside the columns."""
        return number in self._records

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Return the columns as the kernel takes them."""
        up, down = self.up, self.down
        sent = (self.sent, up.slots, down.slots, up.free, down.free)
        return (self.agents, self.ends, *sent, self.counters, self.past, self.lengths, self.sends)

    def __len__(self) -> int:
        """Return the number of events in the columns."""
        size, head, tail, *_ = self.counters.tolist()
        return int(size + tail - head)

    @property
    def is_quiet(self) -> bool:
        """Check whether no message is on its way."""
        _, head, tail, *_ = self.counters.tolist()
        return bool(head == tail)

    def readmit(self, event: Event) -> None:
        """Move the agent of an event that the core has processed into the columns."""
        if type(event) is Finished:
            self.enter(event.agent)
        elif type(event) is MessageReceived:
            self.enter(event.message.sender)
        elif type(event) is AnswerReceived:
            self.enter(event.answer.agent)
        elif type(event) is StudyStarted:
            for number in list(self._core.state.agents):
                self.enter(number)

    def enter(self, number: int) -> None:
        """Move an agent into the columns, if nothing about it is unusual."""
        known = self._core.state.agents
        record = known.get(number)
        if record is None or not record.lease or record.ended or record.lost or record.absent or record.interruptions:
            return
        step, final, row = record.current, self._final(number).iterations, self.agents[number]
        if record.faults is not None or record.evaluations is not None or number not in self._targets or record.step > final:
            return
        plain = step is None or (
            (step.timed and not step.void and step.report is None and step.pace_history is None)
            and (len(step.segments) == 2 or not record.step)
            and step.speaks == (self.sends[record.step] and (record.asked or not self._private))
        )
        if not plain or (step is None and not self._synchronous) or row["flights"] != len(record.unacknowledged):
            return
        if self._private and record.unheard:  # which a dummy message would end
            return
        del known[number]
        self._records[number] = record
        self.draw(number, record.next_evaluation)
        if step is not None and not record.step:
            self.first_steps[number] = step
        inbox, reads = (
            [(one.step, one.sent, one.payload) for one in some] for some in (record.inbox, step.inbox if step else ())
        )
        accepted, received, awaits = record.steps_accepted, record.received_answers, self._core.state.rounds.waiting.get(number)
        self.agents[number] = (
            *(1, 0, record.asked or not self._private, step is not None, record.step, record.lease, final),
            *(record.base, record.newest_base, record.next_evaluation),
            *(record.t_n, record.pulled, record.saved_t_n, accepted[-1] if accepted else -1, received[-1] if received else -1),
            *(-1, -1, -1 if awaits is None else awaits, row["flights"], row["newest"]),
            *(len(inbox), self.down.enter(inbox), len(reads), self.down.enter(reads)),
            *((0.0, 0.0) if step is None else (step.begun, step.segments[-1])),
            *(math.nan if record.last_duration is None else record.last_duration, record.reported),
        )
        record.current, record.inbox, record.unacknowledged = None, [], {}

    def leave(self, number: int) -> AgentRecord | None:
        """Return the record of an agent that leaves the columns; None if it is not inside."""
        record = self._records.pop(number, None)
        if record is None:
            return None
        row = SimpleNamespace(**dict(zip(_FIELDS, self.agents[number].item(), strict=True)))
        self.agents["inside"][number] = 0
        for name in ("step", "lease", "base", "newest_base", "next_evaluation", "t_n", "pulled", "saved_t_n", "reported"):
            setattr(record, name, getattr(row, name))
        record.ended = bool(row.ended)
        record.asked = bool(row.asked) if self._private else record.asked
        record.last_duration = None if math.isnan(row.last_duration) else row.last_duration
        record.unheard = record.unheard and row.heard < 0
        if row.heard >= 0:
            record.steps_accepted += kernel.since(self.past, row.heard).tolist()
        if row.told >= 0:
            record.received_answers += kernel.since(self.past, row.told).tolist()
        record.inbox = self._take_answers(row.inbox, row.letters)
        reads = tuple(self._take_answers(row.reading, row.reads))
        messages = [self._message(number, slot) for slot in self.up.chain(row.newest, row.flights)]
        record.unacknowledged = {message.step: message for message in messages}
        record.current = self.first_steps.pop(number, None)
        if record.current is None and row.working:
            speaks, segments = bool(self.sends[row.step] and row.asked), (0.0, row.length)
            record.current = step = AgentStep(reads, speaks, row.begun, True, segments=segments, remaining=row.length)
            step.since, step.order = row.begun, StepRequest(number, row.step, row.lease, reads, speaks)
        return record

    def leave_all(self) -> None:
        """Move all agents and events out of the columns, as a run is stored."""
        if self.left:
            return
        for number in list(self._records):
            self._core.state.agents[number]
        while len(self):
            self.hand_over(at_once=False)
        self.counters[kernel.HEAD] = self.counters[kernel.TAIL] = self.counters[kernel.PAST] = 0
        self.left = True

    def _take_answers(self, last: int, count: int) -> list[Inbound]:
        slots = self.down.chain(last, count)
        found = [self._inbound(slot) for slot in slots]
        self.down.discard(slots)
        return found

    def _inbound(self, slot: int) -> Inbound:
        _, number, _, sent = self.down.slots[slot].item()
        return Inbound(COORDINATOR, number, sent, self.down.single(slot))

    def _message(self, sender: int, slot: int) -> Message:
        if slot in self._refused:
            return self._refused[slot]
        _, step, base, sent = self.up.slots[slot].item()
        payload = self.up.single(slot) or DUMMY
        return Message(sender=sender, claimed_sender=sender, step=step, base=base, sent=sent, payload=payload)

    def enter_all(self) -> None:
        """Move all events that are for windows, and all agents that are plain, into the columns."""
        agents, queue = self._core.state.agents, self._queue
        self.left = False
        entries, heap, latest = sorted(queue.heap, key=lambda entry: entry[:2]), queue.heap, queue.time + self.latency
        heap.clear()
        for time, number, event in entries:
            if (time <= latest or type(event) is Finished) and self.schedule(time, number, event):
                queue.waiting -= 1
            else:
                heap.append((time, number, event))
        heapify(heap)
        agents.unsettle()
        for number in list(agents):
            self.enter(number)

    def schedule(self, time: float, number: int, event: Event) -> bool:
        """Schedule an event in the columns; return False if it does not belong there."""
        if self.left:
            return False
        if type(event) is Finished and event.report is None:
            self.make_room(1, answers=False)
            counters = self.counters
            counters[kernel.SIZE] = kernel.push(self.ends, counters[kernel.SIZE], time, number, event.agent, event.lease)
        elif type(event) is MessageReceived:
            message = event.message
            if self._dummies and message.payload == DUMMY:
                self.up.put(np.array([self._send(kernel.DUMMY, time, number, message)]), [None])
            elif message.claimed_sender != message.sender or self.wrong(message.payload):
                self._refused[self._send(kernel.REFUSED, time, number, message)] = message
            else:
                self.up.put(np.array([self._send(kernel.MESSAGE, time, number, message)]), [message.payload])
        elif type(event) is AnswerReceived:
            answer = event.answer
            slot = self._send(kernel.EMPTY if answer.inbound is None else kernel.ANSWER, time, number, answer)
            self.agents["awaits"][answer.agent] = answer.number
            if answer.inbound is not None:
                self.down.put(np.array([slot]), [answer.inbound.payload])
        else:
            return False
        return True

    def _send(self, kind: int, time: float, number: int, sent: Message | Answer) -> int:
        """Put a message or an answer on its way; return its slot."""
        self.make_room(1, answers=True)
        if isinstance(sent, Message):
            who, step, base, now = sent.sender, sent.step, sent.base, sent.sent
        else:
            now = 0.0 if sent.inbound is None else sent.inbound.sent
            who, step, base = sent.agent, sent.number, 0
        return kernel.send(self.arrays, kind, time, number, who, step, base, now)

    @property
    def first(self) -> tuple[float, int, int, bool] | None:
        """Return time, number and agent of the first event, and whether it is the end of a step; None without one."""
        size, head, tail, *_ = self.counters.tolist()
        found = None
        if size:
            number, agent, _, time = self.ends[0].item()
            found = (time, number, agent, True)
        if head < tail:
            number, agent, _, _, time = self.sent[head].item()
            if found is None or (time, number) < found[:2]:
                found = (time, number, agent, False)
        return found

    def hand_over(self, at_once: bool = True) -> None:
        """Move the first event to the queue; with `at_once` only if no event there is before it."""
        first, queue = self.first, self._queue
        if first is None or (at_once and queue.heap and queue.heap[0][:2] < first[:2]):
            return
        heappush(queue.heap, self._take_end() if first[3] else self._take_sent())
        queue.waiting += 1

    def _take_end(self) -> Entry:
        number, agent, lease, time = self.ends[0].item()
        self.counters[kernel.SIZE] = kernel.pop(self.ends, self.counters[kernel.SIZE])
        return time, number, Finished(agent, lease)

    def _take_sent(self) -> Entry:
        number, agent, kind, slot, time = self.sent[self.counters[kernel.HEAD]].item()
        if agent in self:  # its record shall have what is on its way
            self._core.state.agents[agent]
        self.counters[kernel.HEAD] += 1
        if kind in (kernel.MESSAGE, kernel.REFUSED, kernel.DUMMY):
            message = self._message(agent, slot)
            self._refused.pop(slot, None)
            self.agents["flights"][agent] -= 1
            self.up.discard([slot])
            return time, number, MessageReceived(message)
        inbound, place = None if kind == kernel.EMPTY else self._inbound(slot), self.down.slots["number"].item(slot)
        self.down.discard([slot])
        return time, number, AnswerReceived(Answer(agent, inbound, place))

    def speak(self, agents: Ints, steps: Ints) -> npt.NDArray[np.bool_]:
        """Return which of these agents `(k,)` send a message after these steps `(k,)`."""
        return self.sends[steps] & (self.agents["asked"][agents] > 0)

    def ask(self, agents: Sequence[int], chosen: Collection[int]) -> None:
        """Note which of these agents, of whom some may not be inside, are asked for a message."""
        self.agents["asked"][agents] = False
        self.agents["asked"][list(chosen)] = True

    def total(self, name: str) -> int:
        """Return the sum of a number of the agents inside."""
        return int((self.agents["inside"] * self.agents[name]).sum())

    def ends_of(self, agents: Sequence[int]) -> list[float]:
        """Return the end times of agents' steps; those of agents outside the columns are not known."""
        rows = self.agents[np.array(agents, np.int64)]
        found: list[float] = (rows["inside"] * (rows["begun"] + rows["length"])).tolist()
        return found

    def make_room(self, count: int, answers: bool, messages: int | None = None) -> None:
        """Make room for so many events, with messages, as many if not fewer, and answers if any; forget what has arrived."""
        size, head, tail, _, past, up, down = self.counters.tolist()
        if head >= _ARRIVED or (head and head == tail):
            self.sent[: tail - head] = self.sent[head:tail]
            self.counters[kernel.HEAD], self.counters[kernel.TAIL], tail = 0, tail - head, tail - head
        if size + count > len(self.ends):
            self.ends = _longer(self.ends, count)
        if tail + count > len(self.sent):
            self.sent = _longer(self.sent, count)
        if past + count > len(self.past):
            self.past = _longer(self.past, count)
        if up < (messages := count if messages is None else messages):
            self.up.reserve(messages)
        if answers and down < count:
            self.down.reserve(count)

    def draw(self, number: int, place: int) -> None:
        """Draw an agent's durations from number `place` on, as many as are held."""
        width = self.lengths.shape[1]
        first = place // width * width
        self.lengths[number] = self._block(number, first // 64)[first % 64 : first % 64 + width]


def _longer(column: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return a column with room for at least so many more entries."""
    return np.concatenate([column, np.zeros((max(count, len(column)), *column.shape[1:]), column.dtype)])
