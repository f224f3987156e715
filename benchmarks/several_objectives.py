"""One agent alone with constraints or several objectives, beside Optuna: the best feasible value or the hypervolume.

    python benchmarks/several_objectives.py [--methods gp_ei ts random gpsampler tpe nsga2] [--seeds 5] [--evaluations 40]
    python benchmarks/several_objectives.py --ratios [--methods ts gp_ei fts fed_prior] [--seeds 5]

Tasks are published problems with their limits and references (`fedbo/objectives/constrained.py`), without noise and with equal
agents. All methods begin with 10 uniform points. Optuna's GPSampler needs PyTorch. Figures are means over the seeds; regret is
of the best feasible value, with that of the worst feasible point known (`WORST`) before there is one; hypervolume is a share of
that of the exact front. The last column is processor time for a decision.

`--ratios` prints the processor time of a decision instead: in milliseconds with one objective, and how many times that
with bounds or several objectives. It is the mean over five decisions after as many further observations, one of which fits the
hyperparameters again with the usual settings, or, "between fits", over the four others. Each is the least of `--seeds`
measurements, made by turns.
"""

from __future__ import annotations

import argparse
import os
import warnings
from time import process_time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

from fedbo.algorithms.base import Inbound, Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.algorithms.streams import Streams  # noqa: E402
from fedbo.objectives import constrained  # noqa: E402
from fedbo.surrogates.fronts import hypervolume, hypervolumes  # noqa: E402

INITIAL = 10
TASKS = ("gardner", "hernandez_lobato", "bnh", "dtlz2")
AGENTS, FITS = 4, 5  # agents that share, and decisions from one fit to the next
METRICS = {"one bound": (1, 1), "two objectives": (2, 0), "two objectives, one bound": (2, 1)}
WORST = {"gardner": 2.0, "hernandez_lobato": 2.0}
OPTUNA = {"gpsampler": "GPSampler", "tpe": "TPESampler", "nsga2": "NSGAIISampler"}


class Task:
    """One problem: values to be maximised and margins, of points of the unit cube."""

    def __init__(self, name: str) -> None:
        federation = constrained.FEDERATIONS[name](agents=1, spread=0.0)
        rng = np.random.default_rng(0)
        self.name, self.tables, self.objective = name, federation.metric_tables, federation.objective(0, rng, rng)
        self.dim = len(federation.parameters)
        self.low, self.high = (np.array([getattr(axis, end) for axis in federation.parameters]) for end in ("low", "high"))
        self.goals = [table for table in self.tables if "mode" in table]
        self.references = np.array([-table["reference"] for table in self.goals]) if len(self.goals) > 1 else np.empty(0)
        self.exact = self.values(self.objective.outcomes())

    def values(self, metrics: dict[str, Any]) -> np.ndarray:
        return np.stack([-np.asarray(metrics[table["name"]]) for table in self.goals], axis=-1)

    def margins(self, metrics: dict[str, Any]) -> np.ndarray:
        found = [table["at_most"] - metrics[table["name"]] for table in self.tables if "at_most" in table]
        return np.array(found + [metrics[table["name"]] - table["at_least"] for table in self.tables if "at_least" in table])

    def at(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        metrics = self.objective.measure(self.low + (self.high - self.low) * u, np.random.default_rng(0)).metrics
        return self.values(metrics), self.margins(metrics)

    def figures(self, values: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return regret or share of the hypervolume after each evaluation."""
        feasible = (margins >= 0.0).all(axis=1)
        if len(self.goals) > 1:
            known = np.where(feasible[:, None], values, np.nan)
            return hypervolumes(known, self.references) / hypervolume(self.exact, self.references)
        best = np.maximum.accumulate(np.where(feasible, values[:, 0], -WORST[self.name]))
        return np.asarray(self.exact.max() - best)


def run_ours(name: str, task: Task, seed: int, count: int) -> tuple[np.ndarray, float]:
    """Return the figures after each evaluation, and the processor time of a decision."""
    first, margins = task.at(np.full(task.dim, 0.5))
    m, c = len(first), len(margins)
    references = tuple(task.references.tolist())
    problem = Problem(task.dim, 1, (0,), INITIAL, count - INITIAL, agent=0, objectives=m, constraints=c, references=references)
    method, streams = entry(name).make(), Streams(seed, 0, 0)
    state, spent, told = method.agent_init(problem, streams), 0.0, []
    for step in range(count):
        if step < INITIAL:
            x = np.random.default_rng([seed, step]).random(task.dim)
        else:
            before = process_time()
            decision, state = method.ask(state, (), streams.at(step))
            x, spent = decision.x[0], spent + process_time() - before
        told.append(task.at(x))
        state = method.tell_outcomes(state, x[None], told[-1][0][None], told[-1][1][None])
    return task.figures(*(np.array(part) for part in zip(*told, strict=True))), spent / (count - INITIAL)


def run_random(task: Task, seed: int, count: int) -> tuple[np.ndarray, float]:
    """Do the same for uniform points."""
    told = [task.at(np.random.default_rng([seed, step]).random(task.dim)) for step in range(count)]
    return task.figures(*(np.array(part) for part in zip(*told, strict=True))), 0.0


def run_optuna(name: str, task: Task, seed: int, count: int) -> tuple[np.ndarray, float]:
    """Do the same for one of Optuna's samplers."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = getattr(optuna.samplers, OPTUNA[name])
    options: dict[str, Any] = {"n_startup_trials": INITIAL} if name != "nsga2" else {"population_size": INITIAL}
    if name == "gpsampler":
        options["deterministic_objective"] = True
    study = optuna.create_study(directions=["maximize"] * len(task.goals), sampler=kind(seed=seed, **options))
    space = {f"x{k}": optuna.distributions.FloatDistribution(0.0, 1.0) for k in range(task.dim)}
    spent, told = 0.0, []
    for step in range(count):
        if step < INITIAL:
            first = np.random.default_rng([seed, step]).random(task.dim)
            study.enqueue_trial({f"x{k}": float(u) for k, u in enumerate(first)})
        before = process_time()
        trial = study.ask(space)
        x = np.array([trial.params[f"x{k}"] for k in range(task.dim)])
        spent += process_time() - before if step >= INITIAL else 0.0
        told.append(task.at(x))
        for number, margin in enumerate(told[-1][1]):
            trial.set_constraint(f"c{number}", -float(margin))
        study.tell(trial, told[-1][0].tolist())
    return task.figures(*(np.array(part) for part in zip(*told, strict=True))), spent / (count - INITIAL)


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


def main() -> None:
    """Print one table for each task, or that of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=constrained.FEDERATIONS)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--ratios", action="store_true", help="print how decision times grow with the metrics")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.ratios:
        return print_ratios(given.methods or ["ts", "gp_ei", "fts", "fed_prior"], given.seeds)
    for name in given.tasks:
        task, times = Task(name), [t for t in (15, 20, 30, 40) if t <= given.evaluations]
        what = "hypervolume, share of the exact" if len(task.goals) > 1 else "regret"
        heads = "".join(f" t = {t} |" for t in times)
        print(f"\n| {name}: {what} |{heads} ms |\n|---|{'---|' * (len(times) + 1)}", flush=True)
        for method in given.methods or ["gp_ei", "ts", "random", *OPTUNA]:
            results = []
            for seed in range(given.seeds):
                if method == "random":
                    results.append(run_random(task, seed, given.evaluations))
                else:
                    run = run_optuna if method in OPTUNA else run_ours
                    results.append(run(method, task, seed, given.evaluations))
            rows, cost = np.array([each for each, _ in results]), 1e3 * np.mean([spent for _, spent in results])
            cells = "".join(f" {rows[:, t - 1].mean():.3f} ± {rows[:, t - 1].std(ddof=1):.3f} |" for t in times)
            print(f"| `{method}` |{cells} {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
