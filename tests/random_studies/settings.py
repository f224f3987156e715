"""Random settings of every algorithm and of the cheap objectives, drawn from the types of their declarations.

New algorithms and settings are drawn without an entry here; the tables below have words and sizes that do not follow from a
type. A drawn study may be invalid: it is then drawn again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from typing import Any

from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.components.centres import RULES, Aggregation
from fedbo.algorithms.components.schedules import AMOUNTS, PROBABILITIES, TEMPERATURES
from fedbo_hunt.surroundings import Draws
from tests.random_studies.functions import FUNCTIONS

Table = dict[str, Any]

_ELSEWHERE = ("matrices", "changes", "pending_values")  # drawn elsewhere, or as long as something else in the study
_TREES = ("centre", "uniform")
_KERNELS = ("matern32", "matern52", "se")
WORDS: dict[str, tuple[str, ...]] = {
    "acquisition": ("ei", "epsilon_greedy", "lcb", "pi", "ts", "ucb"),
    "coordinates": ("arcsine", "plain", "stretched"),
    "cost": ("ignored", "pbgi", "per_cost"),
    "criterion": ("determinant", "diagonal"),
    "cuts": ("equal", "random"),
    "draw": ("pathwise", "weights"),
    "draws": ("diagonal", "joint"),
    "form": ("box", "portfolio"),
    "hyperparameters": ("kept", "refitted"),
    "incumbent": ("mean", "observed"),
    "iterate": ("mean", "query"),
    "kernel": _KERNELS,
    "matrix": ("leader", "uniform"),
    "message": ("draw", "mean"),
    "missing": ("flag", "wait", "mean"),
    "point": _TREES,
    "query": ("draw", "mean"),
    "relay": ("all", "one"),
    "sampling": ("fixed", "poisson"),
    "scalarise": ("chebyshev", "hypervolume", "pareto"),
    "search": ("gp", "thompson"),
    "sense": ("at_most", "equal"),
    "split": ("all", "longest", "turns"),
    "start": ("initial", "last", "mean"),
    "surface": ("average", "cautious", "single", "worst"),
    "surrogate": ("faithful", "features", "fixed", "robust", "smooth"),
    "term": ("added", "inside"),
}
KNOWN_FUNCTIONS = ("ackley", "branin", "double_sine", "garland", "himmelblau", "quadratic", "rastrigin")  # at many points
SCHEDULES = {"p": PROBABILITIES, "temperature": TEMPERATURES, "kappa": AMOUNTS, "epsilon": AMOUNTS}
# Sizes at which a decision takes about a millisecond; the defaults are drawn as well, now and then.
SMALL: dict[str, tuple[int, int]] = {
    "after": (0, 3),
    "arms": (2, 12),
    "batches": (0, 4),
    "branching": (2, 3),
    "candidates": (5, 60),
    "directions": (0, 4),
    "draws": (2, 30),
    "every": (0, 3),
    "features": (4, 30),
    "patience": (1, 4),
    "points": (2, 20),
    "queries": (1, 3),
    "refit": (3, 200),
    "regions": (1, 4),
    "samples": (5, 30),
    "width": (2, 6),
}
CHEAP: dict[str, Table] = {
    "ts": {"refit": 1000, "features": 12},
    "gp_ei": {"refit": 1000},
    "gp_ucb": {"refit": 1000},
    "pooled": {"refit": 1000, "features": 12},
    "share_best": {"own": {"refit": 1000}},
    **{name: {"own": {"refit": 1000}} for name in ("trust_best", "trust_best_alone", "trust_best_noise", "trust_best_uniform")},
    **{name: {"points": 9, "own": {"refit": 1000}} for name in ("dp_share_best", "dp_share_best_noise")},
    "fn_ucb": {"arms": 8, "width": 4, "steps": 3, "until": 40, "rise": 10},
    "gp_ts": {"arms": 12},
    "fed1_ucb": {"arms": 8},
}
_FTS = {"features": 12, "own": {"refit": 1000, "features": 12}}
CHEAP |= {name: {"points": 9} for name in algorithms() if "fed_prior" in name}
CHEAP |= {
    name: _FTS
    for name in (
        "fts",
        "fts_noise",
        "fts_uniform",
        "fts_de",
        "dp_fts",
        "dp_fts_de",
        "dp_fts_de_noise",
        "dp_fts_de_uniform",
    )
}


def draw_algorithm(draws: Draws, name: str, varied: float) -> Table:
    """Draw an algorithm's table; each of its settings is varied with this probability."""
    entry = algorithms()[name]
    table: Table = {"name": name, **CHEAP.get(name, {})}
    if entry.presets and draws.chance(0.1):
        table["preset"] = draws.one_of(*entry.presets)
    hints = _hints(entry.settings)
    for field in dataclasses.fields(entry.settings):
        if field.name in entry.free() and hints[field.name] is Aggregation and draws.chance(0.25):
            table[field.name] = {"rule": draws.one_of(*RULES), **draws.keep(0.5, trim=0.35, groups=draws.whole(1, 5))}
        elif field.name in entry.free() and field.name not in _ELSEWHERE and draws.chance(varied):
            value = _setting(draws, field, hints[field.name])
            if value is not None:
                table[field.name] = value
    return table


def _hints(declared: Any) -> dict[str, Any]:
    return _cached_hints(declared)


@functools.cache  # apart, since mypy takes no class for an argument of a cached function
def _cached_hints(declared: Any) -> dict[str, Any]:
    return typing.get_type_hints(declared)


def _setting(draws: Draws, field: Any, hint: Any) -> Any:
    """Draw one setting by its name and type; None to keep its default."""
    name, default = field.name, field.default
    if typing.get_origin(hint) is tuple:
        return None  # as long as something else in the study
    kinds = set(typing.get_args(hint)) or {hint}
    if name in SCHEDULES and draws.chance(0.5) and str in kinds:
        return draws.one_of(*SCHEDULES[name])
    if bool in kinds:
        return draws.chance(0.5)
    if int in kinds:
        return draws.whole(*SMALL.get(name, (1, 6)))
    if float in kinds:
        return _real(draws, default)
    if hint is str and name in WORDS:
        return draws.one_of(*WORDS[name])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _nested(draws, hint)
    return None


def _real(draws: Draws, default: Any) -> float:
    """Draw a number near a default, or in (0, 1) without one."""
    if not isinstance(default, float) or default == 0.0 or not abs(default) < 1e6:
        return draws.one_of(0.0, draws.number(0.01, 1.0))
    return draws.number(0.3 * default, min(3.0 * default, 1.0) if 0.3 < default <= 1.0 else 3.0 * default)


def _nested(draws: Draws, declared: type[Any]) -> Table:
    hints = _hints(declared)
    fields = [field for field in dataclasses.fields(declared) if field.name not in _ELSEWHERE]
    drawn = {field.name: _setting(draws, field, hints[field.name]) for field in fields if draws.chance(0.3)}
    cheap = {name: value for name, value in (("refit", 1000), ("features", 12)) if name in hints}
    return cheap | {name: value for name, value in drawn.items() if value is not None}


def draw_objective(draws: Draws) -> Table:
    """Draw an objective that is cheap to evaluate, with 2 to 5 agents."""
    agents = draws.whole(2, 5)
    kind = draws.one_of("quadratic", "formula", "formula", "wave", "function", "function", "typed", "gp", "plants", "flow")
    if kind == "quadratic":
        more = draws.keep(0.5, dimensions=draws.whole(1, 4), spread=draws.number(0.0, 0.3), noise=draws.number(0.001, 0.1))
        return {"name": "quadratic", "agents": agents, **more, **draws.keep(0.3, cost_spread=draws.number(0.0, 1.0))}
    if kind in ("formula", "wave"):
        formulas = ("ackley", "branin", "himmelblau", "rastrigin") if kind == "formula" else ("double_sine", "garland")
        family = draws.one_of("same", "shift", "offset", "mixture", "rotation")
        more = draws.keep(0.3, family=family, noise=draws.number(0.001, 0.1), half_width=draws.number(0.05, 0.5))
        return {"name": draws.one_of(*formulas), "agents": agents, **more, **draws.keep(0.2, scaled=True)}
    if kind == "gp":
        return {"name": "gp_synthetic", "agents": agents, "points": draws.whole(10, 60), "length_scale": 0.2}
    if kind == "plants":
        return {"name": "plants", "agents": agents, "dimensions": draws.whole(1, 2)}
    if kind == "flow":
        return draws.one_of({"name": "admm_toy", "problem": "consensus"}, {"name": "network_flow", "nodes": draws.whole(3, 4)})
    return _typed(draws, agents) if kind == "typed" else _function(draws, agents)


def draw_differences(draws: Draws, noisy: bool) -> Table:
    """Draw the differences of agents beyond their objective; only noise has a quantity of data."""
    table = draws.keep(0.5, scale=draws.number(0.1, 1.5), offset=draws.number(0.1, 5.0), likeness=draws.number(0.0, 0.95))
    return table | (draws.keep(0.7, quantity=draws.number(0.2, 1.5)) if noisy else {})


def _function(draws: Draws, agents: int) -> Table:
    dim = draws.whole(1, 3)
    table = {
        "name": "python_function",
        "function": f"tests.random_studies.functions:{draws.one_of(*FUNCTIONS)}",
        "low": [0.0] * dim,
        "high": [1.0] * dim,
        "agents": agents,
    }
    more = draws.keep(0.3, direction="minimise", cost="tests.random_studies.functions:cost", noise=draws.number(0.001, 0.1))
    return {**table, **more}


def _typed(draws: Draws, agents: int) -> Table:
    listed: list[Table] = [
        {"type": "uniform_float", "name": "rate", "lower": 1e-4, "upper": 1.0, "default_value": 0.01, "log": True},
        {"type": "uniform_int", "name": "depth", "lower": 1, "upper": 6, "default_value": 3, "log": False},
        {"type": "categorical", "name": "kind", "choices": ["a", "b", "c"], "weights": None, "default_value": "a"},
    ]
    conditions: list[Table] = []
    if draws.chance(0.5):
        listed.append({"type": "categorical", "name": "flag", "choices": [True, False], "weights": None, "default_value": True})
        conditions.append({"type": "EQ", "child": "flag", "parent": "kind", "value": "b"})
    space = {"name": "drawn", "hyperparameters": listed, "conditions": conditions, "forbiddens": []}
    return {
        "name": "typed_function",
        "function": "tests.random_studies.functions:typed",
        "space": json.dumps(space),
        "agents": agents,
    }
