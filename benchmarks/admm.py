"""Acceptance test of ADMM: how often it finds the known joint optima, over many seeds.

Run `python benchmarks/admm.py --seeds 20`. Agents and coordinator are those of `fedbo.algorithms.admm.admm`, in a loop that
asks every agent once in each round; for asynchronous rounds only some of their messages arrive.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from fedbo.algorithms.base import Inbound, Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.algorithms.streams import COORDINATOR, Streams  # noqa: E402
from fedbo.objectives.base import Federation  # noqa: E402
from fedbo.objectives.coupled.admm_toys import ADMMToy, Plants  # noqa: E402
from fedbo.objectives.space import from_unit  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.objectives.coupled.joint_optima import plants_allocation, plants_consensus  # noqa: E402

Array = npt.NDArray[np.float64]
Arrives = Callable[[int, int, np.random.Generator], int]


class Trace(NamedTuple):
    """What a run left, round by round: iterates `(T, N, d)`, what the answers said, and every agent's duals `(T, N, m)`."""

    iterates: Array
    answers: list[dict[str, Any]]
    duals: Array
    evaluations: int
    agreed: Array
    seconds: float


def at_once(agent: int, round_number: int, rng: np.random.Generator) -> int:
    """Let every message arrive in its own round."""
    return 0


def run(
    federation: Federation,
    name: str,
    seed: int,
    iterations: int,
    initial: int = 1,
    arrives: Arrives = at_once,
    rounds: int | None = None,
    **settings: Any,
) -> Trace:
    """Carry one run out; `arrives` says how many rounds late a message is. An agent that is not answered stands still.

    Each agent makes `iterations` decisions, as far as it gets in so many `rounds`: as many, if nothing is said.
    """
    parameters = federation.parameters
    corners = {"low": tuple(p.low for p in parameters), "high": tuple(p.high for p in parameters)}
    algorithm = entry(name).make(settings.pop("preset", None), **{**corners, **settings})
    n, streams = federation.n_agents, Streams(seed)
    problem = Problem(len(parameters), n, tuple(range(n)), initial, iterations)
    algorithm.upload(problem)
    objectives = [federation.objective(i, streams.shared("objective"), streams.of(i).rng("objective")) for i in range(n)]
    states = [algorithm.agent_init(dataclasses.replace(problem, agent=i), streams.of(i)) for i in range(n)]
    server, luck = algorithm.server_init(problem), np.random.default_rng((seed, 77))
    inbox: list[list[Inbound]] = [[] for _ in range(n)]
    step, due = [0] * n, [0] * n  # due: the round in which an agent's message arrives; it stands still until then
    waiting: dict[int, Any] = {}
    iterates, duals, answers, evaluations, seconds = [], [], [], 0, 0.0
    agreed = np.full((n, len(parameters)), np.nan)
    for number in range((rounds or iterations) + 1):
        for i in range(n):
            if i in waiting or step[i] > iterations:
                continue
            own = streams.of(i).at(step[i])
            if number == 0:
                uniform = own.rng("initial points").random((initial, problem.dim))
                x = algorithm.initial_points(dataclasses.replace(problem, agent=i), uniform)
            else:
                begun = process_time()
                decision, states[i] = algorithm.ask(states[i], tuple(inbox[i]), own)
                seconds += process_time() - begun
                inbox[i], x = [], decision.x
                if decision.origin == "agreed":
                    agreed[i] = from_unit(parameters, x)[0]
            if len(x):
                z = from_unit(parameters, x)
                y = np.array([objectives[i].evaluate(point, own.rng(f"noise {k}")) for k, point in enumerate(z)])
                states[i] = algorithm.tell(states[i], x, y)
                evaluations += len(x) * (number > 0)
            payload, states[i] = algorithm.outbox(states[i], own)
            waiting[i] = payload
            due[i] = number + (arrives(i, number, luck) if number else 0)
            step[i] += 1
        heard = [i for i in waiting if due[i] <= number]
        for i in heard:
            if waiting[i] is not None:
                server = algorithm.receive(server, Inbound(i, step[i], 0.0, waiting[i]), float(number))
            del waiting[i]
        told, server = algorithm.broadcast(server, heard, np.ones(n), streams.of(COORDINATOR).at(number))
        for i, payload in told.items():
            inbox[i].append(Inbound(COORDINATOR, number, 0.0, payload))
            answers.append({"round": number, **payload})
        iterates.append([state.z for state in states])
        duals.append([state.multiplier for state in states])
    return Trace(np.array(iterates), answers, np.array(duals), evaluations, agreed, seconds)


def tries(federation: Federation, seeds: int, measure: Callable[[Trace], Sequence[float]], **settings: Any) -> Array:
    """Measure a run for each seed, `(seeds, k)`."""
    return np.array([measure(run(federation, seed=seed, **settings)) for seed in range(seeds)])


class Case(NamedTuple):
    """One acceptance test: the problem, how it is run, how near to the optimum counts, and how often that is needed."""

    name: str
    problem: str
    iterations: int
    rho: float
    within: float
    needed: float
    agree: float = 1e-2
    noise: float = 0.0
    arrives: Arrives = at_once
    rounds: int | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012  (a named tuple's defaults are shared, and nobody writes to this one)


def by_coin(agent: int, number: int, rng: np.random.Generator) -> int:
    """Let an agent answer in each round with probability 1/2."""
    return int(rng.geometric(0.5)) - 1


def up_to_three(agent: int, number: int, rng: np.random.Generator) -> int:
    """Let a message come 0 to 3 rounds late."""
    return int(rng.integers(0, 4))


CASES = (
    Case("A1 consensus of the text", "consensus", 30, 2.0, 1e-2, 0.95),
    Case("A2 consensus as it was run", "shifted", 40, 1.0, 1e-2, 0.95),
    Case("A2 stretch, rho 2", "shifted", 40, 2.0, 1e-2, 0.95),
    Case("A2 stretch, rho 5", "shifted", 40, 5.0, 1e-2, 0.95),
    Case("A3 allocation", "allocation", 40, 2.0, 2e-2, 0.95),
    Case("A3 stretch, 1e-2", "allocation", 40, 2.0, 1e-2, 0.95),
    Case("A4 consensus, noise sd .05", "consensus", 60, 2.0, 5e-2, 0.95, noise=0.0025),
    Case("A4 allocation, noise sd .05", "allocation", 60, 2.0, 5e-2, 0.95, agree=5e-2, noise=0.0025),
    Case("A5 half of the answers", "consensus", 30, 2.0, 1e-2, 0.9, arrives=by_coin, rounds=60),
    Case("A5 up to 3 rounds late", "consensus", 30, 2.0, 1e-2, 0.9, arrives=up_to_three, rounds=60),
)


class Verdict(NamedTuple):
    """What one run of a case came to: whether iterates, and the agreed point, are near enough, and A6."""

    iterate: bool
    agreed: bool
    error: float
    price: bool
    balance: float
    evaluations: int


def judge(case: Case, seed: int, **settings: Any) -> Verdict:
    """Run a case with one seed."""
    federation = ADMMToy(case.problem, noise=case.noise)  # type: ignore[arg-type]
    share = case.problem == "allocation"
    name = "admm_allocation" if share else "admm_consensus"
    given = {"rho": case.rho, **case.settings, **settings}
    trace = run(federation, name, seed, case.iterations, arrives=case.arrives, rounds=case.rounds, **given)
    best = federation.joint_optimum[:, 0]
    last = trace.iterates[-2, :, 0]
    apart = abs(last.sum()) if share else abs(last[0] - last[1])
    off = last - best if share else last.mean() - best[0]
    dual = trace.duals[-1, :, 0]
    wanted = best[0] - (0.5 if case.problem == "shifted" else 0.0)  # the slope of the second agent's function
    return Verdict(
        iterate=bool(np.abs(off).max() <= case.within and apart <= case.agree),
        agreed=bool(np.abs(trace.agreed[:, 0] - best).max() <= case.within),
        error=float(np.abs(trace.agreed[:, 0] - best).max()),
        price=bool(abs(dual[0] - wanted) <= 0.05),
        balance=0.0 if share else float(np.abs(trace.duals[1:].sum(axis=1)).max()),
        evaluations=trace.evaluations // federation.n_agents,
    )


SIZES = ((2, 1), (5, 1), (10, 1), (20, 1), (2, 2), (5, 2), (10, 2), (20, 2), (2, 3), (5, 3), (10, 3), (20, 3))


def instance(agents: int, dimensions: int, share: bool, seed: int, iterations: int, **settings: Any) -> tuple[float, float]:
    """Solve one random convex problem; give the largest error of any agent's answer, and how far their sum is off."""
    plants, streams = Plants(agents=agents, dimensions=dimensions), Streams(seed)
    objectives = [plants.objective(i, streams.shared("objective"), np.random.default_rng(0)) for i in range(agents)]
    total = np.full(dimensions, 0.35 * agents)
    given = {"rho": 3.0, **({"total": tuple(total)} if share else {}), **settings}
    trace = run(plants, "admm_allocation" if share else "admm_consensus", seed, iterations, initial=2 + dimensions, **given)
    best = plants_allocation(objectives, total) if share else plants_consensus(objectives)
    return float(np.abs(trace.agreed - best).max()), float(np.abs(trace.agreed.sum(axis=0) - total).max()) if share else 0.0


def instances(count: int, iterations: int, settings: dict[str, Any]) -> None:
    """Print how many random convex problems of each size are solved to a hundredth of the range."""
    print(f"{'problem':<12} {'agents':>6} {'inputs':>6} {'within 1e-2':>12} {'median':>8} {'worst':>8} {'sum off by':>10}")
    good = everything = 0
    for share in (False, True):
        for agents, dimensions in SIZES:
            found = np.array([instance(agents, dimensions, share, seed, iterations, **settings) for seed in range(count)])
            near = int((found[:, 0] <= 1e-2).sum())
            good, everything = good + near, everything + count
            name = "allocation" if share else "consensus"
            print(
                f"{name:<12} {agents:>6} {dimensions:>6} {near:>9}/{count} {np.median(found[:, 0]):>8.4f} "
                f"{found[:, 0].max():>8.4f} {found[:, 1].max():>10.1e}",
                flush=True,
            )
    print(f"all: {good} of {everything}")


def decisions(settings: dict[str, Any]) -> None:
    """Print how long a decision takes with 40 observations, without the fit of hyperparameters: median and best of 15."""
    print(f"{'inputs':>6} {'median, ms':>10} {'best, ms':>10}")
    for dim in (1, 2, 3, 4, 5):
        algorithm = entry("admm_consensus").make(rho=2.0, refit=10**6, **settings)
        problem, streams = Problem(dim, 2, (0, 1), 40, 200, agent=0), Streams(0).of(0)
        plant = Plants(agents=2, dimensions=dim).objective(0, np.random.default_rng(1), np.random.default_rng(0))
        x = np.random.default_rng(0).random((40, dim))
        state = algorithm.tell(algorithm.agent_init(problem, streams), x, np.array([plant.score(point) for point in x]))
        answer = {"centre": np.full(dim, 0.4), "rho": np.ones(2), "residuals": np.zeros(2), "done": np.zeros(1)}
        _, state = algorithm.ask(state, (Inbound(COORDINATOR, 0, 0.0, answer),), streams.at(1))
        seconds = []
        for step in range(2, 17):
            begun = process_time()
            algorithm.ask(state, (), streams.at(step))
            seconds.append(process_time() - begun)
        print(f"{dim:>6} {1e3 * np.median(seconds):>10.1f} {1e3 * min(seconds):>10.1f}")


def main() -> None:
    """Print one row per acceptance test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--instances", type=int, default=0, help="solve this many random convex problems of each size instead")
    parser.add_argument("--decisions", action="store_true", help="measure the time of a decision instead")
    parser.add_argument("--iterations", type=int, default=40, help="iterations on the random problems")
    parser.add_argument("--only", default="", help="run only tests whose names have this prefix")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SETTING=VALUE", help="change a setting of the algorithms"
    )
    given = parser.parse_args()
    settings = {key: _value(text) for key, _, text in (word.partition("=") for word in given.set)}
    if given.decisions:
        decisions(settings)
        return
    if given.instances:
        instances(given.instances, given.iterations, settings)
        return
    heads = ("iterates", "agreed", "needed", "worst", "price", "sum of duals", "evaluated")
    widths = (9, 8, 7, 8, 6, 13, 10)
    print(f"{'test':<30}", *(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for case in CASES:
        if case.name.startswith(given.only):
            verdicts = [judge(case, seed, **settings) for seed in range(given.seeds)]
            print(_row(case, verdicts), flush=True)


def _row(case: Case, verdicts: list[Verdict]) -> str:
    n, count = len(verdicts), {word: sum(getattr(v, word) for v in verdicts) for word in ("iterate", "agreed", "price")}
    return (
        f"{case.name:<30} {count['iterate']:>6}/{n} {count['agreed']:>5}/{n} {int(np.ceil(case.needed * n)):>7} "
        f"{max(v.error for v in verdicts):>8.4f} {count['price']:>3}/{n} {max(v.balance for v in verdicts):>13.1e} "
        f"{np.mean([v.evaluations for v in verdicts]):>10.1f}"
    )


def _value(text: str) -> Any:
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
