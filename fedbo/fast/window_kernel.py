"""The bookkeeping of a window of events, compiled: which events happen, in which order, and what they change in the columns.

All entries are structured arrays. What an event changes can be taken back by `undo`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fedbo.algorithms.streams import COORDINATOR
from fedbo.surrogates.compiled.jit import Tuple, compiled


def _dtype(integers: str, numbers: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in numbers.split()])


# An agent: `inside` the columns or not, `working` on a step or waiting for the answer that it `awaits`, with the fields of
# `AgentRecord` and `AgentStep`. Its `final` step ends here where a message to a round follows. Where messages are private, an
# agent that is not `asked` sends a dummy; elsewhere all are. `accepted` and `received` are the newest of its messages and
# answers, `heard` and `told` those since it is inside, as places in `past`. Slots of what is sent: the `newest` of its
# `flights` messages on their way, the last of `letters` answers in its `inbox`, and that of `reads` answers that came with its
# step, `reading`.
AGENT = _dtype(
    "inside ended asked working step lease final base newest_base next_evaluation t_n pulled saved_t_n accepted received heard"
    " told awaits flights newest letters inbox reads reading",
    "begun length last_duration reported",
)
END = _dtype("number agent lease", "time")  # the end of a step: `number` is that of its scheduling
SENT = _dtype("number agent kind slot", "time")  # the arrival of what is in a slot
# An empty answer only ends a wait, a refused message takes no effect, and a dummy only says that its sender is done.
MESSAGE, ANSWER, EMPTY, REFUSED, DUMMY = range(5)
# What is in a slot: the step of a message, or the number of an answer, and the slot of the one before it of its agent.
SLOT = _dtype("before number base", "sent")
# An event of a window; `starts` says whether a step starts.
EVENT = _dtype("kind agent lease number slot starts", "time")
LINE = _dtype("kind agent step bytes staleness", "time")  # of the event log
# Kinds of lines; the first three are kinds of events, and so is MISSED, the answer to an agent that has ended.
FINISHED, ARRIVED, DELIVERED, STARTED, SPOKEN, DONE, MISSED, ROUND = range(8)
# What a window found, in rows: the steps that ended, the slots of their messages, the messages that were heard, the answers
# that were met, the steps that begun, the agents without durations for the next one, those that left, and the numbers of
# messages heard, senders buffered and answers given by the time that a buffer was full.
ENDED_WHO, ENDED_STEP, ENDED_PLACE, SPOKEN_SLOT, HEARD_WHO, HEARD_STEP, HEARD_SLOT, HEARD_PLACE = range(8)
MET_WHO, MET_SLOT, BEGUN_WHO, BEGUN_STEP, BEGUN_LEASE, DRAWN_WHO, LEFT_WHO = range(8, 15)
CLOSED_HEARD, CLOSED_BUFFERED, CLOSED_ANSWERED = range(15, 18)
N_FOUND = 18
ENDED_BEGUN, ENDED_AT, HEARD_SENT, HEARD_AT = range(4)
LETTER_SLOT, LETTER_PLACE, LETTER_NUMBER = range(3)  # the answers that come with a step, by its place
BUFFERED_WHO, ANSWER_WHO, ANSWER_SLOT = range(3)  # the senders in buffers, and the answers to them
# The numbers of each, with other counters, before each event; N_UNEVEN is that of steps with more or less than one answer.
N_LINES, N_ENDED, N_SPOKEN, N_HEARD, N_MET, N_BEGUN, N_DRAWN, N_LETTERS, NOTED = range(9)
SCHEDULED_BY, TAIL_AT, PAST_BY, UP_AT, DOWN_AT, N_UNEVEN, N_LEFT, N_BUFFERED, N_ANSWERED, N_CLOSED = range(9, 19)
N_MARKS = 19
# Counters: entries of the heap of ends, what is on its way from HEAD to TAIL, entries of `past`, and free slots.
COUNTERS = SIZE, HEAD, TAIL, SCHEDULED, PAST, UP, DOWN = range(7)
# Rules of a run, where FULL messages fill a buffer if there are no rounds, and TELLS if it has a line; a window's beginning.
RULES = IN_ROUNDS, FULL, DROPS_LATE, DUMMIES, TELLS, BYTES_UP, BYTES_DOWN = range(7)
BEGINS_WITH = NUMBER, ARRIVALS, ACTIVE, MESSAGES, BUFFERED, MOST, MOST_ENDS = range(7, 14)
_AGENTS, _ENDS, _SENT, _SLOTS, _EVENTS, _LINES = (
    numba.types.Array(numba.from_dtype(kind), 1, "C") for kind in (AGENT, END, SENT, SLOT, EVENT, LINE)
)
_INT, _FLOAT, _BOOL = numba.int64, numba.float64, numba.boolean
_INTS, _PAIRS, _FLOATS = _INT[::1], _INT[:, ::1], _FLOAT[:, ::1]
_READ_ONLY = numba.types.Array(_INT, 1, "C", readonly=True)
# The columns of a run: agents, ends, sent, slots up and down, those that are free up and down, counters, past, lengths, sends.
_COLUMNS = Tuple((_AGENTS, _ENDS, _SENT, _SLOTS, _SLOTS, _INTS, _INTS, _INTS, _PAIRS, _FLOATS, _BOOL[::1]))
# What a window writes: before, events, lines, marks, found, times, letters, written, answers.
_WINDOW = Tuple((_AGENTS, _EVENTS, _LINES, _PAIRS, _PAIRS, _FLOATS, _PAIRS, _FLOAT[::1], _PAIRS))


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


@compiled(_INT(_COLUMNS, _INT, _FLOAT, _INT, _INT, _INT, _INT, _FLOAT))
def send(columns: Any, kind: int, time: float, number: int, who: int, step: int, base: int, now: float) -> int:
    """Put a message or an answer number `step` on its way, to arrive at `time`; return its slot."""
    agents, _, sent, slots_up, slots_down, free_up, free_down, counters, _, _, _ = columns
    way, slots, free = (DOWN, slots_down, free_down) if kind in (ANSWER, EMPTY) else (UP, slots_up, free_up)
    counters[way] -= 1
    slot = free[counters[way]]
    into, entry = slots[slot], sent[counters[TAIL]]
    into.number, into.base, into.sent = step, base, now
    if way == UP:
        into.before = agents[who].newest
        agents[who].newest = slot
        agents[who].flights += 1
    entry.number, entry.agent, entry.kind, entry.slot, entry.time = number, who, kind, slot, time
    counters[TAIL] += 1
    return int(slot)


@compiled(_INTS(_COLUMNS, _INTS, _BOOL[::1], _INT, _FLOAT, _FLOAT))
def answer_each(columns: Any, recipients: Any, answered: Any, number: int, now: float, latency: float) -> Any:
    """Put answer `number` to each recipient on its way, an empty one to those not answered; return the slots of the former."""
    agents, counters = columns[0], columns[7]
    found, count = np.empty(len(recipients), np.int64), 0
    for place in range(len(recipients)):
        who = recipients[place]
        agents[who].awaits = number
        counters[SCHEDULED] += 1
        kind, order = ANSWER if answered[place] else EMPTY, counters[SCHEDULED]
        slot = send(columns, kind, now + latency, order, who, number, 0, now)
        if answered[place]:
            found[count] = slot
            count += 1
    return found[:count].copy()


@compiled()
def _line(entry: Any, kind: int, agent: int, step: int, time: float, bytes_: int) -> None:
    entry.kind, entry.agent, entry.step, entry.time, entry.bytes, entry.staleness = kind, agent, step, time, bytes_, 0


@compiled(Tuple((_INT, _INT))(_COLUMNS, _WINDOW, _INTS, _FLOAT, _FLOAT, _INT, _FLOAT))
def plan(
    columns: Any, window: Any, rules: Any, until: float, limit_time: float, limit_number: int, latency: float
) -> tuple[int, int]:
    """Process events in order until one is not for a window; return their number, and that of the arrivals left.

    No event happens at or after the first end of a step that starts in the window, the entry (`limit_time`, `limit_number`) of
    other events, or `until`. `before` gets each agent as it was before the event, `found` and `times` what happened, `marks`
    how much of it before each event, `letters` with their times, `written`, the answers that come with steps, and `answers`
    those to full buffers.
    """
    agents, ends, sent, slots_up, slots_down, _, _, counters, past, lengths, sends = columns
    before, events, lines, marks, found, times, letters, written, answers = window
    in_rounds, full, arrivals, active = rules[IN_ROUNDS] > 0, rules[FULL], rules[ARRIVALS], rules[ACTIVE]
    count = line = ended = spoken = heard = met = begun = drawn = letter = uneven = noted = left = closed = answered = (
        opened
    ) = 0
    first_end, number, messages, buffered = np.inf, rules[NUMBER], rules[MESSAGES], rules[BUFFERED]
    while True:
        mark = marks[count]
        mark[N_LINES], mark[N_ENDED], mark[N_SPOKEN], mark[N_HEARD], mark[N_MET] = line, ended, spoken, heard, met
        mark[N_BEGUN], mark[N_DRAWN], mark[N_LETTERS], mark[NOTED] = begun, drawn, letter, noted
        mark[SCHEDULED_BY], mark[TAIL_AT], mark[PAST_BY] = counters[SCHEDULED], counters[TAIL], counters[PAST]
        mark[UP_AT], mark[DOWN_AT], mark[N_UNEVEN], mark[N_LEFT] = counters[UP], counters[DOWN], uneven, left
        mark[N_BUFFERED], mark[N_ANSWERED], mark[N_CLOSED] = buffered, answered, closed
        if count == rules[MOST] or ended == rules[MOST_ENDS] or not arrivals:
            break
        kind, time, order, head = -1, np.inf, 0, counters[HEAD]
        if counters[SIZE]:
            kind, time, order = FINISHED, ends[0].time, ends[0].number
        if head < counters[TAIL] and (sent[head].time < time or (sent[head].time == time and sent[head].number < order)):
            kind, time, order = DELIVERED if sent[head].kind in (ANSWER, EMPTY) else ARRIVED, sent[head].time, sent[head].number
        if kind < 0 or time > until or time >= first_end or (time, order) >= (limit_time, limit_number):
            break
        who = ends[0].agent if kind == FINISHED else sent[head].agent
        agent = agents[who]
        if not agent.inside:
            break
        starts, step, base, slot = 0, agent.step, agent.base, -1
        silent = False  # whether it leaves no line: an empty answer, or a dummy
        is_last = not in_rounds and agent.ended > 0 and agent.flights == 1  # whether its agent leaves the exchange
        if kind == FINISHED:
            starts = 0 if step == agent.final or (in_rounds and sends[step]) else 1
            if not agent.working or agent.lease != ends[0].lease or step > agent.final:
                break
            if sends[step] and not agent.asked and not rules[DUMMIES]:
                break
            is_last = step == agent.final and not sends[step] and (in_rounds or agent.flights == 0)
            if is_last and in_rounds:
                break
        elif kind == DELIVERED:
            slot, silent = sent[head].slot, sent[head].kind == EMPTY
            step = slots_down[slot].number
            waits = agent.working == 0 and agent.awaits == step
            if step <= agent.received or (in_rounds and not waits) or (not in_rounds and silent):
                break
            starts, is_last, kind = 1 if in_rounds else 0, False, MISSED if agent.ended else DELIVERED
        else:
            slot = sent[head].slot
            step, base = slots_up[slot].number, slots_up[slot].base
            if sent[head].kind == REFUSED or step <= agent.accepted or (rules[DROPS_LATE] and base < number):
                break
            silent = sent[head].kind == DUMMY
            if in_rounds and agent.ended and agent.flights > 1:
                break
        if is_last and active == 1:
            break
        before[count] = agent
        happens = events[count]
        happens.kind, happens.agent, happens.lease, happens.number, happens.time = kind, who, agent.lease, order, time
        happens.slot, happens.starts = slot, starts
        if not silent:
            _line(lines[line], kind, who, step, time, rules[BYTES_DOWN] if kind in (DELIVERED, MISSED) else 0)
            line += 1
        if kind == FINISHED:
            counters[SIZE] = pop(ends, counters[SIZE])
            found[ENDED_WHO, ended], found[ENDED_STEP, ended], found[ENDED_PLACE, ended] = who, step, count
            times[ENDED_BEGUN, ended], times[ENDED_AT, ended] = agent.begun, time
            ended += 1
            agent.last_duration, agent.working, agent.awaits = time - agent.begun, 0, -1
            if sends[step]:
                way = MESSAGE if agent.asked else DUMMY
                counters[SCHEDULED] += 1
                order = counters[SCHEDULED]
                slot = send(columns, way, time + latency, order, who, step, base, time)
                found[SPOKEN_SLOT, spoken] = slot
                spoken += 1
                if agent.asked:
                    _line(lines[line], SPOKEN, who, step, time, rules[BYTES_UP])
                    line += 1
            if step == agent.final:
                agent.ended = 1
                _line(lines[line], DONE, who, step, time, 0)
                line += 1
        else:
            counters[HEAD] += 1
            past[counters[PAST], 0] = step
            past[counters[PAST], 1] = agent.heard if kind == ARRIVED else agent.told
        if kind == ARRIVED:
            if not silent:
                lines[line - 1].staleness, lines[line - 1].bytes = number - base, rules[BYTES_UP]
                agent.accepted, agent.newest_base, agent.heard, agent.reported = step, base, counters[PAST], time
            agent.flights -= 1
            arrivals -= 1
            is_last = agent.ended > 0 and agent.flights == 0
            found[HEARD_WHO, heard], found[HEARD_STEP, heard], found[HEARD_SLOT, heard] = who, step, slot
            found[HEARD_PLACE, heard], times[HEARD_SENT, heard], times[HEARD_AT, heard] = count, slots_up[slot].sent, time
            heard += 1
            if full and not agent.ended:
                answers[BUFFERED_WHO, buffered] = who
                buffered, messages = buffered + 1, messages + 1
            if full and messages == full and not agent.ended:
                reader, members, given = -1, np.sort(answers[BUFFERED_WHO, opened:buffered]), answered
                for one in members:
                    has_left = agents[one].inside and agents[one].ended and agents[one].flights == 0
                    if one == reader or has_left:
                        continue
                    reader = one
                    counters[SCHEDULED] += 1
                    order, answers[ANSWER_WHO, answered] = counters[SCHEDULED], one
                    answers[ANSWER_SLOT, answered] = send(columns, ANSWER, time + latency, order, one, number, 0, time)
                    answered += 1
                if rules[TELLS]:
                    _line(lines[line], ROUND, COORDINATOR, number, time, (answered - given) * rules[BYTES_DOWN])
                    line += 1
                found[CLOSED_HEARD, closed], found[CLOSED_BUFFERED, closed] = heard, buffered
                found[CLOSED_ANSWERED, closed] = answered
                closed, opened, messages, number = closed + 1, buffered, 0, number + 1
        elif kind in (DELIVERED, MISSED):
            agent.received, agent.told = step, counters[PAST]
            found[MET_WHO, met], found[MET_SLOT, met] = who, slot
            met += 1
            if not silent and kind == DELIVERED:
                slots_down[slot].before = agent.inbox
                agent.inbox = slot
                agent.letters += 1
        counters[PAST] += kind != FINISHED
        if is_last:
            found[LEFT_WHO, left] = who
            left, active = left + 1, active - 1
        if starts:
            agent.working, agent.step, agent.lease = 1, agent.step + 1, agent.lease + 1
            agent.base, agent.begun = number, time
            agent.length = lengths[who, agent.next_evaluation % lengths.shape[1]]
            agent.next_evaluation += 1
            if agent.next_evaluation % lengths.shape[1] == 0:
                found[DRAWN_WHO, drawn] = who
                drawn += 1
            slot = agent.inbox
            for place in range(letter + agent.letters - 1, letter - 1, -1):
                letters[LETTER_SLOT, place], letters[LETTER_PLACE, place] = slot, begun
                letters[LETTER_NUMBER, place], written[place] = slots_down[slot].number, slots_down[slot].sent
                slot = slots_down[slot].before
            letter += agent.letters
            uneven += agent.letters != 1
            agent.reading, agent.reads, agent.letters = agent.inbox, agent.letters, 0
            found[BEGUN_WHO, begun], found[BEGUN_STEP, begun], found[BEGUN_LEASE, begun] = who, agent.step, agent.lease
            begun += 1
            _line(lines[line], STARTED, who, agent.step, time, 0)
            line += 1
            counters[SCHEDULED] += 1
            first_end = min(first_end, time + agent.length)
            counters[SIZE] = push(ends, counters[SIZE], time + agent.length, counters[SCHEDULED], who, agent.lease)
        count += 1
        if kind in (FINISHED, ARRIVED) or in_rounds:
            noted = count
    return count, arrivals


@compiled(numba.void(_COLUMNS, _WINDOW, _INT, _INT))
def undo(columns: Any, window: Any, kept: int, count: int) -> None:
    """Undo the planned events from number `kept` on."""
    agents, ends, counters, before, events = columns[0], columns[1], columns[7], window[0], window[1]
    mark, size = window[3][kept], 0
    entries = ends[: counters[SIZE]].copy()
    for place in range(len(entries)):  # without those that were scheduled since
        entry = entries[place]
        if entry.number <= mark[SCHEDULED_BY]:
            size = push(ends, size, entry.time, entry.number, entry.agent, entry.lease)
    for place in range(count - 1, kept - 1, -1):
        happens = events[place]
        agents[happens.agent] = before[place]
        if happens.kind == FINISHED:
            size = push(ends, size, happens.time, happens.number, happens.agent, happens.lease)
        else:
            counters[HEAD] -= 1
    counters[SIZE], counters[SCHEDULED], counters[TAIL] = size, mark[SCHEDULED_BY], mark[TAIL_AT]
    counters[PAST], counters[UP], counters[DOWN] = mark[PAST_BY], mark[UP_AT], mark[DOWN_AT]


@compiled(numba.void(_COLUMNS, _WINDOW, _READ_ONLY, _READ_ONLY, _INT, _INT, _INT))
def settle(columns: Any, window: Any, t_n: Any, pulled: Any, checkpoint: int, ended: int, kept: int) -> None:
    """Enter the counts of evaluations after the steps that have ended, and free the slots of what was read.

    These are messages that have arrived, empty answers, answers that nobody reads, and those that came with an earlier step.
    """
    agents, _, sent, _, slots, free_up, free_down, counters, _, _, _ = columns
    before, events, found = window[0], window[1], window[4]
    for place in range(ended):
        agent = agents[found[ENDED_WHO, place]]
        agent.t_n, agent.pulled = t_n[place], pulled[place]
        if found[ENDED_STEP, place] % checkpoint == 0:
            agent.saved_t_n = agent.t_n
    head = counters[HEAD]
    for place in range(kept - 1, -1, -1):
        happens = events[place]
        if happens.kind == ARRIVED:
            free_up[counters[UP]] = happens.slot
            counters[UP] += 1
        if happens.kind != FINISHED:
            head -= 1
            if sent[head].kind == EMPTY or happens.kind == MISSED:
                free_down[counters[DOWN]] = happens.slot
                counters[DOWN] += 1
        if happens.starts:
            slot = before[place].reading
            for _ in range(before[place].reads):
                free_down[counters[DOWN]] = slot
                counters[DOWN] += 1
                slot = slots[slot].before


@compiled(_INTS(_PAIRS, _INT))
def since(past: Any, last: int) -> Any:
    """Return the numbers of entry `last` of `past` and of those before it, in ascending order."""
    count, place = 0, last
    while place >= 0:
        count, place = count + 1, past[place, 1]
    numbers = np.empty(count, np.int64)
    while last >= 0:
        count -= 1
        numbers[count], last = past[last, 0], past[last, 1]
    return numbers
