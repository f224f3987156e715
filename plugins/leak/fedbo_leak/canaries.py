"""Lower bounds of epsilon of every private method, from canaries in one run or few, beside the ledger's upper bound.

Every agent is a canary: a secret coin decides whether it says a message of the largest norm or zeros, which is how adjacent
studies differ (docs/privacy.md). Who reads all releases guesses the coins of which it is most certain. If the method is
(epsilon, delta)-private, at most a binomial share e^epsilon / (1 + e^epsilon) of these guesses is right, up to delta (Steinke,
Nasr, Jagielski 2023, Theorem 5.2, "Privacy Auditing with One (1) Training Run"). With delta = 0 it is Clopper-Pearson's bound.
Methods whose agents hide their own messages are asked directly, since each message is private alone.

    python -m fedbo_leak.canaries [NAME ...] [--runs 2] [--agents 64] [--seed 0]
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedbo.actors.storage import atomic
from fedbo.algorithms.base import Array, LocallyPrivate, Private, Problem
from fedbo.algorithms.catalog import catalogue, entry
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.execution.directory import joined
from fedbo.execution.jobs import runs
from fedbo.study.study import Study, load_study

CONFIDENCE = 0.95
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the canaries that are guessed; the largest bound counts, each at its part of the error
DELTA = 1e-6  # at which bound and ledger are compared: the bound of few runs allows for delta once for every canary
_LAST = 20.0  # no epsilon above this is looked for


@dataclass(frozen=True, slots=True)
class AuditRow:
    """The audit of a private method: how many of the guesses were right, and what follows.

    `lower` is the lower bound of epsilon at `delta` with a confidence of 95 %, `ledger` the upper bound that the run claims.
    """

    algorithm: str
    canaries: int
    guesses: int
    right: int
    delta: float
    lower: float
    ledger: float

    @property
    def is_broken(self) -> bool:
        """Check whether the lower bound exceeds the claim."""
        return self.lower > self.ledger


def private_methods() -> list[str]:
    """Return the names of all methods that declare noisy sums, without the controls of others."""
    controls = ("_noise", "_uniform", "_shuffled", "_alone", "_centre")
    found = []
    for name in catalogue():
        if not name.endswith(controls) and revealed_by(entry(name).make()) is Reveals.NOISY_SUMS:
            found.append(name)
    return found


def chance(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under (epsilon, delta) (the cited Theorem 5.2)."""
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    chances = stats.binom.pmf(right - 1 - np.arange(right), guesses, rate)
    steepest = float(np.max(np.cumsum(chances) / np.arange(1, right + 1))) if right else 0.0
    return min(1.0, float(stats.binom.sf(right - 1, guesses, rate)) + 2.0 * canaries * delta * steepest)


def lower_bound(right: int, guesses: int, canaries: int, delta: float, error: float) -> float:
    """Return the largest epsilon that so many right guesses refute, by bisection; 0 where they refute none."""
    low, high = 0.0, _LAST
    if not guesses or chance(right, guesses, canaries, low, delta) > error:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(right, guesses, canaries, middle, delta) <= error else (low, middle)
    return low


class Guessed(NamedTuple):
    """The canaries of a method: the `scores (m,)`, large where a canary seems to be in, and whether it was, `there (m,)`."""

    scores: Array
    there: Array


def bounded(name: str, guessed: Guessed, delta: float, ledger: float) -> AuditRow:
    """Bound epsilon by the most certain guesses: as many with the largest scores as with the smallest."""
    count, order = len(guessed.scores), np.argsort(guessed.scores)
    best = AuditRow(name, count, 0, 0, delta, 0.0, ledger)
    for share in SHARES:
        half = int(share * count / 2)
        if not half:
            continue
        right = int((guessed.there[order[-half:]] > 0).sum() + (guessed.there[order[:half]] <= 0).sum())
        lower = lower_bound(right, 2 * half, count, delta, (1 - CONFIDENCE) / len(SHARES))
        if lower >= best.lower:
            best = replace(best, guesses=2 * half, right=right, lower=lower)
    return best


def audit(name: str, runs_of: int = 2, agents: int = 64, seed: int = 0, **settings: Any) -> AuditRow:
    """Bound the epsilon of a private method from below; ValueError for one that promises none."""
    algorithm = entry(name).make(**settings)
    if isinstance(algorithm, Private):
        return _audit_sums(name, runs_of, agents, seed, settings)
    if isinstance(algorithm, LocallyPrivate) and algorithm.hides:
        return _audit_messages(name, algorithm, agents * runs_of, seed)
    raise ValueError(f"'{name}' promises no differential privacy; name one of: {', '.join(private_methods())}")


def _study(name: str, replicates: int, agents: int, seed: int, settings: dict[str, Any]) -> Study:
    return load_study(
        {
            "study": {"name": "canaries", "seed": seed, "replicates": replicates},
            "objective": {"name": "quadratic", "agents": agents, "dimensions": 1},
            "budget": {"iterations": 2},
            "exchange": {"mode": "barrier"},
            "privacy": {"deltas": [DELTA]},
            "agents": {"initial": 1},
            "algorithm": [{"name": name, **settings}],
        }
    )


def _audit_sums(name: str, replicates: int, agents: int, seed: int, settings: dict[str, Any]) -> AuditRow:
    """Run the method with its real aggregator, with canaries in the place of messages."""
    study, rng = _study(name, replicates, agents, seed, settings), np.random.default_rng(seed)
    found, spent, delta = list[Guessed](), 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="fedbo-canaries-") as place:
        parts = Path(place) / "parts"
        atomic.make_folder(parts)
        for run in runs(study, parts):
            there = rng.random(agents) < 0.5
            scores, cost = _run(study, run, there)
            found.append(Guessed(scores, there.astype(np.float64)))
            spent, delta = max(spent, cost[1]), cost[0]
    both = Guessed(*map(np.concatenate, zip(*found, strict=True)))
    return bounded(name, both, delta, spent)


def _run(study: Study, run: Run, there: npt.NDArray[np.bool_]) -> tuple[Array, tuple[float, float]]:
    """Carry out one run with canaries; return their scores, delta, and the epsilon of the ledger."""
    method: Any = run.task.algorithm
    problem = run.task.problem
    law, ((field, declared),) = method.mechanism(problem), method.upload(problem).items()
    largest = law.clip / math.sqrt(law.blocks)
    canaries = largest * np.eye(declared.shape[0])[np.arange(len(there)) % declared.shape[0]]
    releases = list[Array]()
    planted = _planted(method, field, canaries * there[:, None], releases)
    Coordinator().run(replace(run, task=replace(run.task, algorithm=planted), hosts=0, seconds=math.inf, events=None))
    tables = joined(study, run.folder, [run.key])
    scores = np.zeros(len(there))
    for row, vectors in zip(tables["privacy"].to_pylist(), releases, strict=True):
        scores += _evidence(row, vectors, method.weights(problem, row["release"]), canaries)
    spent = tables["privacy_agents"].to_pylist()
    return scores, (spent[0]["deltas"][0], max(row["epsilon"][0] for row in spent))


def _evidence(row: dict[str, Any], vectors: Array, phi: Array, canaries: Array) -> Array:
    """Return the log-likelihood ratios `(N,)` of canaries in a release `(P, M)`; 0 of agents that cannot be in it.

    An agent is in a release by a coin of the charged sampling rate, and surely where there is no gain from sampling.
    """
    found, share = np.zeros(len(canaries)), row["share"]
    deviation = np.resize(row["noise"], len(vectors))[:, None]
    scale = row["sensitivity"] / row["clip"] / phi.max()  # 1 / q, also where the charge is whole
    for agent in row["charged"]:
        part = scale * phi[:, [agent]] * canaries[agent] / deviation
        exponent = float((vectors / deviation * part - part**2 / 2).sum())
        found[agent] = exponent if share == 1.0 else np.logaddexp(math.log1p(-share), math.log(share) + exponent)
    return found


def _planted(method: Any, field: str, canaries: Array, releases: list[Array]) -> Any:
    """Return the method with canaries `(N, M)` in the place of messages, which keeps its `releases`."""
    kind = type(method)

    class Planted(kind):  # type: ignore[misc, valid-type]
        def columns(self, problem: Problem, streams: Streams) -> None:
            return None

        def outbox(self, state: Any, streams: Streams) -> tuple[dict[str, Array], Any]:
            return {field: canaries[streams.owner].copy()}, state

        def released(self, state: Any, vectors: Array, release: int) -> Any:
            releases.append(vectors.copy())
            return kind.released(self, state, vectors, release)

    return Planted(**{one.name: getattr(method, one.name) for one in fields(method)})


def _audit_messages(name: str, method: Any, count: int, seed: int) -> AuditRow:
    """Ask agents that hide their own messages, each with data of its own secret coin."""
    rng, streams, found = np.random.default_rng(seed), Streams(seed), list[tuple[float, float]]()
    means = "means" in (method.upload(Problem(1, 2, (0, 1), 0, 40, pulls=40)) or {})
    for agent in range(count):
        one = streams.of(agent).at(1)
        found += _of_means(method, count, one, rng) if means else [_of_choice(method, count, one, rng)]
    scores, there = np.array(found).T
    certain = np.abs(scores) > 0  # each guess stands alone, so those that say nothing are no guesses
    right = int(((scores > 0) == (there > 0))[certain].sum())
    guesses, error = int(certain.sum()), 1 - CONFIDENCE
    return AuditRow(name, len(scores), guesses, right, 0.0, lower_bound(right, guesses, guesses, 0.0, error), method.epsilon)


def _of_means(method: Any, agents: int, streams: Streams, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Hide one evaluation of 0 or 1 in the mean of each node, of which the others are 1/2."""
    problem = Problem(1, agents, tuple(range(agents)), 0, 400, agent=streams.owner, pulls=400)
    decision, state = method.ask(method.agent_init(problem, streams), (), streams)
    pulls = decision.pulls.astype(np.float64)
    there = rng.integers(0, 2, len(pulls))
    state = method.tell(state, decision.x, 0.5 + (there - 0.5) / pulls)
    payload, _ = method.outbox(state, streams)
    if payload is None:
        return []
    shift = (payload["means"] - 0.5) * pulls
    scores = np.where(np.abs(shift) > 0.5, shift, 0.0)  # beyond both values the odds are e^epsilon, and less between them
    return [*zip(scores.tolist(), there.astype(float).tolist(), strict=True)]


def _of_choice(method: Any, agents: int, streams: Streams, rng: np.random.Generator) -> tuple[float, float]:
    """Let an agent vote whose values rise or fall along the first input, and look whether the vote is near one of the ends."""
    problem = Problem(1, agents, tuple(range(agents)), 8, 4, agent=streams.owner)
    x, is_there = np.linspace(0.02, 0.98, 8)[:, None], bool(rng.integers(0, 2))
    state = method.tell(method.agent_init(problem, streams), x, x[:, 0] if is_there else 1.0 - x[:, 0])
    payload, _ = method.outbox(state, streams)
    points = method.server_init(problem).points[:, 0]
    place = float(np.mean(points <= points[int(payload["vote"][0])]))
    margin = 0.8 * method.likely
    return (1.0 if place > 1.0 - margin else -1.0 if place <= margin else 0.0), float(is_there)


def audit_all(names: Iterable[str], runs_of: int, agents: int, seed: int) -> list[AuditRow]:
    """Audit methods one after another."""
    return [audit(name, runs_of, agents, seed) for name in names]


def lines_of(rows: Sequence[AuditRow]) -> list[str]:
    """Return a table in Markdown."""
    head = [
        "| method | canaries | guesses | right | delta | epsilon at least (95 %) | ledger |",
        "|---|---|---|---|---|---|---|",
    ]
    return head + [
        f"| `{row.algorithm}` | {row.canaries} | {row.guesses} | {row.right} | {row.delta:.2g} "
        f"| {row.lower:.2f} | {row.ledger:.2f} |"
        for row in rows
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; the exit code is 1 where a lower bound exceeds the ledger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    rows = audit_all(given.names or private_methods(), given.runs, given.agents, given.seed)
    print("\n".join(lines_of(rows)))
    raise SystemExit(int(any(row.is_broken for row in rows)))


if __name__ == "__main__":
    main()
