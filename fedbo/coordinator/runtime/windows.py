"""Windows of a run: events of many agents that are independent of each other, processed together on columns.

A step that ends needs no event but its start, since a request to an agent is complete when it is made. So all events before the
first end of a step that starts among them form a window (conservative parallel simulation: Chandy and Misra 1979): the compiled
kernel finds their order, and what they change in the columns; reports, messages and answers pass through in that order. A round
or buffer that closes ends its window. All else is left to the core: first and last steps, failed evaluations, refused messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import Letters, StepReports, StepRequests, joint_requests, rows_of, single_reports
from fedbo.actors.hosts import Hosts, raise_if_failed
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.core import Core
from fedbo.coordinator.events import After, Event
from fedbo.coordinator.logged.columns import EventColumns
from fedbo.coordinator.messages import LARGEST, declared_size, size, varies
from fedbo.coordinator.runtime import window_kernel as kernel
from fedbo.coordinator.runtime.agent_columns import AgentColumns
from fedbo.coordinator.runtime.coordinator_half import Arrivals, CoordinatorHalf, Outcome
from fedbo.coordinator.runtime.event_queue import EventQueue
from fedbo.coordinator.runtime.mailbox import OBJECTS, Columns, Ints
from fedbo.coordinator.server import recipients_of

_MOST = 768  # events of a window, so that hosts work on other steps meanwhile


class Ended(NamedTuple):
    """Reports of the steps that end in a window, of which the first `plain` ones are plain; `t_n` and `pulled` are theirs.

    `payload` has the messages of those that send one, as columns or one by one.
    """

    plain: int
    t_n: Sequence[int] | Ints
    pulled: Sequence[int] | Ints
    payload: Columns | list[Payload]
    reports: StepReports | list[StepReport]


class Windows:
    """The windows of a run that has them."""

    def __init__(self, core: Core, hosts: Hosts, queue: EventQueue) -> None:
        rules = core.rules
        self._core, self._hosts, self._queue, self._half = core, hosts, queue, CoordinatorHalf(rules)
        self._columns = queue.columns = core.state.agents.columns = AgentColumns(core, queue)
        self._synchronous, self._k = rules.is_synchronous, getattr(rules.exchange, "k", None)
        self._at_once = not self._synchronous and self._k is None
        self._joint = type(hosts).results is not Hosts.results  # whether columns are the hosts' own way
        self._upload, self._checkpoint = rules.upload or {}, rules.task.checkpoint
        self._varies = varies(rules.upload) or varies(rules.download)
        drops_late = self._synchronous and not rules.exchange.accepts_late
        bytes_ = (declared_size(rules.upload), declared_size(rules.download))
        per_round = 1 if self._synchronous else len(rules.targets)
        self._rules = np.array([self._synchronous, self._at_once, drops_late, per_round, *bytes_, 0, 0, 0, 0])
        self._before, self._events = np.zeros(_MOST, kernel.AGENT), np.zeros(_MOST + 1, kernel.EVENT)
        self._lines, self._letters = np.zeros(3 * _MOST, kernel.LINE), np.zeros((0, 2), np.int64)
        self._reports = dict[int, StepReport]()  # of ends that were taken back

    def result(self, agent: int) -> StepReport:
        """Wait for the report of an agent's last request, for the core."""
        return raise_if_failed(self._reports.pop(agent) if agent in self._reports else self._hosts.report(agent))

    def readmit(self, event: Event) -> None:
        """Take the agent of an event that the core has processed into the columns."""
        self._columns.readmit(event)

    def take(self, until: float, most: int) -> int:
        """Process a window of at most so many events, and return their number; 0 before one of the core."""
        columns, rounds = self._columns, self._core.state.rounds
        if columns.left:
            columns.enter_all()
        first, count = columns.first, 0
        if first is not None and first[2] in columns and rounds.active and (self._synchronous or not rounds.waiting):
            count = self._plan(until, min(most, _MOST))
        if count:
            count = self._carry_out(count)
        if not count:
            columns.hand_over()
        return count

    def _plan(self, until: float, most: int) -> int:
        """Find the events of a window; return their number."""
        columns, rounds, heap, rules = self._columns, self._core.state.rounds, self._queue.heap, self._rules
        columns.make_room(_MOST)
        columns.up.reserve(_MOST)
        columns.down.reserve(_MOST if self._at_once else 0)
        if len(self._letters) < len(columns.down.slots):
            self._letters = np.zeros((len(columns.down.slots), 2), np.int64)
        limit = heap[0][:2] if heap else (np.inf, 0)
        arrivals = self._until_closing()
        rules[kernel.NUMBER :] = rounds.number, rounds.age, arrivals, most
        columns.counters[kernel.SCHEDULED] = self._queue.scheduled
        count, left = kernel.plan(
            *(columns.agents, self._before, columns.ends, columns.sent, self._events, self._lines, self._letters, columns.past),
            *(columns.up.slots, columns.down.slots, columns.up.free, columns.down.free, columns.lengths, columns.sends),
            *(columns.counters, rules, until, *limit, columns.latency),
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
        columns, events = self._columns, self._events[:count]
        kinds, slots = events["kind"], events["slot"]
        places = np.flatnonzero(kinds == kernel.FINISHED)
        try:
            ended = self._ended(events["agent"][places], columns.sends[events["step"][places]])
        except BaseException:
            self._undo(0, count)
            raise
        kept = count if ended.plain == len(places) else int(places[ended.plain])
        sending = places[: ended.plain][columns.sends[events["step"][places[: ended.plain]]]]
        if len(sending):
            columns.up.put(slots[sending], ended.payload)
        arrived = np.flatnonzero(kinds[:kept] == kernel.ARRIVED)
        heard = self._hear(events[arrived]) if len(arrived) else Outcome(self._core.state.server, 0)
        if heard.taken < len(arrived) or heard.unusual is not None:
            kept = int(arrived[heard.taken - 1]) + 1 if heard.unusual is not None else int(arrived[heard.taken])
        answered = len(heard.answers) if isinstance(heard.answers, list) else heard.taken - (heard.unusual is not None)
        if self._at_once and answered:
            columns.down.put(events["answer"][arrived[:answered]], heard.answers)
        if kept < count:
            self._undo(kept, count)
            self._closes = False
        self._keep_reports(ended, int(np.searchsorted(places, kept)), len(places))
        self._note(kept, heard, answered)
        self._note_steps(events[:kept], ended)
        self._begin(events[:kept])
        self._release(kept)
        if heard.unusual is not None or self._closes:
            self._close(heard.unusual, events["agent"].item(kept - 1))
        return kept

    def _ended(self, numbers: Ints, speaks: npt.NDArray[np.bool_]) -> Ended:
        """Wait for the reports of steps, and find those that are plain, with a message as declared where one is due."""
        known, hosts, count = self._reports, self._hosts, len(numbers)
        found: Any = []
        if count and self._joint and not known:
            found = hosts.results(numbers)
        elif count:
            found = [known.pop(number) if number in known else hosts.report(number) for number in numbers.tolist()]
        if isinstance(found, StepReports):
            if self._half.is_joint and bool((found.queries == 1).all()) and self._are_sound(found.payload, speaks):
                payload = {} if found.payload is None else found.payload
                return Ended(count, found.t_n, found.pulled, payload, found)
            found = single_reports(found)
        plain = next((place for place, one in enumerate(found) if not self._is_plain(one, bool(speaks[place]))), count)
        payloads = [one.payload for one in found[:plain] if one.payload]
        return Ended(plain, [one.t_n for one in found[:plain]], [one.pulled for one in found[:plain]], payloads, found)

    def _is_plain(self, report: StepReport, speaks: bool) -> bool:
        """Check whether a report is that of one evaluation, with a message as declared if one is due."""
        if report.queries != 1 or report.retried or report.failed or report.failure is not None:
            return False
        return speaks and not self._columns.wrong(report.payload) if report.payload else not speaks and report.payload is None

    def _are_sound(self, payload: Mapping[str, npt.NDArray[Any]] | None, speaks: npt.NDArray[np.bool_]) -> bool:
        """Check whether messages `(k, ...)` are as declared, where that is easily seen, and are those that are due."""
        if payload is None:
            return not speaks.any()
        return (
            bool(speaks.all())
            and payload.keys() == self._upload.keys()
            and all(
                array.dtype == field.dtype
                and array.shape[1:] == field.shape
                and not field.positive
                and bool(np.abs(array).max(initial=0.0) <= LARGEST)
                for field, array in ((self._upload[name], array) for name, array in payload.items())
            )
        )

    def _keep_reports(self, ended: Ended, done: int, count: int) -> None:
        """Keep the reports of ends that were taken back."""
        if done < count:
            reports = ended.reports
            rest = (
                single_reports(rows_of(reports, np.arange(done, count))) if isinstance(reports, StepReports) else reports[done:]
            )
            self._reports.update((report.agent, report) for report in rest)

    def _hear(self, events: npt.NDArray[Any]) -> Outcome:
        """Pass messages to the coordinator half, which answers each of them where that happens at once."""
        up, slots = self._columns.up, events["slot"]
        senders, steps, times = (events[name].copy() for name in ("agent", "step", "time"))
        arrivals = Arrivals(senders, steps, up.slots["sent"][slots], times, up.take(slots))
        if self._at_once:
            return self._half.answer(self._core.state.server, arrivals, self._core.state.rounds.number)
        return self._half.receive(self._core.state.server, arrivals)

    def _undo(self, kept: int, count: int) -> None:
        """Take back the planned events from number `kept` on."""
        columns = self._columns
        kernel.undo(columns.agents, self._before, columns.ends, self._events, columns.counters, kept, count)

    def _note(self, kept: int, heard: Outcome, answered: int) -> None:
        """Note in the state of the run that so many of the planned events have happened."""
        state, queue, columns, events = self._core.state, self._queue, self._columns, self._events
        state.server = heard.server
        last = events[kept]
        if heard.unusual is not None and self._at_once:  # the answer that was planned for the last message
            columns.counters[[kernel.SCHEDULED, kernel.TAIL]] -= 1
            columns.counters[kernel.DOWN] += 1
        queue.scheduled, queue.events = int(columns.counters[kernel.SCHEDULED]), queue.events + kept
        if kept:
            queue.time = events["time"].item(kept - 1)
        state.progress.note_each(kept, int(last["noted"]), float(last["noted_at"]))
        arrived = np.flatnonzero(events["kind"][:kept] == kernel.ARRIVED)
        if self._at_once and answered:
            state.rounds.close_each(events["time"].item(int(arrived[answered - 1])), answered)
        elif len(arrived) and not self._at_once:
            state.rounds.hear(events["agent"][arrived].tolist(), self._synchronous)
        lines = self._lines[: int(last["lines"])].copy()
        if self._varies:
            self._weigh(events[:kept], lines)
        self._core.rules.log.append(EventColumns(lines))

    def _weigh(self, events: npt.NDArray[Any], lines: npt.NDArray[Any]) -> None:
        """Enter the sizes of messages and answers into the lines about them."""
        up, down = self._columns.up, self._columns.down
        speaks = (events["kind"] == kernel.FINISHED) & (events["slot"] >= 0)
        for kind, box, chosen in (
            (kernel.SPOKEN, up, speaks),
            (kernel.ARRIVED, up, events["kind"] == kernel.ARRIVED),
            (kernel.DELIVERED, down, events["kind"] == kernel.DELIVERED),
        ):
            payloads = box.columns[OBJECTS][events["slot"][chosen]].tolist()
            lines["bytes"][lines["kind"] == kind] = [size(one) for one in payloads if one is not None]

    def _note_steps(self, events: npt.NDArray[Any], ended: Ended) -> None:
        """Commit the steps that have ended; note who waits for a round, and who waits no longer."""
        columns, waiting = self._columns, self._core.state.rounds.waiting
        over = events["kind"] == kernel.FINISHED
        who, count = events["agent"][over], int(over.sum())
        if count:
            agents, saved = columns.agents, events["step"][over] % self._checkpoint == 0
            agents["t_n"][who], agents["pulled"][who] = ended.t_n[:count], ended.pulled[:count]
            agents["saved_t_n"][who[saved]] = agents["t_n"][who[saved]]
            self._hosts.commit_each(who, events["begun"][over], events["time"][over])
        if self._synchronous:
            waiting.update(dict.fromkeys(events["agent"][over & (events["starts"] == 0)].tolist()))
            for agent in events["agent"][events["kind"] == kernel.DELIVERED].tolist():
                del waiting[agent]

    def _begin(self, events: npt.NDArray[Any]) -> None:
        """Request the steps that begin, with the answers that their agents have got."""
        columns, hosts = self._columns, self._hosts
        begun = events[events["starts"] > 0]
        if not len(begun):
            return
        agents, leases = begun["agent"].copy(), begun["new_lease"].copy()
        for agent in agents[begun["starts"] > 1].tolist():
            columns.draw(agent, columns.agents["next_evaluation"].item(agent))
        steps = columns.agents["step"][agents]
        speaks, letters = columns.sends[steps], self._letters[: int(self._events["letters"][len(events)])]
        slots, places = np.ascontiguousarray(letters[:, 0]), letters[:, 1]
        about, payload = columns.down.slots[slots], columns.down.take(slots)
        if self._joint and self._half.is_joint:
            own = None if len(places) == len(begun) and (places[1:] > places[:-1]).all() else places.copy()
            senders = np.full(len(slots), COORDINATOR)
            found = Letters(senders, about["number"].copy(), about["sent"].copy(), payload, own) if len(slots) else None
            hosts.submit_each(StepRequests(agents, steps, leases, speaks, found))
            return
        singles = payload[OBJECTS].tolist() if OBJECTS in payload else _rows(payload)
        inboxes = [tuple[Inbound, ...]()] * len(begun)
        for place, number, sent, one in zip(
            places.tolist(), about["number"].tolist(), about["sent"].tolist(), singles, strict=True
        ):
            inboxes[place] += (Inbound(COORDINATOR, number, sent, one),)
        requests = list(map(StepRequest, agents.tolist(), steps.tolist(), leases.tolist(), inboxes, speaks.tolist()))
        joint = joint_requests(requests) if self._joint else None
        if joint is not None:
            hosts.submit_each(joint)
            return
        for request in requests:
            hosts.submit(request)

    def _release(self, kept: int) -> None:
        """Free the slots of what was read."""
        columns = self._columns
        up, down, counters = columns.up, columns.down, columns.counters
        first_up, first_down = int(counters[kernel.UP]), int(counters[kernel.DOWN])
        kernel.release(self._before, self._events, columns.sent, down.slots, up.free, down.free, counters, kept)
        up.forget(first_up)
        down.forget(first_down)

    def _close(self, unusual: dict[int, Payload] | Exception | None, sender: int) -> None:
        """Close the round or the buffer, or answer the last message as the core does, if what it should get is `unusual`."""
        state, queue, server = self._core.state, self._queue, self._core.server
        queue.events -= 1  # until it is over
        if unusual is not None:
            state.rounds.hear([sender], self._synchronous)
        if isinstance(unusual, Exception):
            raise unusual
        if unusual is not None:
            effects = server.reply(state, [sender], unusual, queue.time)
        else:
            effects = self._answer_each() if self._half.is_joint else server.settle(state, queue.time)
        for effect in effects:
            assert isinstance(effect, After)
            queue.push(queue.time + effect.delay, effect.event)
        queue.events += 1

    def _answer_each(self) -> list[Any]:
        """Answer all that have reported, in columns."""
        state, queue, columns, server = self._core.state, self._queue, self._columns, self._core.server
        rounds, now = state.rounds, queue.time
        if not self._core.exchange.should_close(rounds) and not (rounds.deadline_passed and rounds.reported):
            return []
        recipients, number = recipients_of(rounds, self._synchronous), rounds.number
        numbers = np.array(recipients, np.int64)
        places, answers, state.server = self._half.broadcast(state.server, numbers, number)
        if self._half.sound(answers) < len(places):  # which ends the run
            return server.reply(state, recipients, dict(zip(numbers[places].tolist(), _rows(answers), strict=True)), now)
        server.close(state, len(recipients), len(places) * int(self._rules[kernel.BYTES_DOWN]), now)
        columns.make_room(len(recipients))
        columns.down.reserve(len(recipients))
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
