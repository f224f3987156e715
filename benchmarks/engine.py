"""Events per second of the engine with a free objective, against SimPy on the same model in the same run.

The model: N agents, each in a loop of a log-normal evaluation, a message to a server, its answer. Durations are drawn in the
same way on both sides, and both must end at the same virtual time after the same number of messages, which is checked.

    python benchmarks/engine.py [--agents 100] [--iterations 500] [--repeats 5]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Generator, Sequence
from statistics import median
from typing import Any

import numpy as np
import simpy

from fedbo.actors.columns import StepReports, StepRequests, joint_reports
from fedbo.actors.hosts import Hosts
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task
from fedbo.algorithms.base import AnswerColumns, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.random import Random
from fedbo.algorithms.streams import Numbers, Streams
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.timing import Constant, Lognormal
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Immediate
from fedbo.objectives.functions import Quadratic

LATENCY = 0.05
MESSAGE: Payload = {"omega": np.zeros(1)}


class Talkative(Random):
    """An algorithm that does nothing but send and answer."""

    def sends(self, step: int) -> bool:
        return step > 0

    def upload(self, problem: Problem) -> Declaration | None:
        return {"omega": Field((1,))}

    def download(self, problem: Problem) -> Declaration | None:
        return {"omega": Field((1,))}

    def broadcast(self, state: Any, recipients: Sequence[int], worth: Any, streams: Streams) -> tuple[dict[int, Payload], Any]:
        return dict.fromkeys(recipients, MESSAGE), state

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        return state

    is_joint = True

    def answer_each(self, state: Any, senders: Numbers, payload: Any, worth: Any, occasions: Any, streams: Streams) -> Any:
        count = len(occasions.recipients)
        return AnswerColumns(np.arange(count), _messages(count)), state


def _messages(count: int) -> dict[str, Any]:
    return {name: np.zeros((count, *array.shape)) for name, array in MESSAGE.items()}


class FreeHosts(Hosts):
    """Agents whose work costs nothing."""

    def __init__(self, agents: int) -> None:
        self._steps, self._leases = np.zeros(agents, np.int64), np.zeros(agents, np.int64)

    def submit(self, order: StepRequest) -> None:
        self._steps[order.agent], self._leases[order.agent] = order.step, order.lease

    def submit_each(self, requests: StepRequests) -> None:
        self._steps[requests.agent], self._leases[requests.agent] = requests.step, requests.lease

    def report(self, agent: int) -> StepReport:
        step, lease = int(self._steps[agent]), int(self._leases[agent])
        return StepReport(agent, step, 1 if step else 0, MESSAGE if step else None, lease)

    def results(self, agents: Numbers) -> StepReports | list[StepReport]:
        if not self._steps[agents].all():  # nothing is evaluated or sent in step 0
            return joint_reports([self.report(agent) for agent in agents.tolist()])
        none = np.zeros(len(agents), np.int64)
        return StepReports(agents, self._steps[agents], self._leases[agents], none + 1, none, none, _messages(len(agents)))

    def commit_each(self, agents: Numbers, begun: Any, ended: Any) -> None: ...

    def decide(self, order: StepRequest) -> DecisionSize:
        return DecisionSize(1)

    def commit(self, agent: int, times: tuple[float, ...]) -> None: ...

    def flush(self, ends: Callable[[], dict[int, float]] = dict) -> None: ...

    def best(self) -> dict[int, float]:
        return {}

    def best_values(self) -> dict[int, float | None]:
        return {}

    def snapshot(self, number: int, whole: bool) -> None: ...

    def written(self, wait: bool = False) -> dict[str, str]:
        return {}

    def finish(self, number: int, kind: str = "") -> dict[str, str]:
        return {}


def with_fedbo(agents: int, iterations: int) -> tuple[float, int, float]:
    """Run the model; give seconds, events and the last time."""
    problem = Problem(1, agents, tuple(range(agents)), 0, iterations)
    world = Environment(AgentModels(evaluation=Lognormal(1.0, 1.0), latency=Constant(LATENCY)))
    core = Core(Task(Quadratic(agents=agents), Talkative(), problem, Streams(1)), Immediate(), world)
    records, agenda = [], EventQueue()
    begun = time.process_time()
    run_virtual(core, FreeHosts(agents), RunHooks(records.extend, in_columns=True), agenda)
    return time.process_time() - begun, agenda.events, agenda.time


def with_simpy(agents: int, iterations: int) -> tuple[float, int, float]:
    """Run the same model as SimPy processes, with an event log of the same length."""
    environment = simpy.Environment()
    lengths = durations(lambda agent: Lognormal(1.0, 1.0), "evaluation time", Streams(1))
    log: list[tuple[float, str, int, int, int, str]] = []
    inbox: list[list[Payload]] = [[] for _ in range(agents)]
    arrivals = 0

    def message(agent: int, step: int) -> Generator[Any, Any, None]:
        nonlocal arrivals
        yield environment.timeout(LATENCY)
        arrivals += 1
        log.append((environment.now, "arrived", agent, step, 8, ""))
        yield environment.timeout(LATENCY)
        inbox[agent].append(MESSAGE)
        log.append((environment.now, "delivered", agent, step, 8, ""))

    def agent(number: int) -> Generator[Any, Any, None]:
        for step in range(1, iterations + 1):
            inbox[number].clear()
            log.append((environment.now, "started", number, step, 0, ""))
            yield environment.timeout(lengths(number, step - 1))
            log.append((environment.now, "finished", number, step, 0, ""))
            log.append((environment.now, "sent", number, step, 8, ""))
            environment.process(message(number, step))

    for number in range(agents):
        environment.process(agent(number))
    begun = time.process_time()
    environment.run()
    assert arrivals == agents * iterations
    return time.process_time() - begun, 3 * agents * iterations, environment.now


def main() -> None:
    """Print the two side by side, and the ratio pair by pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with_fedbo(10, 2)  # imports
    gc.collect()
    gc.freeze()  # neither looks through what was imported
    ours, theirs, ratios = [], [], []
    for _ in range(given.repeats):
        seconds, events, last = with_fedbo(given.agents, given.iterations)
        other, expected, end = with_simpy(given.agents, given.iterations)
        # The engine counts besides: the beginning, one for each agent's empty step 0, no answer to an agent that has ended.
        assert abs(events - expected) <= 1 + 2 * given.agents and abs(last - end) <= 2 * LATENCY + 1e-9
        ours.append(events / seconds)
        theirs.append(expected / other)
        ratios.append(ours[-1] / theirs[-1])
    print(f"{given.agents} agents, {given.iterations} iterations, {given.repeats} pairs, medians of processor time")
    print(f"fedbo {median(ours):10,.0f}")
    print(f"SimPy {median(theirs):10,.0f}")
    print(f"ratio {median(ratios):10.2f}   ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
