"""Windows of a run: events of many agents that are independent of each other, processed together on columns.

A step that ends needs no event but its start, since a request to an agent is complete when it is made. So all events before the
first end of a step that starts among them form a window (conservative parallel simulation: Chandy and Misra 1979): the compiled
kernel finds their order, and what they change in the columns; reports, messages and answers pass through in that order. A round
or buffer that closes ends its window. All else is left to the core: first steps, last steps without rounds, failed
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
from fedbo.coordinator.kernel.events import After, Event
from fedbo.coordinator.kernel.server import recipients_of
from fedbo.coordinator.kernel.state import AgentStep
from fedbo.coordinator.logged.columns import EventColumns
from fedbo.fast import window_kernel as kernel
from fedbo.fast.coordinator_half import Arrivals, CoordinatorHalf, Heard, close_each, hear, note_each
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
        self._synchronous, self._k = rules.is_synchronous, getattr(rules.exchange, "k", None)
        self._at_once = not self._synchronous and self._k is None
        self._joint = type(hosts).results is not Hosts.results  # whether columns are the hosts' own way
        self._plain_upload, self._checkpoint = plain_fields(rules.upload or {}), rules.task.checkpoint
        self._varies = varies(rules.upload) or varies(rules.download)
        self._private = rules.receipt.aggregator is not None
        drops_late = self._synchronous and (self._private or not rules.exchange.accepts_late)
        bytes_ = (declared_size(rules.upload), declared_size(rules.download))
        per_round = 1 if self._synchronous else len(rules.targets)
        modes = self._synchronous, self._at_once, drops_late, rules.sends_dummies
        self._rules = np.array([*modes, per_round, *bytes_, 0, 0, 0, 0, _ENDS])
        self.most = most = _MOST if rules.problem.n_agents > _FEW else min(_MOST, _FEW)
        self._before, self._events = np.zeros(most, kernel.AGENT), np.zeros(most, kernel.EVENT)
        self._lines, self._marks = np.zeros(3 * most, kernel.LINE), np.zeros((most + 1, 15), np.int64)
        self._found, self._times = np.zeros((15, most), np.int64), np.zeros((4, most))
        self._letters, self._written = np.zeros((3, 0), np.int64), np.zeros(0)
        self._reports = dict[int, StepReport]()  # of ends that were taken back

    def result(self, agent: int) -> StepReport:
        """Wait for the report of an agent's last request, for the core."""
        return raise_if_failed(self._reports.pop(agent) if agent in self._reports else self._hosts.report(agent))

    def readmit(self, event: Event) -> None:
        """Move the agent of an event that the core has processed into the columns."""
        self._columns.readmit(event)

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
        columns.make_room(self.most, self._at_once, min(self.most, _ENDS))
        if len(self._written) < len(columns.down.slots):
            self._letters, self._written = np.zeros((3, len(columns.down.slots)), np.int64), np.zeros(len(columns.down.slots))
        limit = heap[0][:2] if heap else (np.inf, 0)
        arrivals = self._until_closing()
        rules[kernel.NUMBER : kernel.MOST_ENDS] = rounds.number, rounds.age, arrivals, most
        columns.counters[kernel.SCHEDULED] = self._queue.scheduled
        up, down = columns.up, columns.down
        count, left = kernel.plan(
            *(columns.agents, self._before, columns.ends, columns.sent, self._events, self._lines, self._marks, self._found),
            *(self._times, self._letters, self._written, columns.past, up.slots, down.slots, up.free, down.free),
            *(columns.lengths, columns.sends, columns.counters, rules, until, *limit, columns.latency),
        )
        self._closes = not left
        return int(count)

    def _until_closing(self) -> int:
        """Return the least number of messages that may close the round or buffer."""
        rounds = self._core.state.rounds
        if self._at_once:
            return _MOST + 1
        left = _MOST + 1 if self._k is None else self._k - rounds.messages
        if self._synchronous:
            left = 1 if rounds.deadline_passed else min(left, len(rounds.missing))
        return max(left, 1)

    def _carry_out(self, count: int) -> int:
        """Carry out the planned events up to the first that is not for a window; take the others back. Return their number."""
        columns, found, kept = self._columns, self._found, count
        mark = self._marks[count].tolist()
        steps = mark[kernel.N_ENDED]
        try:
            ended = self._ended(steps, mark[kernel.N_SPOKEN]) if steps else _NONE
        except BaseException:
            self._undo(0, count)
            raise
        if ended.plain < steps:
            kept = found.item(kernel.ENDED_PLACE, ended.plain)
            mark = self._marks[kept].tolist()
        if mark[kernel.N_SPOKEN]:
            columns.up.put(found[kernel.SPOKEN_SLOT, : mark[kernel.N_SPOKEN]], ended.payload)
        arrived = mark[kernel.N_HEARD]
        heard = self._hear(arrived) if arrived else Heard(self._core.state.server, 0)
        if heard.taken < arrived or heard.unusual is not None:
            last = heard.unusual is not None
            kept = found.item(kernel.HEARD_PLACE, heard.taken - last) + last
            mark = self._marks[kept].tolist()
        answered = heard.taken - (heard.unusual is not None) if self._at_once else 0
        if answered:
            columns.down.put(found[kernel.ANSWER_SLOT, :answered], heard.answers)
        if kept < count:
            self._undo(kept, count)
            self._closes = False
            self._keep_reports(ended, mark[kernel.N_ENDED], steps)
        self._note(kept, mark, heard, answered)
        self._commit(mark, ended)
        if mark[kernel.N_BEGUN]:
            self._begin(mark)
        self._settle(kept, mark, ended)
        if heard.unusual is not None or self._closes:
            self._close(heard.unusual, self._events["agent"].item(kept - 1))
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

    def _hear(self, count: int) -> Heard:
        """Pass messages to the coordinator half, which answers each of them where that happens at once."""
        state, found, times = self._core.state, self._found, self._times
        senders, steps = found[kernel.HEARD_WHO, :count], found[kernel.HEARD_STEP, :count]
        payload = self._columns.up.take(found[kernel.HEARD_SLOT, :count])
        arrivals = Arrivals(senders, steps, times[kernel.HEARD_SENT, :count], times[kernel.HEARD_AT, :count], payload)
        if self._private:
            return self._half.hold(state, arrivals, self._columns.agents["asked"][senders] > 0)
        if self._at_once:
            return self._half.answer(state.server, arrivals, state.rounds.number)
        return self._half.receive(state.server, arrivals)

    def _undo(self, kept: int, count: int) -> None:
        """Undo the planned events from number `kept` on."""
        columns = self._columns
        kernel.undo(columns.agents, self._before, columns.ends, self._events, columns.counters, self._marks, kept, count)

    def _note(self, kept: int, mark: list[int], heard: Heard, answered: int) -> None:
        """Note in the state of the run that so many of the planned events have happened."""
        state, queue, columns, times = self._core.state, self._queue, self._columns, self._events["time"]
        state.server = heard.server
        if heard.unusual is not None:  # the answer that was planned for the last message
            columns.counters[[kernel.SCHEDULED, kernel.TAIL]] -= 1
            columns.counters[kernel.DOWN] += 1
        queue.scheduled, queue.events = columns.counters.item(kernel.SCHEDULED), queue.events + kept
        if kept:
            queue.time = times.item(kept - 1)
        noted, arrived = mark[kernel.NOTED], mark[kernel.N_HEARD]
        note_each(state.progress, kept, noted, times.item(noted - 1) if noted else 0.0)
        if answered:
            close_each(state.rounds, self._times.item(kernel.HEARD_AT, answered - 1), answered)
        elif arrived and not self._at_once:
            senders = self._found[kernel.HEARD_WHO, :arrived]
            hear(state.rounds, senders.tolist(), arrived - heard.dummies, self._synchronous)
            state.rounds.remove(senders[columns.agents["ended"][senders] > 0].tolist())
        lines = self._lines[: mark[kernel.N_LINES]].copy()
        if self._varies:
            self._weigh(mark, lines)
        self._core.rules.log.append(EventColumns(lines))

    def _weigh(self, mark: list[int], lines: npt.NDArray[Any]) -> None:
        """Enter the sizes of messages and answers into the lines about them."""
        for kind, box, row, count in (
            (kernel.SPOKEN, self._columns.up, kernel.SPOKEN_SLOT, mark[kernel.N_SPOKEN]),
            (kernel.ARRIVED, self._columns.up, kernel.HEARD_SLOT, mark[kernel.N_HEARD]),
            (kernel.DELIVERED, self._columns.down, kernel.MET_SLOT, mark[kernel.N_MET]),
        ):
            payloads = box.columns[OBJECTS][self._found[row, :count]].tolist()
            lines["bytes"][lines["kind"] == kind] = [size(one) for one in payloads if one is not None]

    def _commit(self, mark: list[int], ended: Ended) -> None:
        """Commit the steps that have ended; note who waits for a round, and who waits no longer."""
        found, times, waiting = self._found, self._times, self._core.state.rounds.waiting
        count, met = mark[kernel.N_ENDED], mark[kernel.N_MET]
        if count:
            who, begun = found[kernel.ENDED_WHO, :count].copy(), times[kernel.ENDED_BEGUN, :count].copy()
            now, first = times[kernel.ENDED_AT, :count].copy(), self._columns.first_steps
            if first:
                self._commit_first(first, who.tolist(), now.tolist())
                later = found[kernel.ENDED_STEP, :count] > 0
                self._hosts.commit_each(who[later], begun[later], now[later])
            else:
                self._hosts.commit_each(who, begun, now)
            if self._synchronous:
                waits = self._columns.sends[found[kernel.ENDED_STEP, :count]] & (self._columns.agents["ended"][who] == 0)
                waiting.update(dict.fromkeys(who[waits].tolist()))
        if self._synchronous:
            for agent in found[kernel.MET_WHO, :met].tolist():
                del waiting[agent]

    def _commit_first(self, first: dict[int, AgentStep], agents: list[int], times: list[float]) -> None:
        """Commit steps 0, of several evaluations."""
        for agent, now in zip(agents, times, strict=True):
            if agent in first:
                self._hosts.commit(agent, first.pop(agent).times(now))

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
        kernel.settle(
            *(columns.agents, self._before, self._events, columns.sent, down.slots, up.free, down.free, columns.counters),
            *(self._found, ended.t_n, ended.pulled, self._checkpoint, mark[kernel.N_ENDED], kept),
        )
        up.forget(free[kernel.UP])
        down.forget(free[kernel.DOWN])

    def _close(self, unusual: dict[int, Payload] | Exception | None, sender: int) -> None:
        """Close the round or the buffer, or answer the last message as the core does, if what it should get is `unusual`."""
        state, queue, server = self._core.state, self._queue, self._core.server
        queue.events -= 1  # until it is over
        if unusual is not None:
            hear(state.rounds, [sender], 1, self._synchronous)
        if isinstance(unusual, Exception):
            raise unusual
        if unusual is not None:
            effects = server.reply(state, [sender], unusual, queue.time)
        else:
            together = self._synchronous or self._half.is_joint
            effects = self._answer_each() if together else server.settle(state, queue.time)
        for effect in effects:
            assert isinstance(effect, After)
            queue.push(queue.time + effect.delay, effect.event)
        queue.events += 1

    def _answer_each(self) -> list[Any]:
        """Answer all that have reported, in columns."""
        state, queue, columns, server = self._core.state, self._queue, self._columns, self._core.server
        rounds, now = state.rounds, queue.time
        if not self._core.exchange.should_close(rounds) and not rounds.is_overdue:
            return []
        recipients, number = recipients_of(rounds, self._synchronous), rounds.number
        numbers, payloads = np.array(recipients, np.int64), dict[int, Payload]()
        answers: Columns | list[Payload]
        if self._half.is_joint:
            places, answers, state.server = self._half.broadcast(state.server, numbers, number)
            bytes_ = len(places) * int(self._rules[kernel.BYTES_DOWN])
        else:
            payloads = server.aggregate(state, recipients, now)
            places = np.flatnonzero([payloads.get(agent) is not None for agent in recipients])
            answers, bytes_ = [payloads[agent] for agent in numbers[places].tolist()], server.weigh(payloads.values())
        if self._half.sound(answers) < len(places):  # which ends the run
            if isinstance(answers, dict):
                payloads = dict(zip(numbers[places].tolist(), _rows(answers), strict=True))
            return server.reply(state, recipients, payloads, now)
        server.close(state, len(recipients), bytes_, now)
        columns.make_room(len(recipients), True)
        answered = np.zeros(len(recipients), bool)
        answered[places] = True
        columns.counters[kernel.SCHEDULED] = queue.scheduled
        slots = kernel.answer_each(
            *(columns.agents, columns.sent, columns.down.slots, columns.down.free, columns.counters, numbers, answered),
            *(self._synchronous, number, now, columns.latency),
        )
        columns.down.put(slots, answers)
        queue.scheduled = int(columns.counters[kernel.SCHEDULED])
        if self._synchronous:
            rounds.waiting.update(dict.fromkeys(recipients, number))
        return server.open(state, recipients, now) if self._synchronous else []


def _rows(payload: Columns) -> list[Payload]:
    """Return payloads one by one."""
    return [dict(zip(payload, row, strict=True)) for row in zip(*payload.values(), strict=True)]
