"""Tasks per second of packed and dedicated agents, against Flower's simulation engine on the same client in the same run.

The client does nothing: in every round it takes a message of 100 floats and returns one, and the server waits for all N. In
fedbo the client is an algorithm without decisions, packed into as many workers as there are CPUs, or with a process for each
agent. `evaluates` adds an evaluation of a free objective to every task. Checks, tables and logs are included. In Flower the
client is a ClientApp on the Ray backend with one CPU for each client and default settings. Both have started their processes
when the clock starts: rounds after the first one count, and in fedbo also the creation of all agents. Both take turns in
separate processes.

Flower needs a separate environment, since its version of Ray may differ. The script creates one in the folder for temporary
files and keeps it, or uses an interpreter with `flwr[simulation]`:

    python benchmarks/flower.py [--python ENVIRONMENT/bin/python] [--agents 10 100 1000] [--dedicated 10 100] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

FLOATS = 100  # in a message
CPUS = os.cpu_count() or 1
TASKS = {"flower": 2_000, "packed": 8_000, "evaluates": 8_000, "dedicated": 2_000}  # to count, where rounds are smaller


def rounds(engine: str, agents: int) -> int:
    """Give the number of rounds that are counted: at least two."""
    return max(2, min(50 if engine == "flower" else 1_000, TASKS[engine] // agents))


def with_flower(agents: int, count: int) -> float:
    """Give the seconds that so many rounds take in Flower; this runs in the environment that has it."""
    from flwr.app import ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    client, server, took = ClientApp(), ServerApp(), list[float]()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        (array,) = message.content["arrays"].to_numpy_ndarrays()
        return Message(RecordDict({"arrays": ArrayRecord([array])}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        while len(nodes := list(grid.get_node_ids())) < agents:
            time.sleep(0.1)
        for number in range(1 + count):
            if number == 1:
                took.append(time.perf_counter())
            record = RecordDict({"arrays": ArrayRecord([np.zeros(FLOATS)])})
            replies = list(grid.send_and_receive([Message(record, dst_node_id=node, message_type="train") for node in nodes]))
            assert len(replies) == agents and not any(reply.has_error() for reply in replies)
            assert all(reply.content["arrays"].to_numpy_ndarrays()[0].shape == (FLOATS,) for reply in replies)
        took.append(time.perf_counter())

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": CPUS}}
    run_simulation(server, client, agents, backend_config=resources)
    return took[1] - took[0]


def with_fedbo(coordinator: Any, kind: str, agents: int, evaluates: bool, count: int) -> float:
    """Give the seconds that so many rounds take here."""
    from fedbo.algorithms.base import Decision, Declaration, Field, Inbound, Payload, Problem
    from fedbo.algorithms.components.local_only import LocalOnly
    from fedbo.algorithms.streams import Streams
    from fedbo.execution.jobs import runs
    from fedbo.study.study import load_study

    @dataclass(frozen=True)
    class Idle(LocalOnly):
        """A method that does nothing but send what came."""

        queries = int(evaluates)

        def sends(self, step: int) -> bool:
            return step > 0

        def upload(self, problem: Problem) -> Declaration | None:
            return {"arrays": Field((FLOATS,))}

        download = upload

        def agent_init(self, problem: Problem, streams: Streams) -> Any:
            return np.full((self.queries, problem.dim), 0.5), np.zeros(FLOATS)

        def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
            array = inbox[-1].payload["arrays"] if inbox else state[1]
            return Decision(state[0], "own"), (state[0], array)

        def tell(self, state: Any, x: Any, y: Any) -> Any:
            return state

        def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
            return {"arrays": state[1]}, state

        def broadcast(
            self, state: Any, recipients: Sequence[int], worth: Any, streams: Streams
        ) -> tuple[dict[int, Payload], Any]:
            return {agent: {"arrays": np.zeros(FLOATS)} for agent in recipients}, state

    study = {
        "study": {"name": "idle", "seed": 1},
        "objective": {"name": "quadratic", "agents": agents},
        "agents": {"initial": 0},
        "budget": {"iterations": count},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
        "exchange": {"mode": "barrier"},
        "hosting": {"kind": "dedicated"} if kind == "dedicated" else {"kind": "packed", "workers": CPUS},
    }
    with tempfile.TemporaryDirectory() as folder:
        (run,) = runs(load_study(study), Path(folder))
        begun = time.perf_counter()
        ended = coordinator.run(replace(run, task=replace(run.task, algorithm=Idle())))
        took = time.perf_counter() - begun
    assert ended is not None and ended.events > 3 * agents * count, ended
    return took


def measured(kind: str, sizes: Sequence[int]) -> dict[str, float]:
    """Give the tasks per second of each number of agents, in this process."""
    found: dict[str, float] = {}
    if kind == "flower":
        for agents in sizes:
            found[f"{agents} flower"] = agents * (count := rounds("flower", agents)) / with_flower(agents, count)
        return found
    import ray

    from fedbo.coordinator.runtime.actor import Coordinator

    ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="error")
    coordinator = Coordinator()
    for agents in sizes:
        with_fedbo(coordinator, kind, agents, True, 2)  # starts hosts, and imports
        for engine in ("packed", "evaluates") if kind == "packed" else (kind,):
            count = rounds(engine, agents)
            seconds = with_fedbo(coordinator, kind, agents, engine == "evaluates", count)
            found[f"{agents} {engine}"] = agents * count / seconds
    ray.shutdown()
    return found


def in_process(python: str, kind: str, sizes: Sequence[int]) -> dict[str, float]:
    """Give the tasks per second of each number of agents, in a process of its own."""
    surroundings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    command = [python, __file__, "--inside", kind, "--agents", *map(str, sizes)]
    told = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    if told.returncode:
        raise SystemExit(f"{kind}: {told.stderr[-3000:]}")
    return dict(json.loads(told.stdout.splitlines()[-1]))


def environment() -> str:
    """Make an environment with the newest Flower where there is none, and give its interpreter."""
    folder = Path(tempfile.gettempdir()) / f"flower-{os.getuid()}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "flwr[simulation]"], check=True)
        (folder / "ready").touch()
    return str(python)


def main() -> None:
    """Print the tasks per second of each, and the ratio pair by pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", help="interpreter with flwr[simulation]")
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--dedicated", type=int, nargs="*", default=[10], help="numbers of agents that have a process each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inside", choices=("flower", "packed", "dedicated"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(measured(given.inside, given.agents)))
        return
    python = given.python or environment()
    asked = "from importlib.metadata import version as v; print('Flower', v('flwr'), 'with Ray', v('ray'))"
    versions = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{versions}; {CPUS} cores, load {os.getloadavg()[0]:.1f}; tasks per second, medians of {given.repeats}", flush=True)
    found: list[dict[str, float]] = []
    for _ in range(given.repeats):
        one = in_process(python, "flower", sorted({*given.agents, *given.dedicated}))
        one |= in_process(sys.executable, "packed", given.agents)
        found.append(one | (in_process(sys.executable, "dedicated", given.dedicated) if given.dedicated else {}))
        print(", ".join(f"{name} {speed:,.0f}" for name, speed in found[-1].items()), flush=True)
    print(f"{'agents':>6} {'engine':10} {'tasks/s':>10} {'over Flower':>12}   least to most")
    for name in sorted(found[0], key=lambda name: int(name.split()[0])):
        agents, engine = name.split()
        ratios = [one[name] / one[f"{agents} flower"] for one in found]
        spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
        print(f"{agents:>6} {engine:10} {median(one[name] for one in found):>10,.0f} {median(ratios):>12.1f}   {spread}")


if __name__ == "__main__":
    main()
