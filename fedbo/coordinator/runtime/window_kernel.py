"""The bookkeeping of a window of events, compiled: which events happen, in which order, and what they change in the columns.

All entries are structured arrays. What an event changes can be taken back by `undo`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fedbo.surrogates.compiled.jit import Tuple, compiled


def _dtype(integers: str, numbers: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in numbers.split()])


# An agent: `inside` the columns or not, `working` on a step or waiting, with the fields of `AgentRecord` and `AgentStep`. Its
# steps before the `final` one take place here; `accepted` and `received` are the newest of its messages and answers.
AGENT = _dtype(
    "inside working step lease final base newest_base next_evaluation accepted received", "begun length last_duration"
)
END = _dtype("number agent lease", "time")  # the end of a step: `number` is that of its scheduling
SENT = _dtype("number agent is_answer step base", "time")  # the arrival of a message, or of answer number `step`
EMPTY = 2  # `is_answer` of an answer that only ends the agent's wait
REFUSED = 3  # of a message that does not take effect
EVENT = _dtype("kind agent lease number lines scheduled noted", "time noted_at")  # of a window, with the counters before it
LINE = _dtype("kind agent step bytes staleness", "time")  # of the event log
FINISHED, ARRIVED, DELIVERED, STARTED, MESSAGE = range(5)  # kinds of lines, the first three of which are kinds of events
_AGENTS, _ENDS, _SENT, _EVENTS, _LINES = (
    numba.types.Array(numba.from_dtype(kind), 1, "C") for kind in (AGENT, END, SENT, EVENT, LINE)
)
_INT, _FLOAT, _BOOL = numba.int64, numba.float64, numba.boolean


@compiled(_INT(_ENDS, _INT, _FLOAT, _INT, _INT, _INT))
def push(ends: Any, size: int, time: float, number: int, agent: int, lease: int) -> int:
    """Add an entry to the heap of ends, which has one place more than entries; return its new size."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if ends[above].time < time or (ends[above].time == time and ends[above].number < number):
            break
        ends[place] = ends[above]
        place = above
    ends[place].time, ends[place].number, ends[place].agent, ends[place].lease = time, number, agent, lease
    return size + 1


@compiled(_INT(_ENDS, _INT))
def pop(ends: Any, size: int) -> int:
    """Remove the first entry of the heap of ends; return its new size."""
    size -= 1
    time, number = ends[size].time, ends[size].number
    place, below = 0, 1
    while below < size:
        other = below + 1
        if other < size and (
            ends[other].time < ends[below].time
            or (ends[other].time == ends[below].time and ends[other].number < ends[below].number)
        ):
            below = other
        if time < ends[below].time or (time == ends[below].time and number < ends[below].number):
            break
        ends[place] = ends[below]
        place, below = below, 2 * below + 1
    ends[place] = ends[size]
    return size


@compiled()
def _send(entry: Any, time: float, number: int, agent: int, is_answer: int, step: int, base: int) -> None:
    entry.time, entry.number, entry.agent, entry.is_answer, entry.step, entry.base = time, number, agent, is_answer, step, base


@compiled()
def _line(entry: Any, kind: int, agent: int, step: int, time: float, bytes_: int) -> None:
    entry.kind, entry.agent, entry.step, entry.time, entry.bytes, entry.staleness = kind, agent, step, time, bytes_, 0


@compiled(
    Tuple((_INT, _INT))(
        *(_AGENTS, _AGENTS, _ENDS, _INT, _SENT, _INT, _INT, _EVENTS, _LINES, _INT[:, ::1], _FLOAT[:, ::1]),
        *(_FLOAT[:, ::1], _BOOL[::1]),
        *(_FLOAT, _FLOAT, _INT, _FLOAT, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _BOOL, _BOOL, _BOOL),
    )
)
def plan(
    agents: Any,
    before: Any,
    ends: Any,
    size: int,
    sent: Any,
    head: int,
    tail: int,
    events: Any,
    lines: Any,
    told: Any,
    times: Any,
    lengths: Any,
    sends: Any,
    until: float,
    limit_time: float,
    limit_number: int,
    latency: float,
    most: int,
    scheduled: int,
    number: int,
    age: int,
    per_round: int,
    arrivals: int,
    bytes_up: int,
    bytes_down: int,
    in_rounds: bool,
    at_once: bool,
    drops_late: bool,
) -> tuple[int, int]:
    """Process events in order until one is not for a window; return their number and the new size of the heap of ends.

    No event happens at or after the first end of a step that starts in the window, the entry (`limit_time`, `limit_number`) of
    other events, or `until`, and at most `arrivals` messages arrive. `before` gets each agent as it was before the event,
    `told (most, 7)` kind, agent, step, base, lease, whether a step starts (2 if no duration is left for the next one), and the
    number of the last message that was sent, and `times (most, 2)` those of the event and of the start of the agent's step.
    """
    count = line = answers = noted = 0
    first_end, noted_at = np.inf, 0.0
    while True:
        happens = events[count]
        happens.lines, happens.scheduled, happens.noted, happens.noted_at = line, scheduled, noted, noted_at
        if count == most:
            break
        kind, time, order = -1, np.inf, 0
        if size:
            kind, time, order = FINISHED, ends[0].time, ends[0].number
        if head < tail and (sent[head].time < time or (sent[head].time == time and sent[head].number < order)):
            kind, time, order = DELIVERED if sent[head].is_answer in (1, EMPTY) else ARRIVED, sent[head].time, sent[head].number
        if kind < 0 or time > until or time >= first_end or (time, order) >= (limit_time, limit_number):
            break
        who = ends[0].agent if kind == FINISHED else sent[head].agent
        agent = agents[who]
        if not agent.inside:
            break
        starts, step, base = 0, agent.step, agent.base
        if kind == FINISHED:
            if not agent.working or agent.lease != ends[0].lease or not 0 < step < agent.final:
                break
            starts = 0 if in_rounds and sends[step] else 1
        else:
            step, base = sent[head].step, sent[head].base
            if kind == DELIVERED:
                if step <= agent.received or (in_rounds and agent.working):
                    break
                starts, base = 1 if in_rounds else 0, agent.step
            elif sent[head].is_answer == REFUSED or step <= agent.accepted or not arrivals or (drops_late and base < age):
                break
        before[count] = agent
        happens.kind, happens.agent, happens.lease, happens.number, happens.time = kind, who, agent.lease, order, time
        told[count, 0], told[count, 1], told[count, 2], told[count, 3], told[count, 4] = kind, who, step, base, agent.lease
        times[count, 0], times[count, 1] = time, agent.begun
        if kind != DELIVERED or sent[head].is_answer != EMPTY:
            _line(lines[line], kind, who, step, time, bytes_down if kind == DELIVERED else 0)
            line += 1
        if kind == FINISHED:
            size = pop(ends, size)
            agent.last_duration, agent.working = time - agent.begun, 0
            if sends[step]:
                _line(lines[line], MESSAGE, who, step, time, bytes_up)
                line += 1
                scheduled += 1
                _send(sent[tail], time + latency, scheduled, who, 0, step, base)
                tail += 1
        else:
            head += 1
        if kind == ARRIVED:
            lines[line - 1].staleness, lines[line - 1].bytes = (age - base) // per_round, bytes_up
            agent.accepted, agent.newest_base = step, base
            arrivals -= 1
            if at_once:
                scheduled += 1
                _send(sent[tail], time + latency, scheduled, who, 1, number + answers, 0)
                tail += 1
                answers += 1
                age += 1
        elif kind == DELIVERED:
            agent.received = step
        if starts:
            agent.working, agent.step, agent.lease = 1, agent.step + 1, agent.lease + 1
            agent.base, agent.begun = age, time
            agent.length = lengths[who, agent.next_evaluation % lengths.shape[1]]
            agent.next_evaluation += 1
            starts = 1 + (agent.next_evaluation % lengths.shape[1] == 0)
            _line(lines[line], STARTED, who, agent.step, time, 0)
            line += 1
            scheduled += 1
            first_end = min(first_end, time + agent.length)
            size = push(ends, size, time + agent.length, scheduled, who, agent.lease)
        told[count, 5], told[count, 6] = starts, sent[tail - 1].number if tail else 0
        count += 1
        if kind != DELIVERED or in_rounds:
            noted, noted_at = count, time
    return count, size


@compiled(_INT(_AGENTS, _AGENTS, _ENDS, _INT, _EVENTS, _INT, _INT))
def undo(agents: Any, before: Any, ends: Any, size: int, events: Any, kept: int, count: int) -> int:
    """Take back the planned events from number `kept` on; return the size of the heap of ends."""
    entries, size_before = ends[:size].copy(), size
    size = 0
    for place in range(size_before):  # without those that were scheduled since
        entry = entries[place]
        if entry.number <= events[kept].scheduled:
            size = push(ends, size, entry.time, entry.number, entry.agent, entry.lease)
    for place in range(count - 1, kept - 1, -1):
        happens = events[place]
        agents[happens.agent] = before[place]
        if happens.kind == FINISHED:
            size = push(ends, size, happens.time, happens.number, happens.agent, happens.lease)
    return size
