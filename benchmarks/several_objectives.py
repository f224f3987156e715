"""One agent alone with constraints or several objectives, beside Optuna and Ax: the best feasible value or the hypervolume.

    python benchmarks/several_objectives.py [--methods gp_ei ts random] [--seeds 5] [--out FILE]
    python benchmarks/several_objectives.py --from FILE ... [--methods gp_ei ts gpsampler]
    python benchmarks/several_objectives.py --ratios [--methods ts gp_ei fts fed_prior] [--seeds 5]

Tasks are those of the suite `pareto` whose evaluations are the same in each run, and `fcnet` with a limit in place of its
second objective. Published problems have equal agents. In tuning tasks the agent of a seed is the held-out agent of that
number, from the start again after the last, and an evaluation is the mean over the trainings. All methods begin with 10 uniform
points, the same for each. Optuna's GPSampler needs PyTorch, and `ax` Ax 1.3; both are told that evaluations have no noise.

Regret is of the best feasible value, with that of a bad value (`BAD`) before there is one; on `lcbench`, whose optimum under
the limit is not known, it is one minus the accuracy. Hypervolume is a share of that of the exact front. The last column is
processor time for a decision in milliseconds.

With `--out FILE` every result is a line of the file, and existing results are not repeated: stop at any time, and give the same
command to continue. All methods and tasks run on one seed after another. `--from FILE ...` prints the tables of such files
without running anything, of the seeds that all methods have in all tasks. Mean ranks, Friedman's test and the critical
difference of Nemenyi are over pairs of task and seed. Over means of tasks are the numbers of tasks where the first method is
better, equal or worse, and p of Wilcoxon's signed ranks with Holm's correction.

`--ratios` prints the processor time of a decision instead: in milliseconds with one objective, and how many times that
with bounds or several objectives. It is the mean over five decisions after as many further observations, one of which fits the
hyperparameters again with the usual settings, or, "between fits", over the four others. Each is the least of `--seeds`
measurements, made by turns.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
from alone import read  # noqa: E402

from fedbo.algorithms.base import Inbound, Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.algorithms.streams import Streams  # noqa: E402
from fedbo.analysis.summary import holm  # noqa: E402
from fedbo.lab.benchmarking.significance import (  # noqa: E402
    ranking,  # noqa: E402
    signed_ranks,
)
from fedbo.lab.benchmarking.suites import SUITES  # noqa: E402
from fedbo.objectives.space import from_unit  # noqa: E402
from fedbo.objectives.typed_spaces.typed import lattice_of  # noqa: E402
from fedbo.study.problems import goals, with_goals  # noqa: E402
from fedbo.study.study import load_study  # noqa: E402
from fedbo.surrogates.fronts import hypervolume, hypervolumes  # noqa: E402

INITIAL = 10
FORMULAS = ("gardner", "hernandez-lobato", "mystery", "bnh", "dtlz2")
TABLES = ("mlp", "fcnet", "fcnet-limited", "nas")
TASKS = (*FORMULAS, "lcbench", *TABLES)
AGENTS, FITS = 4, 5  # agents that share, and decisions from one fit to the next
METRICS = {"one bound": (1, 1), "two objectives": (2, 0), "two objectives, one bound": (2, 1)}
SECONDS = 150.0  # at most, in `fcnet-limited`
# Regrets that no feasible point exceeds.
BAD = {"gardner": 6.0, "hernandez-lobato": 2.0, "mystery": 35.0, "lcbench": 1.0, "fcnet-limited": 12.0}
OPTUNA = {"gpsampler": "GPSampler", "tpe": "TPESampler", "nsga2": "NSGAIISampler"}
TIMES = (20, 40, 60)
DECIMALS = 4  # of regrets and shares; closer ones are equal


class Task:
    """One problem of one agent: values to be maximised and margins, of points of the unit cube."""

    def __init__(self, name: str, seed: int) -> None:
        tables = SUITES["pareto"].task(name.removesuffix("-limited")).tables()
        if name in FORMULAS:
            tables["objective"] |= {"agents": 1, "spread": 0.0}
        if name == "fcnet-limited":
            tables["metric"] = [{"name": "log10 val_loss", "mode": "min"}, {"name": "seconds", "at_most": SECONDS}]
        if name in TABLES:
            tables["objective"]["noisy"] = False
        study = load_study({"study": {"name": name}, "algorithm": [{"name": "random"}], **tables})
        federation, found, rng = study.federation(), goals(study), np.random.default_rng(0)
        assert found is not None
        self.name, self.goals, self.parameters = name, found, federation.parameters
        self.objective: Any = federation.objective(seed % federation.n_agents, rng, rng)
        self.space, self.dim = lattice_of(federation), len(self.parameters)
        self.references = np.array(found.references if found.several else ())
        plain = Problem(self.dim, 1, (0,), INITIAL, 50, agent=0, lattice=self.space)
        self.problem = with_goals(study, plain)
        self.best = 1.0 if name == "lcbench" else self._best()

    def _best(self) -> float:
        """Return the hypervolume of the exact front, or the largest feasible value."""
        known = {name: np.asarray(column) for name, column in self.objective.outcomes().items()}
        values = np.stack([goal.sign * known[goal.name] for goal in self.goals.objectives], axis=-1)
        if self.goals.several:
            return hypervolume(values, self.references)
        return float(values[known["seconds"] <= SECONDS].max() if self.name == "fcnet-limited" else values.max())

    def settled(self, u: np.ndarray) -> np.ndarray:
        """Return the point `(d,)` of the unit cube that is evaluated in place of u."""
        return u if self.space is None else np.asarray(self.space.project(u[None])[0])

    def first(self, seed: int, step: int) -> np.ndarray:
        """Return an initial point."""
        return self.settled(np.random.default_rng([seed, step]).random(self.dim))

    def at(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        outcome = self.objective.measure(from_unit(self.parameters, u), np.random.default_rng(0))
        return self.goals.values(outcome), self.goals.margins(outcome)

    def figures(self, values: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return regret or share of the hypervolume after each evaluation."""
        feasible = (margins >= 0.0).all(axis=1)
        if self.goals.several:
            known = np.where(feasible[:, None], values, np.nan)
            return hypervolumes(known, self.references) / self.best
        return np.asarray(np.minimum.accumulate(np.where(feasible, self.best - values[:, 0], BAD[self.name])))


@cache
def task_of(name: str, seed: int) -> Task:
    """Return a task, the last ones from memory."""
    return Task(name, seed)


Told = list[tuple[np.ndarray, np.ndarray]]


def run_ours(name: str, task: Task, seed: int, count: int) -> tuple[Told, float]:
    """Return values and margins of each evaluation, and the processor time of all decisions."""
    method: Any = entry(name).make()
    streams = Streams(seed, 0, 0)
    state, spent, told = method.agent_init(task.problem, streams), 0.0, Told()
    for step in range(count):
        x = task.first(seed, step)
        if step >= INITIAL:
            before = process_time()
            decision, state = method.ask(state, (), streams.at(step))
            x, spent = task.settled(decision.x[0]), spent + process_time() - before
        told.append(task.at(x))
        values, margins = (part[None] for part in told[-1])
        state = method.tell_outcomes(state, x[None], values, margins)
    return told, spent


def run_random(name: str, task: Task, seed: int, count: int) -> tuple[Told, float]:
    """Do the same for uniform points."""
    return [task.at(task.first(seed, step)) for step in range(count)], 0.0


def run_optuna(name: str, task: Task, seed: int, count: int) -> tuple[Told, float]:
    """Do the same for one of Optuna's samplers."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = getattr(optuna.samplers, OPTUNA[name])
    options: dict[str, Any] = {"n_startup_trials": INITIAL} if name != "nsga2" else {"population_size": INITIAL}
    if name == "gpsampler":
        options["deterministic_objective"] = True
    study = optuna.create_study(directions=["maximize"] * len(task.goals.objectives), sampler=kind(seed=seed, **options))
    space: dict[str, BaseDistribution] = {}
    for axis, parameter, levels, unordered in axes_of(task):
        if unordered:
            space[axis] = CategoricalDistribution(range(levels))
        elif levels:
            space[axis] = IntDistribution(int(parameter.low), int(parameter.high), parameter.log)
        else:
            space[axis] = FloatDistribution(0.0, 1.0)
    spent, told = 0.0, Told()
    for step in range(count):
        if step < INITIAL:
            study.enqueue_trial(native_of(task, task.first(seed, step)))
        before = process_time()
        trial = study.ask(space)
        x = unit_of(task, trial.params)
        spent += process_time() - before if step >= INITIAL else 0.0
        told.append(task.at(x))
        for number, margin in enumerate(told[-1][1]):
            trial.set_constraint(f"c{number}", -float(margin))
        study.tell(trial, told[-1][0].tolist())
    return told, spent


def run_ax(name: str, task: Task, seed: int, count: int) -> tuple[Told, float]:
    """Do the same for Ax."""
    from ax.api.client import Client
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    logging.getLogger("ax").setLevel(logging.ERROR)
    client, configs = Client(random_seed=seed), list[Any]()
    for axis, parameter, levels, unordered in axes_of(task):
        if unordered:
            configs.append(ChoiceParameterConfig(axis, list(range(levels)), "int", is_ordered=False))
        elif levels:
            bounds, scaling = (parameter.low, parameter.high), "log" if parameter.log else None
            configs.append(RangeParameterConfig(axis, bounds, "int", scaling=scaling))  # type: ignore[arg-type]
        else:
            configs.append(RangeParameterConfig(axis, (0.0, 1.0), "float"))
    client.configure_experiment(configs)
    names = [f"v{number}" for number in range(len(task.goals.objectives))]
    limits = [f"c{number} >= 0" for number in range(task.goals.constraints)]
    limits += [f"{each} >= {reference}" for each, reference in zip(names, task.references, strict=False)]
    client.configure_optimization(", ".join(names), limits)
    client.configure_generation_strategy("fast", initialization_budget=INITIAL, initialization_random_seed=seed)
    spent, told = 0.0, Told()
    for step in range(count):
        if step < INITIAL:
            given = native_of(task, task.first(seed, step))
            number = client.attach_trial(given)
        else:
            before = process_time()
            ((number, given),) = client.get_next_trials(1).items()
            spent += process_time() - before
        values, margins = task.at(unit_of(task, given))
        told.append((values, margins))
        found = [*zip(names, values, strict=True), *((f"c{place}", each) for place, each in enumerate(margins))]
        client.complete_trial(number, {each: (float(value), 0.0) for each, value in found})
    return told, spent


def axes_of(task: Task) -> Iterator[tuple[str, Any, int, bool]]:
    """Yield name, parameter, number of cells (0 for real numbers) and whether the cells have no order, of each axis."""
    levels = (0,) * task.dim if task.space is None else task.space.levels
    unordered = () if task.space is None else task.space.unordered
    for axis, parameter in enumerate(task.parameters):
        yield f"x{axis}", parameter, levels[axis], axis in unordered


def native_of(task: Task, u: np.ndarray) -> dict[str, Any]:
    """Return a point of the unit cube in the terms of other libraries: whole numbers are native, others in [0, 1]."""
    native = from_unit(task.parameters, u)
    return {axis: int(native[k]) if levels else float(u[k]) for k, (axis, _, levels, _) in enumerate(axes_of(task))}


def unit_of(task: Task, given: Any) -> np.ndarray:
    """Return the point `(d,)` of the unit cube."""
    u = np.array([float(given[axis]) for axis, *_ in axes_of(task)])
    for k, (_, parameter, levels, _) in enumerate(axes_of(task)):
        if levels:
            assert task.space is not None
            u[k] = task.space.centres(k)[int(u[k] - parameter.low)]
    return task.settled(u)


class Decisions:
    """One of `AGENTS` agents with n observations of smooth functions and, if its method shares, the messages of the others."""

    def __init__(self, name: str, n: int, dim: int, counts: tuple[int, int]) -> None:
        self.method: Any = entry(name).make()
        self.counts, self.dim, every = counts, dim, tuple(range(AGENTS))
        references = (-9.0,) * counts[0] if counts[0] > 1 else ()
        problems = [
            Problem(dim, AGENTS, every, n, 9, agent=k, objectives=counts[0], constraints=counts[1], references=references)
            for k in every
        ]
        states = [self.method.agent_init(problem, Streams(3, k, 0)) for k, problem in enumerate(problems)]
        states = [self.told(state, np.random.default_rng([1, k]).random((n, dim)), k) for k, state in enumerate(states)]
        self.inbox = self.messages(problems[0], states) if self.method.upload(problems[0]) else ()
        self.state = self.method.ask(states[0], self.inbox, Streams(3, 0, 0).at(1))[1]

    def told(self, state: Any, x: np.ndarray, agent: int) -> Any:
        values = np.stack(
            [np.sin(5 * x + k).sum(axis=1) - ((x - 0.3 * k - 0.02 * agent) ** 2).sum(axis=1) for k in range(4)], -1
        )
        m, c = self.counts
        if m + c == 1:
            return self.method.tell(state, x, values[:, 0])
        return self.method.tell_outcomes(state, x, values[:, :m], values[:, 4 - c :])

    def messages(self, problem: Problem, states: list[Any]) -> tuple[Inbound, ...]:
        server = self.method.server_init(problem)
        for agent, state in enumerate(states):
            payload = self.method.outbox(state, Streams(3, agent, 0).at(1))[0]
            server = self.method.receive(server, Inbound(agent, 1, 0.0, payload), 0.0)
        answers = self.method.broadcast(server, [0], np.ones(AGENTS), Streams(3, 0, 0).at(1))[0]
        return (Inbound(-1, 1, 0.0, answers[0]),)

    def times(self) -> np.ndarray:
        """Return the processor time of a decision, the mean of five and of those between fits."""
        state, inbox, spent = self.state, self.inbox, []
        for step in range(FITS):
            state = self.told(state, np.random.default_rng([2, step]).random((1, self.dim)), 0)
            before = process_time()
            state, inbox = self.method.ask(state, inbox, Streams(3, 0, 0).at(2 + step))[1], ()
            spent.append(process_time() - before)
        return np.array([np.mean(spent), np.mean(spent[:-1])])


def print_ratios(methods: list[str], repeats: int) -> None:
    """Print the ratios of decision times, of the mean and, in brackets, between fits."""
    print(f"| method | n, inputs | one objective, ms | {' | '.join(METRICS)} |\n|---|---|---|{'---|' * len(METRICS)}")
    for name in methods:
        for n, dim in ((50, 2), (100, 4)):
            each = [Decisions(name, n, dim, counts) for counts in ((1, 0), *METRICS.values())]
            least = np.min([[one.times() for one in each] for _ in range(repeats)], axis=0)
            cells = " | ".join(f"{mean:.1f} ({between:.1f})" for mean, between in least[1:] / least[0])
            print(f"| `{name}` | {n}, {dim} | {1e3 * least[0, 0]:.1f} ({1e3 * least[0, 1]:.1f}) | {cells} |", flush=True)


def records(names: list[str], methods: list[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield existing results and run the rest: every method on every task, one seed after another."""
    there = {_key(one): one for one in read(given.out)} if given.out and given.out.exists() else {}
    for seed in range(given.seeds):
        for name, method in ((name, method) for name in names for method in methods):
            if (name, method, seed) in there:
                yield there[name, method, seed]
                continue
            run = {"random": run_random, "ax": run_ax, **dict.fromkeys(OPTUNA, run_optuna)}.get(method, run_ours)
            task = task_of(name, seed)
            told, spent = run(method, task, seed, given.evaluations)
            figures = task.figures(*(np.array(part) for part in zip(*told, strict=True)))
            ms = 1e3 * spent / (given.evaluations - INITIAL)
            one = {"task": name, "method": method, "seed": seed, "figures": figures.tolist(), "ms": ms}
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(one) + "\n")
            yield one


def _key(one: dict[str, Any]) -> tuple[str, str, int]:
    return one["task"], one["method"], one["seed"]


def print_tables(found: dict[tuple[str, str, int], dict[str, Any]], methods: list[str], given: argparse.Namespace) -> None:
    """Print a table of the tasks after some numbers of evaluations, then the ranks, and the tests of the first method."""
    present = {task for task, _, _ in found}
    names = [name for name in given.tasks if name in present]
    there = [seed for seed in range(given.seeds) if all((name, each, seed) in found for name in names for each in methods)]
    times, rows = [t for t in TIMES if t <= given.evaluations], list[np.ndarray]()
    heads = "".join(f" `{each}` |" for each in methods)
    each_seed = [[[found[name, each, seed]["figures"] for each in methods] for seed in there] for name in names]
    print(f"Seeds: {', '.join(map(str, there))}.")
    for t in times:
        figures = np.array([[[series[t - 1] for series in row] for row in seeds] for seeds in each_seed]).round(DECIMALS)
        print(f"\n| t = {t} |{heads}\n|---|{'---|' * len(methods)}")
        for name, values in zip(names, figures, strict=True):
            means = values.mean(axis=0)
            best = means.min() if name in BAD else means.max()
            spread = values.std(axis=0, ddof=1) if len(there) > 1 else np.zeros(len(methods))
            cells = [f"{mean:.3f}" + f" ± {sd:.3f}" * (len(there) > 1) for mean, sd in zip(means, spread, strict=True)]
            cells = [f"**{cell}**" if mean == best else cell for cell, mean in zip(cells, means, strict=True)]
            print(f"| {name}, {'regret' if name in BAD else 'hypervolume'} | {' | '.join(cells)} |")
        rows.append(figures * np.array([-1.0 if name in BAD else 1.0 for name in names])[:, None, None])
    if len(methods) > 1:
        print_ranks(rows, times, methods, [np.mean([found[key]["ms"] for key in found if key[1] == each]) for each in methods])


def print_ranks(rows: list[np.ndarray], times: list[int], methods: list[str], ms: list[Any]) -> None:
    """Print mean ranks at each time, and tests at the last, of the figures `(tasks, seeds, methods)`; larger is better."""
    ranks = [ranking(methods, one.reshape(-1, len(methods))) for one in rows]
    means = rows[-1].mean(axis=1)
    apart = (means[:, :1] - means) / np.maximum(np.ptp(means, axis=1, keepdims=True), 1e-12)
    chances = ["", *(f"{chance:.3f}" for chance in holm([signed_ranks(column) for column in apart.T[1:]]))]
    print(
        f"\nFriedman's p {ranks[-1].p:.2g} at t = {times[-1]}; mean ranks that differ by {ranks[-1].critical:.2f} differ at .05"
    )
    print(f"(Nemenyi).\n\n| mean rank |{''.join(f' t = {t} |' for t in times)} `{methods[0]}` better, equal, worse | p | ms |")
    print(f"|---|{'---|' * (len(times) + 3)}")
    for place in ranks[-1].order:
        won = ", ".join(str(int((np.sign(apart[:, place]) == sign).sum())) for sign in (1, 0, -1)) if place else ""
        cells = "".join(f" {one.mean[place]:.2f} |" for one in ranks)
        print(f"| `{methods[place]}` |{cells} {won} | {chances[place]} | {ms[place]:.0f} |")


def main() -> None:
    """Print one table for each task and the ranks, or that of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", nargs="+", type=Path, dest="files", default=[])
    parser.add_argument("--ratios", action="store_true", help="print how decision times grow with the metrics")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.ratios:
        return print_ratios(given.methods or ["ts", "gp_ei", "fts", "fed_prior"], given.seeds)
    methods = given.methods or ["gp_ei", "ts", "random", *OPTUNA, "ax"]
    found = [one for file in given.files for one in read(file)] or list(records(given.tasks, methods, given))
    print_tables({_key(one): one for one in found}, methods, given)


if __name__ == "__main__":
    main()
