"""Laws of early stopping: every verdict and every promotion recomputed by brute force, from events and rows alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import mean, median

from fedbo.coordinator.environment.faults import Crash
from fedbo.stopping.stoppers import Halving, Median
from fedbo.stopping.stopping import Stopping
from tests.random_studies.laws.cost import is_last, time_of
from tests.random_studies.run_tables import NEAR, Row, RunTables

Key = tuple[int, int]  # step and point
Place = tuple[int, int]  # a bracket and a fidelity


def is_resumed(run: RunTables, stopping: Stopping, row: Row) -> bool:
    """Check whether a row is of an evaluation resumed from a pause, which the budget has counted before."""
    if row["rungs"] is None:  # it failed before its next rung
        return any(_pauses(earlier, row) for earlier in run.rows)
    first = stopping.first(run.task.streams.of(row["agent"]), row["step"], row["query"])
    levels = [level for level in stopping.brackets[first.bracket] if level <= row["fidelity"]]
    return len(row["rungs"]) < len(levels)


def _pauses(earlier: Row, row: Row) -> bool:
    """Check whether an earlier row is the pause of the same evaluation, and is remembered."""
    same = all(earlier[key] == row[key] for key in ("agent", "step", "query"))
    return same and earlier["stopped"] == "paused" and earlier["finished"] <= row["started"] and earlier["error"] is None


def stopping_early(run: RunTables) -> Iterator[str]:
    """Check that every verdict at a rung and every promotion follows from earlier rows, if no crash made an agent forget."""
    stopping = run.task.stopping
    forgets = run.suffers(Crash) or any(models.leaving == "lost" for models in run.environment.groups())
    if stopping is None or forgets or run.task.policy.retries:
        return
    values = _in_rows(run, stopping)
    yield from _reached(run)
    events = defaultdict[int, list[Row]](list)
    for event in run.of("rung", "promoted"):
        events[event["agent"]].append(event)
    for agent, lines in events.items():
        yield from _RungReplay(run, stopping, agent, values[agent]).of(lines)


def _reached(run: RunTables) -> Iterator[str]:
    """Check that rows and events agree on the fidelity of each end, which was reached unless the evaluation failed there."""
    passed, ends = dict[tuple[int, Key], int](), set[tuple[int, Key, int]]()
    for event in run.of("rung"):
        who, key, fidelity = event["agent"], (event["step"], event["query"]), event["fidelity"]
        if event["verdict"] in ("go", "pause"):
            passed[who, key] = fidelity
        if event["verdict"] != "go":
            ends.add((who, key, fidelity))
    for row in run.rows:
        who, key, fidelity = row["agent"], (row["step"], row["query"]), row["fidelity"]
        if row["error"] is not None and "time_limit" in row["error"] and fidelity > passed.get((who, key), 0):
            yield f"evaluation {key} of agent {who} is recorded at fidelity {fidelity}, and was cut off before"
        if (who, key, fidelity) not in ends:
            yield f"evaluation {key} of agent {who} ended at fidelity {fidelity}, which no event tells"


def _in_rows(run: RunTables, stopping: Stopping) -> dict[int, dict[tuple[Key, int], float]]:
    """Return for each agent the value of each evaluation at each fidelity, from the rows."""
    found = defaultdict[int, dict[tuple[Key, int], float]](dict)
    for row in run.rows:
        if row["rungs"] is not None:
            key = row["step"], row["query"]
            bracket = stopping.first(run.task.streams.of(row["agent"]), *key).bracket
            levels = [level for level in stopping.brackets[bracket] if level <= row["fidelity"]]
            found[row["agent"]] |= {(key, level): value for level, value in zip(levels[::-1], row["rungs"][::-1], strict=False)}
    return found


class _RungReplay:
    """The rungs of one agent, built line by line."""

    def __init__(self, run: RunTables, stopping: Stopping, agent: int, values: Mapping[tuple[Key, int], float]) -> None:
        self._run, self._rows = run, [row for row in run.rows if row["agent"] == agent]
        self._stopping, self._agent, self._stopper = stopping, agent, stopping.stopper
        self._streams, self._values = run.task.streams.of(agent), values
        self._rungs: dict[Place, dict[Key, float]] = defaultdict(dict)
        self._paused: dict[Key, Place] = {}
        self._learned = set[tuple[int, int, int]]()  # in this order, where several have ended

    def _bracket(self, key: Key) -> int:
        return self._stopping.first(self._streams, *key).bracket

    def of(self, lines: Iterable[Row]) -> Iterator[str]:
        """Yield the lines that do not follow."""
        due: set[Key | None] = {None}
        for line in lines:
            key, fidelity, verdict = (line["step"], line["query"]), line["fidelity"], line["verdict"]
            if line["kind"] == "promoted":
                if key not in due:
                    yield f"agent {self._agent} promoted {key} at {line['time']}, due was {due}"
                spent = time_of(row for row in self._rows if (row["step"], row["query"], row["fidelity"]) in self._learned)
                if spent > self._run.task.cost + NEAR:
                    yield f"agent {self._agent} promoted {key} at {line['time']} after {spent} of the cost"
                self._paused.pop(key, None)
                due = {None}
                continue
            if verdict != "go":  # the time of the last leg counts with its end
                self._learned.add((*key, fidelity))
            if None not in due:
                yield f"agent {self._agent} did not promote {due} before {line['time']}"
            if verdict == "failed" or (key, fidelity) not in self._values and verdict == "end":
                due = self._due() | self._none_once_spent(line["time"])  # it failed
                continue
            if (key, fidelity) not in self._values:
                return  # under way when the run ended: no row has its values
            wanted = self._reach(key, fidelity)
            if verdict not in wanted:
                yield f"agent {self._agent}: {verdict} of {key} at fidelity {fidelity}, where {wanted} follows"
            due = {None} if verdict == "go" else self._due() | self._none_once_spent(line["time"])

    def _none_once_spent(self, now: float) -> set[Key | None]:
        """Return that nothing need be promoted, if the agent has spent the budget's cost or ends with its last decision."""
        over = time_of(row for row in self._rows if row["finished"] <= now + NEAR) >= self._run.task.cost - NEAR
        return {None} if over or any(is_last(self._run, row) for row in self._rows) else set()

    def _reach(self, key: Key, fidelity: int) -> set[str]:
        """Record a value at a rung and return its verdict, or both verdicts if they depend on the order of two equal values."""
        place, value = (self._bracket(key), fidelity), self._values[key, fidelity]
        self._rungs[place][key] = value
        if fidelity == self._stopping.largest:
            return {"end"}
        stopper = self._stopper
        if isinstance(stopper, Median):
            return {self._median(place, key, stopper.others)}
        assert isinstance(stopper, Halving)
        if stopper.variant == "promote":
            self._paused[key] = place
            return {"pause"}
        better = sum(other > value for other in self._rungs[place].values())
        return {"go" if not better or better < len(self._rungs[place]) // stopper.reduction else "stop"}

    def _median(self, place: Place, key: Key, least: int) -> str:
        """Compare the best of an evaluation with the median of the others' means."""

        def so_far(one: Key) -> list[float]:
            return [values[one] for (bracket, level), values in self._rungs.items() if level <= place[1] and one in values]

        others = [mean(so_far(one)) for one in self._rungs[place] if one != key]
        return "stop" if len(others) >= least and max(so_far(key)) < median(others) else "go"

    def _due(self) -> set[Key | None]:
        """Return the due promotion: the first, from the top, with fewer better ones than a share of its rung (Alg. 2)."""
        stopper = self._stopper
        if not isinstance(stopper, Halving) or stopper.variant != "promote":
            return {None}
        for place in sorted(self._rungs, key=lambda one: (-one[1], one[0])):
            values = list(self._rungs[place].items())
            fit = []
            for number, (key, value) in enumerate(values):
                before = sum(other > value or (other == value and turn < number) for turn, (_, other) in enumerate(values))
                if before < len(values) // stopper.reduction and self._paused.get(key) == place:
                    fit.append((before, key))
            if fit:
                return {min(fit)[1]}
        return {None}
