"""Random [[metric]] tables: limits and several objectives of problems that return several metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.algorithms.base import Multiple, Private
from fedbo.algorithms.catalog import algorithms
from fedbo.objectives.base import Measuring
from fedbo.study.tables import ObjectiveTable
from fedbo_hunt.surroundings import Draws

Document = dict[str, Any]
PROBLEMS = ("gardner", "hernandez_lobato", "mystery", "bnh", "dtlz2")
_POINTS = 9  # at which a problem is evaluated, so that limits are ones that some points keep


def add_metrics(draws: Draws, document: Document, count: int) -> None:
    """Replace the objective by a problem with several metrics, and draw limits and objectives of them.

    Several objectives are drawn only for algorithms that learn them; other studies would be refused.
    """
    document["objective"] = {"name": draws.one_of(*PROBLEMS), "agents": count, **draws.keep(0.3, noise=0.01)}
    seen, own = _seen(draws, document["objective"])
    others = [name for name in seen if name != own]
    settings = [algorithms()[table["name"]].settings for table in document["algorithm"]]
    if all(issubclass(one, Multiple) for one in settings) and draws.chance(0.6):
        chosen = [own, *draws.some_of(others)][:4]
        tables = [_objective(draws, name, seen[name], len(chosen) > 1) for name in chosen]
    else:
        tables = [{"name": own, "mode": "min"}] if draws.chance(0.5) else []
    limited = draws.some_of(list(seen)) if draws.chance(0.8) or not tables else []
    if any(issubclass(one, Private) and not issubclass(one, Multiple) for one in settings):  # its silence would show them
        limited, tables = [], tables or [{"name": own, "mode": "min"}]
    for name in limited:
        table = next((each for each in tables if each["name"] == name), None)
        if table is None:
            tables.append(table := {"name": name})
        table |= _limits(draws, seen[name])
    document["metric"] = tables
    for group in document.get("group", ()):
        _differ(draws, group, tables, seen)
    if limited:
        document["evaluation"] |= draws.keep(0.3, infeasible=draws.one_of("worst", "drop"))


def _seen(draws: Draws, objective: Document) -> tuple[dict[str, Any], str]:
    """Return values of every metric at a few points, in ascending order, and the name of the first objective."""
    federation = ObjectiveTable.model_validate(objective).make()
    one, rng = federation.objective(0, np.random.default_rng(0), np.random.default_rng(0)), np.random.default_rng(1)
    assert isinstance(one, Measuring)
    low = np.array([parameter.low for parameter in federation.parameters])
    high = np.array([parameter.high for parameter in federation.parameters])
    found = [one.measure(low + (high - low) * draws.rng.random(len(low)), rng).metrics for _ in range(_POINTS)]
    return {name: sorted(each[name] for each in found) for name in federation.metrics}, federation.metric.name


def _objective(draws: Draws, name: str, seen: Any, several: bool) -> Document:
    mode = "max" if name.startswith("g") and draws.chance(0.3) else "min"
    worst = seen[-1] if mode == "min" else seen[0]
    table: Document = {"name": name, "mode": mode}
    if several:
        table |= {"reference": float(f"{worst:.3g}"), **draws.keep(0.2, weight=draws.number(0.2, 5.0))}
    return table


def _limits(draws: Draws, seen: Any) -> Document:
    """Return an upper or a lower limit that some of the seen points keep, or both."""
    low, high = (float(f"{seen[place]:.3g}") for place in (draws.whole(0, 3), draws.whole(4, _POINTS - 1)))
    return draws.one_of({"at_most": high}, {"at_least": low}, {"at_most": high, "at_least": low})


def _differ(draws: Draws, group: Document, tables: list[Document], seen: dict[str, Any]) -> None:
    """Give a group its own limits and weights, with small probabilities."""
    for key in ("at_most", "at_least"):
        there = [table["name"] for table in tables if key in table]
        if there and draws.chance(0.4):
            group[key] = {name: float(f"{seen[name][draws.whole(0, _POINTS - 1)]:.3g}") for name in draws.some_of(there)}
    weighed = [table["name"] for table in tables if "reference" in table]
    if weighed and draws.chance(0.3):
        group["weights"] = {draws.one_of(*weighed): draws.number(0.2, 5.0)}
