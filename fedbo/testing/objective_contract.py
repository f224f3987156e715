"""The contract of federations of objectives, checked at a few points: `check_federation(federation)`."""

from __future__ import annotations

import math
import pickle

import numpy as np

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import (
    Array,
    ConfigurationFailedError,
    Costly,
    Federation,
    Objective,
    Repeated,
    cost_of,
    may_fail,
    reports_costs,
)
from fedbo.objectives.derived.mean import BatchFunction
from fedbo.objectives.outcome import Outcome, value_of
from fedbo.objectives.space import from_unit
from fedbo.testing.contract import is_frozen, need

SEED = 20
MOST = 4  # agents that are built, since each may read a data set
SEARCHED = 40  # random points that must not exceed the best value


def check_federation(federation: Federation) -> None:
    """Raise ContractBroken, with the reason, if a federation or its objectives break an assumption of studies."""
    check_settings(federation)
    objective = built(federation, 0)
    check_values(federation, objective)
    check_costs(federation, objective)
    check_refusals(federation, objective)
    check_agents(federation, objective)


def built(federation: Federation, agent: int) -> Objective:
    """Build the objective of an agent, always from the same streams."""
    return federation.objective(agent, Streams(SEED).rng("world"), Streams(SEED, owner=agent).rng("objective"))


def noise(step: int = 0) -> np.random.Generator:
    """Return the generator of an evaluation's noise."""
    return Streams(SEED, owner=0, step=step).rng("noise")


def points(federation: Federation, n: int) -> Array:
    """Return both extreme corners and uniform points `(n + 2, d)`."""
    d = len(federation.parameters)
    unit = np.vstack([np.zeros(d), np.ones(d), np.random.Generator(np.random.Philox(1)).random((n, d))])
    return from_unit(federation.parameters, unit)


def evaluable(federation: Federation, objective: Objective, x: Array) -> Array:
    """Return the points among `x (n, d)` that can be evaluated; all unless the federation declares failures."""
    if not may_fail(federation):
        return x
    return x[[not _refusal(ConfigurationFailedError, lambda at=at: objective.evaluate(at, noise())) for at in x]]


def score(objective: Objective, x: Array) -> float:
    """Return the noise-free value."""
    known = objective.score(x)
    return value_of(objective.evaluate(x, noise())) if known is None else known


def check_settings(federation: Federation) -> None:
    """Check that settings are frozen, parameters have distinct names and finite ranges, and the metric's direction is right."""
    need(isinstance(federation, Federation), "it lacks a property or function of the protocol Federation")
    need(is_frozen(federation), "settings must be a frozen dataclass")
    parameters = federation.parameters
    need(len({p.name for p in parameters}) == len(parameters) >= 1, "parameters must have distinct names")
    for p in parameters:
        need(math.isfinite(p.low) and math.isfinite(p.high) and p.low < p.high, f"{p.name} must have a finite range")
        need(p.low > 0.0 or not p.log, f"{p.name} is on a logarithmic scale and must be above 0")
    metric = federation.metric
    need(bool(metric.name) and metric.sign in (-1, 1), "the metric needs a name and a sign of -1 or 1")
    worse, better = metric.native(np.array([0.25, 0.5]))
    need((better > worse) == (metric.direction == "maximise"), "native values of the metric go against its direction")


def check_values(federation: Federation, objective: Objective) -> None:
    """Check that values are finite floats and equal for equal streams, and scores are noise-free and at most the best value."""
    need(isinstance(objective, Objective), "the objective lacks a property or function of the protocol Objective")
    copy = pickle.loads(pickle.dumps(objective))
    need(copy.best_value == objective.best_value, "a pickled objective has another best value")
    tried = evaluable(federation, objective, points(federation, 6))
    need(len(tried) > 0, "all evaluations fail")
    for i, x in enumerate(tried):
        value, known = objective.evaluate(x, noise(i)), objective.score(x)
        usable = isinstance(value, float | Outcome) and math.isfinite(value_of(value))
        need(usable, f"evaluate must give a finite float, or an Outcome of one, not {value!r}")
        need(objective.evaluate(x, noise(i)) == value, "the same stream gives another value")
        need(copy.evaluate(x, noise(i)) == value, "a pickled objective gives another value")
        need(objective.score(x) == known, "score must be the same whenever it is asked for")
        need(known is not None or objective.evaluate(x, noise(99)) == value, "values have noise, but score is None")
    if objective.best_value is not None:
        best = max(score(objective, x) for x in evaluable(federation, objective, points(federation, SEARCHED)))
        need(best <= objective.best_value + 1e-12, f"best_value is {objective.best_value}, but random search found {best}")
    x = points(federation, 2)
    if isinstance(objective, BatchFunction):
        singly = [score(objective, one) for one in x]
        need(np.allclose(objective.scores(x), singly, rtol=1e-10, atol=1e-12), "scores differ from those of single points")
    if isinstance(objective, Repeated):
        rng = noise()
        singly = [value_of(objective.evaluate(x[-1], rng)) for _ in range(3)]
        need(np.array_equal(objective.evaluate_many(x[-1], 3, noise()), singly), "evaluate_many differs from evaluate")


def check_costs(federation: Federation, objective: Objective) -> None:
    """Check that costs are known before an evaluation, above 0, and the same at every call."""
    need(isinstance(objective, Costly) or not reports_costs(federation), "it is costly, but its objectives have no cost")
    copy = pickle.loads(pickle.dumps(objective))
    for x in points(federation, 4):
        cost = cost_of(objective, x)
        need(math.isfinite(cost) and cost > 0.0, f"a cost must be finite and above 0, not {cost}")
        need(cost_of(copy, x) == cost, "a cost must be the same whenever it is asked for")


def check_refusals(federation: Federation, objective: Objective) -> None:
    """Check that missing agents, and points outside the box or of the wrong shape, are refused with their names."""
    for agent in (-1, federation.n_agents):
        words = f"no agent {agent}: there are {federation.n_agents}"
        need(words in _refusal(IndexError, lambda agent=agent: built(federation, agent)), f"objective must say: {words}")
    high, name = np.array([p.high for p in federation.parameters]), federation.parameters[0].name
    for x in (high + 1.0, np.full_like(high, np.nan)):
        said = _refusal(ValueError, lambda x=x: objective.evaluate(x, noise()))
        need(f"{name} = " in said and "is outside" in said, f"evaluate must refuse {name} outside of its range")
    said = _refusal(ValueError, lambda: objective.evaluate(np.append(high, 0.5), noise()))
    need("have shape" in said, "evaluate must refuse points of the wrong shape")


def check_agents(federation: Federation, objective: Objective) -> None:
    """Check that agents have different objectives, each of which is independent of those built before."""
    x, number = points(federation, 10), min(MOST, federation.n_agents)
    agents = [objective, *(built(federation, agent) for agent in range(1, number))]
    for one in agents:
        x = evaluable(federation, one, x)
    values = [tuple(score(one, at) for at in x) for one in agents]
    need(len({*values}) == number, "two agents have the same objective")
    again = tuple(score(built(federation, 0), at) for at in x)
    need(again == values[0], "an objective depends on which were built before")
    last = built(federation, federation.n_agents - 1)
    if last.best_value is not None:
        best = max(score(last, at) for at in evaluable(federation, last, points(federation, SEARCHED)))
        need(best <= last.best_value + 1e-12, f"best_value is {last.best_value}, but random search found {best}")


def _refusal(kind: type[Exception], call: object) -> str:
    """Return the text of the error that a call raises; empty if it raises none."""
    assert callable(call)
    try:
        call()
    except kind as error:
        return str(error)
    return ""
