"""Twenty federations that a rule draws, half of them held out; methods on them, each federation counted once; prints Markdown.

    python benchmarks/federations.py --list
    python benchmarks/federations.py [--half development] [--methods NAME ...] [--seeds 5] [--out FILE] [--show]

A federation is a source of data, a model to tune, a split among agents, and a number of agents, all drawn with a fixed seed; or
a family of functions, how they differ, and a number of agents. Every second one is held out: methods are developed on the
others alone. An agent trains on half of its rows and validates on the rest, in turn; its value is the accuracy. A third of its
rows belongs to an earlier task, which it has evaluated at 15 random points, so that an earlier task is of other rows than the
present one. An earlier function is moved by 3 % of the box.

Each agent makes three random evaluations and ten decisions, all agents in turn. Scores are in per cent of an agent's range,
from the worst to the best value of any method with that seed. `earlier_best` first evaluates the best point of the earlier
task and then decides as `gp_ei`; `gp_ei_warm` starts with the evaluations of the earlier task as if they were of the present
one. Others get no earlier task, but for those whose name ends in `_earlier`, which have it in their messages. A difference is
over federations, the mean over seeds and agents first; Holm's correction covers all differences after the last decision,
which were fixed before the held-out half was run. Every result is a line of `--out`; run it again to continue. The data of
`wisdm` are looked for in $FEDBO_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from scipy.stats import ttest_1samp  # noqa: E402
from sklearn import datasets, linear_model, neighbors, neural_network, svm, tree  # noqa: E402

from fedbo.algorithms.base import Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.analysis.summary import holm  # noqa: E402
from fedbo.objectives.catalog import catalogue  # noqa: E402
from fedbo.objectives.classifiers.partitions import partition  # noqa: E402
from fedbo.objectives.classifiers.wisdm import completed, users_of  # noqa: E402
from fedbo.objectives.datasets.data import locate  # noqa: E402
from fedbo.testing.lockstep import Lockstep, noisy  # noqa: E402

Array = npt.NDArray[np.float64]
Function = Callable[[Array], float]  # of a point of the unit cube
COUNT, SEED = 20, 20261128
INITIAL, DECISIONS, EARLIER, MOST_ROWS = 3, 10, 15, 150
TIMES = (1, 2, 5, 10)
SOURCES = ("digits", "breast_cancer", "wine", "diabetes", "wisdm", "functions", "functions")
MODELS = ("svm", "tree", "neighbours", "linear", "network")
SPLITS = ("iid", "classes", "dirichlet", "quantity")
FAMILIES = ("branin", "hartmann", "ackley", "rastrigin", "gp_family")
LIKENESS = ("like", "moved", "unlike")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "gp_ei": ("gp_ei", {}),
    "ts": ("ts", {}),
    "earlier_best": ("gp_ei", {}),
    "gp_ei_warm": ("gp_ei", {}),
    "fts": ("fts", {}),
    "fed_prior": ("fed_prior", {"every": 1}),
    "fed_prior_earlier": ("fed_prior", {"every": 1}),
    "share_best": ("share_best", {"every": 1}),
    "share_best_earlier": ("share_best", {"every": 1}),
    "trust_best": ("trust_best", {}),
    "trust_best_earlier": ("trust_best", {}),
    "careful": ("trust_best", {"turn": 1, "pay": 0.25}),
    "careful_earlier": ("trust_best", {"turn": 1, "pay": 0.25, "earlier_first": True}),
    "careful_noise": ("trust_best_noise", {"turn": 1, "pay": 0.25}),
    "trust_best_alone": ("trust_best_alone", {}),
    "trust_best_noise": ("trust_best_noise", {}),
    "pooled": ("pooled", {"improvement": True, "clip": 0.0}),
}
# Each method minus an agent alone, or minus what an agent with an earlier task has without messages, and minus its controls.
PAIRS = (
    *((name, "gp_ei") for name in ("fts", "fed_prior", "share_best", "trust_best", "careful", "pooled")),
    ("careful", "trust_best_alone"),
    ("careful", "careful_noise"),
    ("earlier_best", "gp_ei"),
    *((name, "earlier_best") for name in ("gp_ei_warm", "fed_prior_earlier", "share_best_earlier", "careful_earlier")),
)


class Federation(NamedTuple):
    """One draw: of data, model, split and agents, or of `functions`, a family, how the agents' differ, and agents."""

    number: int
    source: str
    model: str
    split: str
    agents: int

    @property
    def half(self) -> str:
        return "held-out" if self.number % 2 else "development"

    @property
    def name(self) -> str:
        return f"{self.number}: {self.source}, {self.model}, {self.split}, {self.agents} agents"


def federations() -> list[Federation]:
    """Draw the list, which has no combination of source, model and split twice."""
    rng, found = np.random.default_rng(SEED), dict[tuple[str, ...], Federation]()
    while len(found) < COUNT:
        source = str(rng.choice(SOURCES))
        of_functions = source == "functions"
        key = (
            source,
            str(rng.choice(FAMILIES if of_functions else MODELS)),
            str(rng.choice(LIKENESS if of_functions else SPLITS)),
        )
        agents = int(rng.integers(4, 11))
        found.setdefault(key, Federation(len(found), *key, agents))
    return list(found.values())


@lru_cache(maxsize=1)
def rows_of(federation: Federation, seed: int) -> list[tuple[Array, npt.NDArray[np.int64]]]:
    """Return features and labels of every agent; `wisdm` is split by its users, whatever the split is called."""
    rng = np.random.default_rng([SEED, federation.number, seed])
    if federation.source == "wisdm":
        users = users_of(locate("wisdm") / "WISDM_ar_v1.1_transformed.arff", "activity")
        chosen = [users[int(one)] for one in rng.choice(len(users), federation.agents, replace=False)]
        whole = [(completed(one.features, np.arange(0)), one.label) for one in chosen]
    else:
        x, y = getattr(datasets, f"load_{federation.source}")(return_X_y=True)
        label = (y > np.median(y)).astype(np.int64) if federation.source == "diabetes" else y.astype(np.int64)
        skew = {"classes": max(2, int(label.max() + 1) // 3), "dirichlet": 0.3, "quantity": 0.5}.get(federation.split, 0.0)
        whole = [(x[held], label[held]) for held in partition(federation.split, label, federation.agents, skew, rng)]
    return [(x[kept], y[kept]) for x, y in whole for kept in [rng.permutation(len(y))[:MOST_ROWS]]]


def model_of(name: str, u: Array) -> Any:
    """Make the model with the hyperparameters of a point `u (d,)` of the unit cube."""
    if name == "svm":
        return svm.SVC(C=10.0 ** (4.0 * u[0] - 2.0), gamma=10.0 ** (4.0 * u[1] - 4.0))
    if name == "tree":
        depth, leaf = 1 + int(9.999 * u[0]), 1 + int(19.999 * u[1])
        return tree.DecisionTreeClassifier(
            max_depth=depth, min_samples_leaf=leaf, max_features=0.1 + 0.9 * u[2], random_state=0
        )  # fmt: skip
    if name == "neighbours":
        return neighbors.KNeighborsClassifier(1 + int(14.999 * u[0]), p=1.0 + 3.0 * u[1], weights="distance")
    if name == "linear":
        return linear_model.SGDClassifier(
            alpha=10.0 ** (6.0 * u[0] - 6.0), eta0=10.0 ** (4.0 * u[1] - 4.0), learning_rate="constant", l1_ratio=u[2],
            penalty="elasticnet", max_iter=20, tol=None, random_state=0,
        )  # fmt: skip
    return neural_network.MLPClassifier(
        (int(4 * 16 ** u[0]),), alpha=10.0 ** (6.0 * u[1] - 5.0), learning_rate_init=10.0 ** (3.0 * u[2] - 4.0), max_iter=25,
        random_state=0,
    )  # fmt: skip


INPUTS = {"svm": 2, "tree": 3, "neighbours": 2, "linear": 3, "network": 3}


def accuracy(model: str, x: Array, y: npt.NDArray[np.int64]) -> Function:
    """Return the accuracy on each half of the rows of a model that is trained on the other half."""
    scaled = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    halves = np.arange(0, len(y), 2), np.arange(1, len(y), 2)

    @cache
    def scored(point: tuple[float, ...]) -> float:
        right = 0.0
        for train, test in (halves, halves[::-1]):
            if len(set(y[train].tolist())) == 1:
                right += float((y[test] == y[train[0]]).sum())
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = model_of(model, np.array(point))
                if model == "neighbours":
                    made.n_neighbors = min(made.n_neighbors, len(train))
                right += float((made.fit(scaled[train], y[train]).predict(scaled[test]) == y[test]).sum())
        return right / len(y)

    return lambda u: scored(tuple(u.tolist()))


def functions(federation: Federation, seed: int) -> tuple[int, list[Function], list[Function]]:
    """Return the inputs, and of every agent its present function and that of its earlier task."""
    if federation.source != "functions":
        now, before = [], []
        for x, y in rows_of(federation, seed):
            third = len(y) // 3
            before.append(accuracy(federation.model, x[:third], y[:third]))
            now.append(accuracy(federation.model, x[third:], y[third:]))
        return INPUTS[federation.model], now, before
    how: dict[str, Any] = {"like": {"spread": 0.05}, "moved": {"spread": 0.2}, "unlike": {"family": "rotation", "spread": 0.5}}
    if federation.model == "gp_family":
        how = {"like": {"likeness": 0.9}, "moved": {"likeness": 0.5}, "unlike": {"likeness": 0.0}}
    made: Any = catalogue()[federation.model](agents=federation.agents, **how[federation.split])
    key = [SEED, federation.number, seed]
    held = [
        made.objective(agent, np.random.default_rng([*key, 1]), np.random.default_rng([*key, 2 + agent]))
        for agent in range(federation.agents)
    ]
    parameters = made.parameters
    lows, highs = np.array([one.low for one in parameters]), np.array([one.high for one in parameters])

    def at(objective: Any, move: Array) -> Function:
        return lambda u: float(objective.score(lows + (highs - lows) * np.clip(u + move, 0.0, 1.0)))

    rng, dim = np.random.default_rng([*key, 10_000]), len(parameters)
    moves = [0.03 * rng.choice([-1.0, 1.0], dim) for _ in held]
    return dim, [at(one, np.zeros(dim)) for one in held], [at(one, move) for one, move in zip(held, moves, strict=True)]


def run(federation: Federation, name: str, seed: int) -> Array:
    """Return the best value of every agent after its initial points and after each decision, `(agents, 1 + DECISIONS)`."""
    dim, now, before = functions(federation, seed)
    method, settings = METHODS[name]
    points = [np.random.default_rng([SEED, seed, agent]).random((EARLIER, dim)) for agent in range(len(now))]
    histories = []
    if name.endswith(("_earlier", "_warm", "_best")) and name not in ("share_best", "trust_best"):
        histories = [(x, np.array([one(u) for u in x])) for one, x in zip(before, points, strict=True)]
    told = histories if name.endswith("_earlier") else []
    problem = Problem(dim, len(now), tuple(range(len(now))), INITIAL, DECISIONS, history=EARLIER if told else 0)
    evaluate = noisy(lambda x, agent: np.array([now[agent](u) for u in x]))
    lockstep = Lockstep(entry(method).make(**settings), problem, evaluate, seed, told)
    if name == "gp_ei_warm":
        lockstep.states = [
            lockstep.algorithm.tell(state, *history) for state, history in zip(lockstep.states, histories, strict=True)
        ]  # fmt: skip
    lockstep.begin()
    lockstep.exchange()
    lockstep.run(DECISIONS)
    found = np.array([[float(np.max(y)) for _, y in one] for one in lockstep.observed])
    if name == "earlier_best":  # the first decision evaluates the best earlier point
        kept = [now[agent](x[int(y.argmax())]) for agent, (x, y) in enumerate(histories)]
        found[:, 1:] = np.column_stack([kept, found[:, 1:-1]])
    return np.maximum.accumulate(found, axis=1)


def results(half: str, methods: Sequence[str], seeds: int, out: Path | None) -> Iterator[tuple[Federation, int, str, Array]]:
    """Give what is there and run the rest, one seed after another."""
    there: dict[tuple[int, int, str], Any] = {}
    for line in out.read_text().splitlines() if out and out.exists() else []:
        row = json.loads(line)
        there[row["federation"], row["seed"], row["method"]] = row["best"]
    for seed in range(seeds):
        for federation in federations():
            for name in methods if federation.half == half else ():
                key = federation.number, seed, name
                if key not in there:
                    there[key] = run(federation, name, seed).tolist()
                    if out:
                        with out.open("a") as file:
                            file.write(
                                json.dumps({"federation": key[0], "seed": seed, "method": name, "best": there[key]}) + "\n"
                            )
                yield federation, seed, name, np.array(there[key])


def shares(found: dict[tuple[int, str], Array]) -> dict[tuple[int, str], Array]:
    """Return the same values `(agents, 1 + DECISIONS)` by seed and method in per cent of an agent's range with that seed."""
    scaled = {}
    for seed in {seed for seed, _ in found}:
        rows = {name: values for (one, name), values in found.items() if one == seed}
        together = np.stack([*rows.values()])
        low, high = together.min(axis=(0, 2))[:, None], together.max(axis=(0, 2))[:, None]
        span = np.maximum(high - low, 1e-300)
        scaled |= {(seed, name): np.where(high > low, 100.0 * (values - low) / span, 100.0) for name, values in rows.items()}
    return scaled


def table(held: dict[Federation, dict[tuple[int, str], Array]], methods: Sequence[str]) -> Iterator[str]:
    """Write mean scores by federation, and differences to agents alone with each federation counted once."""
    ends = {
        one: {name: np.mean([rows.mean(axis=0) for (_, which), rows in shares(found).items() if which == name], axis=0)
              for name in methods}
        for one, found in held.items()
    }  # fmt: skip
    yield f"| % of an agent's range, t = {DECISIONS} | {' | '.join(methods)} |"
    yield "|---" * (len(methods) + 1) + "|"
    for one, means in ends.items():
        yield f"| {one.name} | {' | '.join(f'{means[name][-1]:.1f}' for name in methods)} |"
    yield f"| mean | {' | '.join(f'{np.mean([means[name][-1] for means in ends.values()]):.1f}' for name in methods)} |"
    apart = {
        pair: np.array([means[pair[0]] - means[pair[1]] for means in ends.values()]) for pair in PAIRS if {*pair} <= {*methods}
    }
    last = [gaps[:, -1] for gaps in apart.values()]
    corrected = holm([float(ttest_1samp(gaps, 0.0).pvalue) if np.ptp(gaps) else 1.0 for gaps in last])
    yield ""
    yield f"| each of {len(ends)} federations once | minus | {' | '.join(f't = {t}' for t in TIMES)} | p, t = {DECISIONS} |"
    yield "|---" * (3 + len(TIMES)) + "|"
    for (name, base), chance in zip(apart, corrected, strict=True):
        cells = []
        for t in TIMES:
            low, high = ttest_1samp(apart[name, base][:, t], 0.0).confidence_interval(0.95)
            cells.append(f"{apart[name, base][:, t].mean():+.1f} ± {(high - low) / 2:.1f}")
        yield f"| `{name}` | `{base}` | {' | '.join(cells)} | {chance:.2g} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """List the federations, or run methods on half of them and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--half", choices=("development", "held-out"), default="development")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(f"{one.name} ({one.half})" for one in federations()))
        return
    held: dict[Federation, dict[tuple[int, str], Array]] = {}
    for federation, seed, name, best in results(given.half, given.methods, given.seeds, given.out):
        held.setdefault(federation, {})[seed, name] = best
    print("\n".join(table(held, given.methods)))


if __name__ == "__main__":
    main()
