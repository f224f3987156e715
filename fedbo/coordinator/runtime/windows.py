"""Windows of a run: events of many agents that are independent of each other, processed together on columns.

A step that ends needs no event but its start, since a request to an agent is complete when it is made. So all events before the
first end of a step that starts among them form a window (conservative parallel simulation: Chandy and Misra 1979): the compiled
kernel finds their order, and what they change in the columns; reports, messages and answers are processed in that order.
Plain agents are `inside` the columns: nothing interrupts them, and each of their steps is one evaluation. All else is left to
the core: last steps, failed evaluations, refused messages, and the ends of rounds. An agent that the core asks for leaves the
columns, and returns when an event of its own has passed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heapify, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import StepReports, joint_requests, single_reports
from fedbo.actors.hosts import Hosts, raise_if_failed
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.core import Core
from fedbo.coordinator.events import After, Answer, AnswerReceived, Event, Finished, Message, MessageReceived
from fedbo.coordinator.logged.columns import EventColumns
from fedbo.coordinator.messages import LARGEST, checker, declared_size, size, sizer, varies
from fedbo.coordinator.runtime import window_kernel as kernel
from fedbo.coordinator.runtime.event_queue import EventQueue
from fedbo.coordinator.state import AgentRecord, AgentStep

_MOST = 768  # events of a window, so that hosts work on other steps meanwhile
_BLOCKS = 6_400_000  # durations that are held
_NEVER, _NOTHING = (0, -1, -1, math.inf), (math.inf, 1, None)  # in place of an end of a step, and of an arrival
_ARRIVED = 1000  # messages that have arrived and are still in the list, at most


class Windows:
    """The windows of a run that has them, with the columns of its agents, the ends of their steps, and what is on its way."""

    def __init__(self, core: Core, hosts: Hosts, queue: EventQueue) -> None:
        rules, durations, latency = core.rules, core.scheduler.durations, core.network.latency
        assert durations is not None and latency is not None and rules.upload is not None and rules.download is not None
        self._core, self._hosts, self._queue, self._latency = core, hosts, queue, latency
        self._synchronous, self._k = rules.is_synchronous, getattr(rules.exchange, "k", None)
        self._at_once = not self._synchronous and self._k is None
        self._drops_late = self._synchronous and not rules.exchange.accepts_late
        self._per_round = 1 if self._synchronous else len(rules.targets)
        self._streams, self._receive, self._broadcast = (
            rules.streams.of(COORDINATOR),
            rules.algorithm.receive,
            rules.algorithm.broadcast,
        )
        self._wrong, self._bytes = checker(rules.upload, LARGEST), sizer(rules.upload)
        self._wrong_answer, self._answer_bytes = checker(rules.download), sizer(rules.download)
        self._joint = type(hosts).results is not Hosts.results  # whether columns are the hosts' own way
        self._upload, self._varies = rules.upload, varies(rules.upload) or varies(rules.download)
        self._constant_bytes = (declared_size(rules.upload), declared_size(rules.download))
        self._targets, self._checkpoint, self._final = rules.targets, rules.task.checkpoint, rules.task.budget_of
        count = rules.problem.n_agents
        self._ones = np.ones(count)
        most = max((own.iterations for own in rules.task.budgets.values()), default=0)
        self._sends = np.array([rules.algorithm.sends(step) for step in range(max(most, rules.problem.iterations) + 2)])
        self._block, width = durations.block, 64 if 64 * count <= _BLOCKS else 16
        self._lengths = np.empty((count, width))
        self._agents, self._ends = np.zeros(count, kernel.AGENT), np.zeros(2 * count + 1, kernel.END)
        self._size, self._sent = 0, np.zeros(4 * _MOST, kernel.SENT)
        self._before, self._events = np.zeros(_MOST, kernel.AGENT), np.zeros(_MOST + 1, kernel.EVENT)
        self._told, self._times = np.zeros((_MOST, 7), np.int64), np.zeros((_MOST, 2))
        self._lines = np.zeros(3 * _MOST, kernel.LINE)
        self._records, self._steps = dict[int, AgentRecord](), dict[int, AgentStep]()
        self._reports = dict[int, StepReport]()  # of ends that were taken back
        self._noted, self._pending, self._left = 0, 0, True
        self._speaks = self._sends.tolist()
        queue.windows = core.state.agents.columns = self

    # The columns: who and what is in them.

    def enter(self, number: int) -> None:
        """Take an agent into the columns, if nothing about it is unusual."""
        known = self._core.state.agents
        record = known.get(number)
        if record is None or not record.lease or record.ended or record.lost or record.absent or record.interruptions:
            return
        step, final, sends = record.current, self._final(number).iterations, self._sends
        if record.faults is not None or record.evaluations is not None or number not in self._targets or record.step > final:
            return
        plain = step is None or (
            (step.timed and not step.void and step.report is None and step.pace_history is None)
            and (len(step.segments) == 2 and step.speaks == sends[record.step] and record.step > 0)
        )
        if not plain or (step is None and not self._synchronous):
            return
        del known[number]
        self._records[number], self._steps[number] = record, step or AgentStep()
        accepted, received = record.steps_accepted, record.received_answers
        place = record.next_evaluation
        self._draw(number, place)
        self._agents[number] = (
            *(1, step is not None, record.step, record.lease, final, record.base, record.newest_base, place),
            *(accepted[-1] if accepted else -1, received[-1] if received else -1),
            *((0.0, 0.0) if step is None else (step.begun, step.segments[1])),
            math.nan if record.last_duration is None else record.last_duration,
        )

    def leave(self, number: int) -> AgentRecord | None:
        """Return the record of an agent that leaves the columns; None if it is not inside."""
        record = self._records.pop(number, None)
        if record is None:
            return None
        _, working, record.step, record.lease, _, record.base, record.newest_base, record.next_evaluation, *rest = self._agents[
            number
        ].item()
        self._agents["inside"][number] = 0
        *_, begun, length, last = rest
        record.last_duration = None if math.isnan(last) else last
        step, record.current = self._steps.pop(number), None
        if working:
            step.begun = step.since = begun
            step.segments, step.remaining, step.timed = (0.0, length), length, True
            step.speaks = bool(self._sends[record.step])
            step.order = StepRequest(number, record.step, record.lease, step.inbox, step.speaks)
            record.current = step
        return record

    def leave_all(self) -> None:
        """Take all agents and ends out of the columns, as a run is stored."""
        for number in list(self._records):
            self._core.state.agents[number]
        for end in self._ends[: self._size].tolist():
            heappush(self._queue.heap, _entry(end))
        self._size, self._left = 0, True

    def __contains__(self, number: int) -> bool:
        """Check whether an agent is inside the columns."""
        return number in self._records

    def readmit(self, event: Event | Message | Answer) -> None:
        """Take the agent of an event that the core has processed into the columns."""
        if type(event) is Finished or type(event) is Answer:
            self.enter(event.agent)
        elif type(event) is Message:
            self.enter(event.sender)

    def _enter_all(self) -> None:
        """Take all agents that are plain, and all events that are for windows, into the columns."""
        agents, queue = self._core.state.agents, self._queue
        queue.gather()
        self._left, self._noted, self._waiting = False, 0, self._core.state.rounds.waiting
        agents.unsettle()
        for number in list(agents):
            self.enter(number)
        entries, heap, latest = sorted(queue.heap, key=lambda entry: entry[:2]), queue.heap, queue.time + self._latency
        heap.clear()
        for time, number, event in entries:
            if not (time <= latest or type(event) is Finished) or not self.schedule(time, number, event):
                heap.append((time, number, event))
        heapify(heap)

    def schedule(self, time: float, number: int, event: Event) -> bool:
        """Schedule an event in the columns; return False if it does not belong there."""
        if self._left:
            return False
        if type(event) is Finished and event.report is None:
            if self._size + 1 >= len(self._ends):
                self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
            self._size = kernel.push(self._ends, self._size, time, number, event.agent, event.lease)
        elif type(event) is MessageReceived:
            self._queue.under_way.append((time, number, event.message))
        elif type(event) is AnswerReceived:
            self._queue.under_way.append((time, number, event.answer))
        else:
            return False
        return True

    @property
    def first_end(self) -> tuple[float, int] | None:
        """Return the time and number of the first end of a step in the columns, None without one."""
        return self._ends[0].item()[3::-3] if self._size else None

    def ends(self) -> dict[int, float]:
        """Return the end time of each agent's step in the columns."""
        ends = self._ends[: self._size]
        return dict(zip(ends["agent"].tolist(), ends["time"].tolist(), strict=True))

    def result(self, agent: int) -> StepReport:
        """Wait for the report of an agent's last request, for the core."""
        return raise_if_failed(self._reports.pop(agent) if agent in self._reports else self._hosts.report(agent))

    def _draw(self, number: int, place: int) -> None:
        """Draw an agent's durations from number `place` on, as many as are held."""
        width = self._lengths.shape[1]
        first = place // width * width
        self._lengths[number] = self._block(number, first // 64)[first % 64 : first % 64 + width]

    # A window.

    def take(self, until: float, most: int) -> int:
        """Process a window of at most so many events, and return their number; 0 before one of the core."""
        if self._left:
            self._enter_all()
        queue, rounds = self._queue, self._core.state.rounds
        if not self._is_inside() or not rounds.active or (rounds.waiting and not self._synchronous):
            return 0
        limit = queue.heap[0][:2] if queue.heap else (math.inf, 0)
        self._note_sent()
        first, tail = queue.arrived, len(queue.under_way)
        self._pending = self._size + tail - first
        count, self._size = kernel.plan(
            *(self._agents, self._before, self._ends, self._size, self._sent, first, tail, self._events, self._lines),
            *(self._told, self._times, self._lengths, self._sends, until, *limit, self._latency, min(most, _MOST)),
            *(queue.scheduled, rounds.number, rounds.age, self._per_round, self._most_arrivals(), *self._constant_bytes),
            *(self._synchronous, self._at_once, self._drops_late),
        )
        if count:
            count = self._carry_out(count)
        if not count:
            self._hand_over()
        return count

    def _is_inside(self) -> bool:
        """Check whether the next event is of an agent inside the columns; hand the end of a step of another one over."""
        queue, end = self._queue, self._ends[0].item() if self._size else _NEVER
        arrival = queue.first_arrival or _NOTHING
        is_end = (end[3], end[0]) < arrival[:2]
        if queue.heap and queue.heap[0][:2] < ((end[3], end[0]) if is_end else arrival[:2]):
            return False
        sent = arrival[2]
        inside = (end[1] if is_end else sent.sender if type(sent) is Message else sent and sent.agent) in self._records
        if is_end and not inside:
            self._hand_over()
        return inside

    def _hand_over(self) -> None:
        """Move the first end of a step to the queue, if no other event is before it."""
        end, others = self.first_end, (self._queue.first_arrival, self._queue.heap[0] if self._queue.heap else None)
        if end is not None and all(other is None or end < other[:2] for other in others):
            heappush(self._queue.heap, _entry(self._ends[0].item()))
            self._size = kernel.pop(self._ends, self._size)

    def _most_arrivals(self) -> int:
        """Return how many messages may arrive before one that may be followed by answers to many."""
        rounds = self._core.state.rounds
        if self._at_once:
            return _MOST
        left = _MOST if self._k is None else self._k - rounds.messages
        if self._synchronous:
            left = 0 if rounds.deadline_passed else min(left, len(rounds.missing))
        return max(left - 1, 0)

    def _note_sent(self) -> None:
        """Enter what the core has sent into the columns, forget what has arrived, and make room."""
        queue, sent, noted = self._queue, self._sent, self._noted
        if queue.arrived >= _ARRIVED or queue.arrived == len(queue.under_way):
            noted = max(noted - queue.arrived, 0)
            sent[:noted] = sent[queue.arrived : queue.arrived + noted]
            del queue.under_way[: queue.arrived]
            queue.arrived = 0
        tail = len(queue.under_way)
        if tail + _MOST > len(sent):
            self._sent = sent = np.concatenate([sent, np.zeros(tail + _MOST, kernel.SENT)])
        if noted < tail:
            sent[noted:tail] = [self._row(*entry) for entry in queue.under_way[noted:]]
        self._noted = tail
        if self._size + _MOST > len(self._ends):
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])

    def _row(self, time: float, number: int, sent: Message | Answer) -> tuple[int, int, int, int, int, float]:
        """Return the row of a message or answer that is on its way."""
        if isinstance(sent, Answer):
            return number, sent.agent, kernel.EMPTY if sent.inbound is None else 1, sent.number, 0, time
        refused = sent.claimed_sender != sent.sender or self._wrong(sent.payload)
        return number, sent.sender, kernel.REFUSED if refused else 0, sent.step, sent.base, time

    def _carry_out(self, count: int) -> int:
        """Carry out the planned events up to the first that is not for a window; take the others back. Return their number."""
        queue, rows = self._queue, self._told[:count].tolist()
        try:
            reports, plain = self._reports_of([row[1] for row in rows if row[0] == kernel.FINISHED])
        except BaseException:
            self._undo(0, count)
            raise
        self._server, self._arrivals, self._answers = self._core.state.server, queue.arrived, 0
        self._sizes, self._heard, self._begun = list[int](), list[int](), list[StepRequest]()
        self._odd: tuple[int, dict[int, Payload] | Exception] | None = None
        done, kept = 0, count
        for place, (row, (now, begun)) in enumerate(zip(rows, self._times[:count].tolist(), strict=True)):
            kind = row[0]
            if kind == kernel.FINISHED:
                taken = plain[done] and self._finished(row, now, begun, reports[done])
                done += taken
            else:
                taken = self._arrived(row, now) if kind == kernel.ARRIVED else self._delivered(row)
            if not taken or self._odd is not None:
                kept = place + taken
                break
        self._reports.update((report.agent, report) for report in reports[done:])
        self._note(kept, count)
        self._tell(kept)
        self._end_oddly()
        return kept

    def _end_oddly(self) -> None:
        """Answer the last message as the core does, or raise the error of its answer."""
        if self._odd is None:
            return
        queue, state, (number, payloads) = self._queue, self._core.state, self._odd
        state.rounds.hear([number], self._synchronous)
        queue.events -= 1  # until it is over
        if isinstance(payloads, Exception):
            raise payloads
        for effect in self._core.server.reply(state, [number], payloads, queue.time):
            assert isinstance(effect, After)
            queue.push(queue.time + effect.delay, effect.event)
        queue.events += 1

    def _reports_of(self, numbers: list[int]) -> tuple[list[StepReport], list[bool]]:
        """Wait for the reports of steps; also return which of them are plain, with a message as declared or none."""
        known, hosts, wrong = self._reports, self._hosts, self._wrong
        found = hosts.results(np.array(numbers)) if self._joint and numbers and not known else []
        if isinstance(found, StepReports):
            reports, plain = single_reports(found), (found.queries == 1).tolist()
            if found.payload is None or self._are_sound(found.payload):
                return reports, plain
        else:
            reports = found or [known.pop(number) if number in known else hosts.report(number) for number in numbers]
            plain = [one.queries == 1 and not (one.retried or one.failed or one.failure is not None) for one in reports]
        fits = [one.payload is None or not wrong(one.payload) for one in reports]
        return reports, [one and other for one, other in zip(plain, fits, strict=True)]

    def _are_sound(self, payload: Mapping[str, npt.NDArray[Any]]) -> bool:
        """Check whether messages `(k, ...)` are as declared, where that is easily seen."""
        return payload.keys() == self._upload.keys() and all(
            array.dtype == field.dtype
            and array.shape[1:] == field.shape
            and not field.positive
            and bool(np.abs(array).max(initial=0.0) <= LARGEST)
            for field, array in ((self._upload[name], array) for name, array in payload.items())
        )

    def _finished(self, row: list[int], now: float, begun: float, report: StepReport) -> bool:
        """Record the result of a step, send its message, and begin the next step unless the agent waits."""
        _, number, step, base, lease, starts, sent = row
        payload = report.payload
        if (not payload) == self._speaks[step]:
            return False
        record = self._records[number]
        if payload:
            message = Message(number, number, step, base, now, payload=payload)
            record.unacknowledged[step] = message
            self._queue.under_way.append((now + self._latency, sent, message))
            if self._varies:
                self._sizes.append(size(payload))
        record.t_n, record.pulled = report.t_n, report.pulled
        if step % self._checkpoint == 0:
            record.saved_t_n = report.t_n
        if not self._joint:
            self._hosts.commit(number, (begun, now))
        if starts:
            self._begin(record, step + 1, lease + 1, starts)
        else:
            self._waiting[number] = None
        return True

    def _begin(self, record: AgentRecord, step: int, lease: int, starts: int) -> None:
        """Begin the next step of an agent, with the answers that it has got."""
        number, inbox = record.number, tuple[Inbound, ...]()
        if record.inbox:
            inbox, record.inbox = tuple(record.inbox), []
        self._steps[number].inbox = inbox
        if starts > 1:
            self._draw(number, self._agents[number]["next_evaluation"].item())
        self._begun.append(StepRequest(number, step, lease, inbox, self._speaks[step]))

    def _arrived(self, row: list[int], now: float) -> bool:
        """Accept a message; answer its sender where every message is answered at once."""
        _, number, step, _, _, _, sent = row
        message, record = self._queue.under_way[self._arrivals][2], self._records[number]
        if step not in record.unacknowledged:
            return False
        try:
            self._server = self._receive(self._server, Inbound(number, step, message.sent, message.payload), now)
        except Exception:  # noqa: BLE001 -- the core logs it
            return False
        self._arrivals += 1
        record.steps_accepted.append(step)
        del record.unacknowledged[step]
        record.unheard = False
        self._heard.append(number)
        if self._varies:
            self._sizes.append(self._bytes(message.payload))
        if self._at_once:
            self._answer(number, now, sent)
        return True

    def _answer(self, number: int, now: float, sent: int) -> None:
        """Answer a message."""
        place = self._core.state.rounds.number + self._answers
        try:
            payloads, self._server = self._broadcast(self._server, [number], self._ones, self._streams.at(place))
        except Exception as error:  # noqa: BLE001 -- it ends the run, once what came before is noted
            self._odd = number, error
            return
        answer = payloads.get(number)
        if len(payloads) != 1 or answer is None or self._wrong_answer(answer):
            self._odd = (number, payloads)
            return
        reply = Answer(number, Inbound(COORDINATOR, place, now, answer), place)
        self._queue.under_way.append((now + self._latency, sent, reply))
        self._answers, self._opened = self._answers + 1, now

    def _delivered(self, row: list[int]) -> bool:
        """Deliver an answer to an agent, which begins its next step if it has waited for it."""
        _, number, place, step, lease, starts, _ = row
        inbound, record = self._queue.under_way[self._arrivals][2].inbound, self._records[number]
        if (self._waiting.get(number) != place) if self._synchronous else (inbound is None):
            return False
        self._arrivals += 1
        record.received_answers.append(place)
        if inbound is not None:
            record.inbox.append(inbound)
            if self._varies:
                self._sizes.append(self._answer_bytes(inbound.payload))
        if self._synchronous:
            del self._waiting[number]
            self._begin(record, step + 1, lease + 1, starts)
        return True

    def _undo(self, kept: int, count: int) -> None:
        """Take back the planned events from number `kept` on."""
        self._size = kernel.undo(self._agents, self._before, self._ends, self._size, self._events, kept, count)

    def _note(self, kept: int, count: int) -> None:
        """Note in the state of the run that so many of the planned events have happened."""
        state, queue = self._core.state, self._queue
        if kept < count:
            self._undo(kept, count)
        lines, scheduled, noted, _, noted_at = self._events[kept].item()[4:]
        queue.waiting += self._size + len(queue.under_way) - self._arrivals - self._pending
        queue.arrived, self._noted, queue.events = self._arrivals, len(queue.under_way), queue.events + kept
        queue.scheduled = scheduled - (self._odd is not None)
        if kept:
            queue.time = self._times.item(kept - 1, 0)
        state.server = self._server
        state.progress.note_each(kept, noted, noted_at)
        if self._answers:
            state.rounds.close_each(self._opened, self._answers)
        elif self._heard and not self._at_once:
            state.rounds.hear(self._heard, self._synchronous)
        written = self._lines[:lines].copy()
        if self._varies:
            weighed = (written["kind"] != kernel.FINISHED) & (written["kind"] != kernel.STARTED)
            written["bytes"][weighed] = self._sizes
        self._core.rules.log.append(EventColumns(written))

    def _tell(self, kept: int) -> None:
        """Tell the hosts which steps count, and which begin."""
        hosts = self._hosts
        if self._joint:
            ends = self._told[:kept, 0] == kernel.FINISHED
            hosts.commit_each(self._told[:kept, 1][ends], self._times[:kept, 1][ends], self._times[:kept, 0][ends])
        joint = joint_requests(self._begun) if self._joint and self._begun else None
        if joint is not None:
            hosts.submit_each(joint)
        else:
            for request in self._begun:
                hosts.submit(request)


def _entry(end: tuple[int, int, int, float]) -> tuple[float, int, Finished]:
    number, agent, lease, time = end
    return time, number, Finished(agent, lease)
