"""Windows of a run: events of many agents that are independent of each other, processed together on columns.

A step that ends needs no event but its start, since a request to an agent is complete when it is made. So all events before the
first end of a step that starts among them form a window (conservative parallel simulation: Chandy and Misra 1979): the compiled
kernel finds their order, and what they change in the columns; reports, messages and answers pass through in that order. A round
that closes ends its window; buffers that are full are answered within it. All else is left to the core: first steps, failed
evaluations, refused messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import Ints, Letters, StepReports, StepRequests, joint_requests, rows_of, single_reports
from fedbo.actors.hosts import Hosts, raise_if_failed
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import LARGEST, Inbound, Payload
from fedbo.algorithms.messages import are_sound, declared_size, plain_fields, size, varies
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import After
from fedbo.coordinator.kernel.server import recipients_of
from fedbo.coordinator.logged.columns import EventColumns
from fedbo.fast import window_kernel as kernel
from fedbo.fast.coordinator_half import Arrivals, Closings, CoordinatorHalf, Heard, close_each, hear, note_each
from fedbo.fast.payload_slots import OBJECTS, Columns, Payloads
from fedbo.fast.plain_agents import PlainAgents

_MOST = 2048  # events of a window, so that hosts work on the steps of others meanwhile
_ENDS = 384  # steps that end in a window, so that it waits for few hosts
_FEW = 64  # agents for which these many events are enough


class Ended(NamedTuple):
    """Reports of the steps that end in a window, of which the first `plain` ones are plain; `t_n` and `pulled` are theirs.

    `payload` has the messages of those that send one, as columns or one by one; a dummy message is None there.
    """

    plain: int
    t_n: Ints
    pulled: Ints
    payload: Columns | Payloads
    reports: StepReports | list[StepReport]


_NOTHING = np.zeros(0, np.int64)
_NONE = Ended(0, _NOTHING, _NOTHING, [], [])


class Windows:
    """The windows of a run that has them."""

    def __init__(self, core: Core, hosts: Hosts, queue: EventQueue) -> None:
        rules = core.rules
        self._core, self._hosts, self._queue, self._half = core, hosts, queue, CoordinatorHalf(rules)
        self._columns = queue.columns = core.state.agents.columns = PlainAgents(core, queue)
        self.readmit = self._columns.readmit
        self._synchronous, self._k = rules.is_synchronous, getattr(rules.exchange, "k", None)
        self._joint = type(hosts).results is not Hosts.results  # whether columns are the hosts' own way
        self._plain_upload, self._checkpoint = plain_fields(rules.upload or {}), rules.task.checkpoint
        self._varies = varies(rules.upload) or varies(rules.download)
        self._private = rules.receipt.aggregator is not None
        drops_late = self._synchronous and (self._private or not rules.exchange.accepts_late)
        bytes_ = (declared_size(rules.upload), declared_size(rules.download))
        modes = self._synchronous, 0 if self._synchronous else self._k or 1, drops_late, rules.sends_dummies
        self._rules = np.array([*modes, core.server.tells, *bytes_, *[0] * len(kernel.BEGINS_WITH)])
        self.most = most = _MOST if rules.problem.n_agents > _FEW else min(_MOST, _FEW)
        self._before, self._events = np.zeros(most, kernel.AGENT), np.zeros(most, kernel.EVENT)
        self._lines, self._marks = np.zeros(3 * most, kernel.LINE), np.zeros((most + 1, kernel.N_MARKS), np.int64)
        self._found, self._times = np.zeros((kernel.N_FOUND, most), np.int64), np.zeros((4, most))
        self._answers = np.zeros((3, 0), np.int64)
        self._letters, self._written = np.zeros((3, 0), np.int64), np.zeros(0)
        self._reports = dict[int, StepReport]()  # of ends that were taken back

    def result(self, agent: int) -> StepReport:
        """Wait for the report of an agent's last request, for the core."""
        return raise_if_failed(self._reports.pop(agent) if agent in self._reports else self._hosts.report(agent))

    def take(self, until: float, most: int) -> int:
        """Process a window of at most so many events, and return their number; 0 before one of the core."""
        columns, rounds = self._columns, self._core.state.rounds
        if columns.left:
            columns.enter_all()
        first, count = columns.first, 0
        if first is not None and first[2] in columns and rounds.active and (self._synchronous or not rounds.waiting):
            count = self._plan(until, min(most, self.most))
        if count:
            count = self._carry_out(count)
        if not count:
            columns.hand_over()
        return count

    def _plan(self, until: float, most: int) -> int:
        """Find the events of a window; return their number."""
        columns, rounds, heap, rules = self._columns, self._core.state.rounds, self._queue.heap, self._rules
        buffered = [agent for agent in rounds.buffer if agent in rounds.active]
        room = self.most + len(buffered)
        columns.make_room(room, not self._synchronous, min(self.most, _ENDS))
        if room > self._answers.shape[1]:
            self._answers = np.zeros((3, 2 * room), np.int64)
        self._answers[kernel.BUFFERED_WHO, : len(buffered)] = buffered
        if len(self._written) < len(columns.down.slots):
            self._letters, self._written = np.zeros((3, len(columns.down.slots)), np.int64), np.zeros(len(columns.down.slots))
        limit: tuple[float, int] = heap[0][:2] if heap else (np.inf, 0)
        round_ = rounds.number, self._until_closing(), len(rounds.active), rounds.messages, len(buffered)
        rules[kernel.NUMBER :] = *round_, most, _ENDS
        columns.counters[kernel.SCHEDULED] = self._queue.scheduled
        count, left = kernel.plan(columns.arrays, self._window, rules, until, *limit, columns.latency)
        self._closes = not left
        return int(count)

    @property
    def _window(self) -> tuple[Any, ...]:
        written = self._letters, self._written, self._answers
        return (self._before, self._events, self._lines, self._marks, self._found, self._times, *written)

    def _until_closing(self) -> int:
        """Return the least number of messages that may close the round."""
        rounds = self._core.state.rounds
        if not self._synchronous:
            return _MOST + 1
        left = _MOST + 1 if self._k is None else self._k - rounds.messages
        if rounds.deadline_passed:
            left = min(left, rounds.least - rounds.messages)
        return max(min(left, len(rounds.missing)), 1)

    def _carry_out(self, count: int) -> int:
        """Carry out the planned events up to the first that is not for a window; take the others back. Return their number."""
        columns, found, kept = self._columns, self._found, count
        mark = self._marks[count].tolist()
        steps = mark[kernel.N_ENDED]
        try:
            ended = self._ended(steps, mark[kernel.N_SPOKEN]) if steps else _NONE
        except BaseException:
            kernel.undo(columns.arrays, self._window, 0, count)
            raise
        if ended.plain < steps:
            kept = found.item(kernel.ENDED_PLACE, ended.plain)
            mark = self._marks[kept].tolist()
        if mark[kernel.N_SPOKEN]:
            columns.up.put(found[kernel.SPOKEN_SLOT, : mark[kernel.N_SPOKEN]], ended.payload)
        arrived = mark[kernel.N_HEARD]
        heard = self._hear(arrived, mark[kernel.N_CLOSED]) if arrived else Heard(self._core.state.server, 0)
        if heard.taken < arrived or heard.unusual is not None:
            last = heard.unusual is not None
            kept = found.item(kernel.HEARD_PLACE, heard.taken - last) + last
            mark = self._marks[kept].tolist()
        closed = mark[kernel.N_CLOSED] - (heard.unusual is not None)
        answered = found.item(kernel.CLOSED_ANSWERED, closed - 1) if closed else 0
        if answered:
            columns.down.put(self._answers[kernel.ANSWER_SLOT, :answered], heard.answers)
        if kept < count:
            kernel.undo(columns.arrays, self._window, kept, count)
            self._closes = False
            self._keep_reports(ended, mark[kernel.N_ENDED], steps)
        self._note(kept, mark, heard, closed)
        self._commit(mark, ended)
        if mark[kernel.N_BEGUN]:
            self._begin(mark)
        self._settle(kept, mark, ended)
        if heard.unusual is not None or self._closes:
            self._close(heard.unusual)
        return kept

    def _ended(self, count: int, spoken: int) -> Ended:
        """Wait for the reports of steps, and find those that are plain, with a message as declared where one is due."""
        known, hosts, reports = self._reports, self._hosts, list[StepReport]()
        numbers = self._found[kernel.ENDED_WHO, :count].copy()
        if self._joint and not known:
            found = hosts.results(numbers)
            if isinstance(found, StepReports):
                expected = self._expected(numbers.tolist()) if self._columns.first_steps else 1
                if self._half.is_joint and (found.queries == expected).all() and self._are_sound(found.payload, count, spoken):
                    return Ended(count, found.t_n, found.pulled, found.payload or {}, found)
                found = single_reports(found)
            reports = found
        else:
            reports = [known.pop(number) if number in known else hosts.report(number) for number in numbers.tolist()]
        steps = self._found[kernel.ENDED_STEP, :count]
        speaks, sends = self._columns.speak(numbers, steps).tolist(), self._columns.sends[steps].tolist()
        expected = self._expected(numbers.tolist())
        plain = next((n for n, one in enumerate(reports) if not self._is_plain(one, speaks[n], expected[n])), count)
        payloads = [one.payload for one, due in zip(reports[:plain], sends[:plain], strict=True) if due]
        t_n, pulled = (np.array([getattr(one, name) for one in reports[:plain]], np.int64) for name in ("t_n", "pulled"))
        return Ended(plain, t_n, pulled, payloads, reports)

    def _expected(self, agents: list[int]) -> list[int]:
        """Return the number of evaluations of each agent's step."""
        first = self._columns.first_steps
        return [len(first[agent].segments) - 1 if agent in first else 1 for agent in agents]

    def _is_plain(self, report: StepReport, speaks: bool, queries: int) -> bool:
        """Check whether a report is that of so many evaluations, with a message as declared if one is due."""
        if report.queries != queries or report.retried or report.failed or report.spent or report.failure is not None:
            return False
        return speaks and not self._columns.wrong(report.payload) if report.payload else not speaks and report.payload is None

    def _are_sound(self, payload: Columns | None, count: int, spoken: int) -> bool:
        """Check whether messages `(k, ...)` are as declared, where that is easily seen, and are those that are due."""
        if payload is None:
            return not spoken
        return spoken == count and are_sound(payload, self._plain_upload, LARGEST)

    def _keep_reports(self, ended: Ended, first: int, count: int) -> None:
        """Keep the reports of ends that were taken back."""
        rest = ended.reports[first:] if isinstance(ended.reports, list) else rows_of(ended.reports, np.arange(first, count))
        singles = rest if isinstance(rest, list) else single_reports(rest)
        self._reports.update((report.agent, report) for report in singles)

    def _hear(self, count: int, closed: int) -> Heard:
        """Pass messages to the coordinator half, which answers so many full buffers."""
        state, found, times = self._core.state, self._found, self._times
        senders, steps = found[kernel.HEARD_WHO, :count], found[kernel.HEARD_STEP, :count]
        payload = self._columns.up.take(found[kernel.HEARD_SLOT, :count])
        arrivals = Arrivals(senders, steps, times[kernel.HEARD_SENT, :count], times[kernel.HEARD_AT, :count], payload)
        if self._private:
            return self._half.hold(state, arrivals, self._columns.agents["asked"][senders] > 0)
        if not closed:
            return self._half.receive(state.server, arrivals)
        ends = found[kernel.CLOSED_ANSWERED, :closed]
        closings = Closings(found[kernel.CLOSED_HEARD, :closed], ends, self._answers[kernel.ANSWER_WHO, : ends[-1]])
        return self._half.answer(state.server, arrivals, closings, state.rounds.number)

    def _note(self, kept: int, mark: list[int], heard: Heard, closed: int) -> None:
        """Note in the state of the run that so many of the planned events have happened, and buffers were answered."""
        state, queue, columns, times = self._core.state, self._queue, self._columns, self._events["time"]
        state.server = heard.server
        answered = self._found.item(kernel.CLOSED_ANSWERED, closed - 1) if closed else 0
        if (planned := mark[kernel.N_ANSWERED] - answered) > 0:  # the answers that the last buffer does not get
            columns.counters[[kernel.SCHEDULED, kernel.TAIL]] -= planned
            columns.counters[kernel.DOWN] += planned
        queue.scheduled, queue.events = columns.counters.item(kernel.SCHEDULED), queue.events + kept
        if kept:
            queue.time = times.item(kept - 1)
        noted = mark[kernel.NOTED]
        note_each(state.progress, kept, noted, times.item(noted - 1) if noted else 0.0)
        self._note_senders(mark, heard.dummies, closed)
        redone = self._rules[kernel.TELLS] and not self._synchronous and closed < mark[kernel.N_CLOSED]
        lines = self._lines[: mark[kernel.N_LINES] - redone].copy()  # without that of a buffer that the core answers
        if self._varies:
            self._weigh(mark, closed, lines)
        self._core.rules.log.append(EventColumns(lines))

    def _note_senders(self, mark: list[int], dummies: int, closed: int) -> None:
        """Note whose messages have arrived, of which so many were dummies, and who has left."""
        rounds, found, arrived = self._core.state.rounds, self._found, mark[kernel.N_HEARD]
        if self._synchronous:
            hear(rounds, found[kernel.HEARD_WHO, :arrived].tolist(), arrived - dummies)
        elif arrived:
            first, last = int(self._rules[kernel.BUFFERED]), closed - 1
            if closed:
                heard, first = found[kernel.CLOSED_HEARD : kernel.CLOSED_BUFFERED + 1, last].tolist()
                close_each(rounds, self._times.item(kernel.HEARD_AT, heard - 1), closed)
            more = self._answers[kernel.BUFFERED_WHO, first : mark[kernel.N_BUFFERED]].tolist()
            rounds.buffer.extend(more)
            rounds.messages += len(more)
            rounds.is_heard |= not closed or arrived > heard
        rounds.remove(found[kernel.LEFT_WHO, : mark[kernel.N_LEFT]].tolist())

    def _weigh(self, mark: list[int], closed: int, lines: npt.NDArray[Any]) -> None:
        """Enter the sizes of messages and answers into the lines about them."""
        for kinds, box, row, count in (
            ([kernel.SPOKEN], self._columns.up, kernel.SPOKEN_SLOT, mark[kernel.N_SPOKEN]),
            ([kernel.ARRIVED], self._columns.up, kernel.HEARD_SLOT, mark[kernel.N_HEARD]),
            ([kernel.DELIVERED, kernel.MISSED], self._columns.down, kernel.MET_SLOT, mark[kernel.N_MET]),
        ):
            payloads = box.columns[OBJECTS][self._found[row, :count]].tolist()
            lines["bytes"][np.isin(lines["kind"], kinds)] = [size(one) for one in payloads if one is not None]
        if not self._rules[kernel.TELLS]:
            return
        ends = self._found[kernel.CLOSED_ANSWERED, :closed]
        slots = self._answers[kernel.ANSWER_SLOT, : ends[-1] if closed else 0]
        sizes = np.array([0, *(size(one) for one in self._columns.down.columns[OBJECTS][slots].tolist())])
        lines["bytes"][lines["kind"] == kernel.ROUND] = np.diff(np.cumsum(sizes)[ends], prepend=0)

    def _commit(self, mark: list[int], ended: Ended) -> None:
        """Commit the steps that have ended; note who waits for a round, and who waits no longer."""
        found, times, waiting = self._found, self._times, self._core.state.rounds.waiting
        count, met = mark[kernel.N_ENDED], mark[kernel.N_MET]
        if count:
            who, begun = found[kernel.ENDED_WHO, :count].copy(), times[kernel.ENDED_BEGUN, :count].copy()
            now, first = times[kernel.ENDED_AT, :count].copy(), self._columns.first_steps
            later = found[kernel.ENDED_STEP, :count] > 0 if first else slice(None)
            self._hosts.commit_each(who[later], begun[later], now[later])
            for agent, at in zip(who.tolist(), now.tolist(), strict=True) if first else ():
                if agent in first:  # of any number of evaluations
                    self._hosts.commit(agent, first.pop(agent).times(at))
            if self._synchronous:
                waits = self._columns.sends[found[kernel.ENDED_STEP, :count]] & (self._columns.agents["ended"][who] == 0)
                waiting.update(dict.fromkeys(who[waits].tolist()))
        if self._synchronous:
            for agent in found[kernel.MET_WHO, :met].tolist():
                del waiting[agent]

    def _begin(self, mark: list[int]) -> None:
        """Request the steps that begin, with the answers that their agents have got."""
        columns, hosts, found, letters = self._columns, self._hosts, self._found, mark[kernel.N_LETTERS]
        for agent in found[kernel.DRAWN_WHO, : mark[kernel.N_DRAWN]].tolist():
            columns.draw(agent, columns.agents["next_evaluation"].item(agent))
        agents, steps, leases = found[kernel.BEGUN_WHO : kernel.BEGUN_LEASE + 1, : mark[kernel.N_BEGUN]].copy()
        slots, places, numbers = self._letters[:, :letters].copy()
        sent, speaks = self._written[:letters].copy(), columns.speak(agents, steps)
        payload = columns.down.take(slots)
        if self._joint and self._half.is_joint:
            own = places if mark[kernel.N_UNEVEN] else None
            inboxes = Letters(np.full(letters, COORDINATOR), numbers, sent, payload, own) if letters else None
            hosts.submit_each(StepRequests(agents, steps, leases, speaks, inboxes))
            return
        singles = payload[OBJECTS].tolist() if OBJECTS in payload else _rows(payload)
        own_inbox = [tuple[Inbound, ...]()] * len(agents)
        for place, number, now, one in zip(places.tolist(), numbers.tolist(), sent.tolist(), singles, strict=True):
            own_inbox[place] += (Inbound(COORDINATOR, number, now, one),)
        requests = list(map(StepRequest, agents.tolist(), steps.tolist(), leases.tolist(), own_inbox, speaks.tolist()))
        joint = joint_requests(requests) if self._joint else None
        if joint is not None:
            hosts.submit_each(joint)
            return
        for request in requests:
            hosts.submit(request)

    def _settle(self, kept: int, mark: list[int], ended: Ended) -> None:
        """Enter what the steps that have ended leave, and free the slots of what was read."""
        columns, up, down = self._columns, self._columns.up, self._columns.down
        free = columns.counters.tolist()
        known = ended.t_n, ended.pulled, self._checkpoint, mark[kernel.N_ENDED], kept
        kernel.settle(columns.arrays, self._window, *known)
        up.forget(free[kernel.UP])
        down.forget(free[kernel.DOWN])

    def _close(self, unusual: dict[int, Payload] | Exception | None) -> None:
        """Close the round, or answer the buffer as the core does, if what it should get is `unusual`."""
        state, queue, server = self._core.state, self._queue, self._core.server
        queue.events -= 1  # until it is over
        if isinstance(unusual, Exception):
            raise unusual
        if unusual is not None:
            effects = server.reply(state, recipients_of(state.rounds, synchronous=False), unusual, queue.time)
        else:
            effects = self._answer_each()
        for effect in effects:
            assert isinstance(effect, After)
            queue.push(queue.time + effect.delay, effect.event)
        queue.events += 1

    def _answer_each(self) -> list[Any]:
        """Close the round, and answer all that have reported, in columns."""
        state, queue, columns, server = self._core.state, self._queue, self._columns, self._core.server
        rounds, now = state.rounds, queue.time
        if not self._core.exchange.should_close(rounds) and not (rounds.deadline_passed and rounds.may_be_overdue):
            return []
        recipients, number = recipients_of(rounds, synchronous=True), rounds.number
        numbers, payloads = np.array(recipients, np.int64), dict[int, Payload]()
        answers: Columns | list[Payload]
        if self._half.is_joint:
            places, answers, state.server = self._half.broadcast(state.server, numbers, number, columns.up.take(_NOTHING))
            bytes_ = len(places) * int(self._rules[kernel.BYTES_DOWN])
        else:
            payloads = server.aggregate(state, recipients, now)
            places = np.flatnonzero([payloads.get(agent) is not None for agent in recipients])
            answers, bytes_ = [payloads[agent] for agent in numbers[places].tolist()], server.weigh(payloads.values())
        if self._half.sound(answers) < len(places):  # which ends the run
            if isinstance(answers, dict):
                payloads = dict(zip(numbers[places].tolist(), _rows(answers), strict=True))
            return server.reply(state, recipients, payloads, now)
        server.close(state, bytes_, now)
        columns.make_room(len(recipients), True)
        answered = np.zeros(len(recipients), bool)
        answered[places] = True
        columns.counters[kernel.SCHEDULED] = queue.scheduled
        slots = kernel.answer_each(columns.arrays, numbers, answered, number, now, columns.latency)
        columns.down.put(slots, answers)
        queue.scheduled = int(columns.counters[kernel.SCHEDULED])
        rounds.waiting.update(dict.fromkeys(recipients, number))
        return server.open(state, recipients, now)


def _rows(payload: Columns) -> list[Payload]:
    """Return payloads one by one."""
    return [dict(zip(payload, row, strict=True)) for row in zip(*payload.values(), strict=True)]
