"""What `help` and a notebook show of a public function: every argument, with the default that it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

import fedbo
from fedbo.actors.evaluation.policy import Policy
from fedbo.analysis.result import Choices
from fedbo.figures.layout import Look
from fedbo.figures.plot import View
from fedbo.tuning.arguments import DEFAULTS, Options
from fedbo.tuning.ray_scheduler import RayScheduler
from fedbo.tuning.ray_searcher import RaySearcher
from fedbo.tuning.tune import tuning_study


def public() -> Iterator[Any]:
    """Yield the public functions, and the public methods of public classes."""
    for name in fedbo.__all__:
        found = getattr(fedbo, name)
        if inspect.isfunction(found):
            yield pytest.param(found, id=name)
        elif inspect.isclass(found) and not issubclass(found, BaseException):
            for each, method in inspect.getmembers(found, callable):
                if not each.startswith("_") and str(getattr(method, "__module__", "")).startswith("fedbo"):
                    yield pytest.param(method, id=f"{name}.{each}")


@pytest.mark.parametrize("function", list(public()))
def test_no_public_function_hides_its_arguments(function: Callable[..., Any]) -> None:
    kinds = {each.kind for each in inspect.signature(function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_tune_shows_every_option_with_its_default() -> None:
    shown = inspect.signature(fedbo.tune).parameters
    assert list(shown) == ["objective", "space", "agents", "progress", *Options.__annotations__]
    assert {name: shown[name].default for name in DEFAULTS} == DEFAULTS
    assert all(shown[name].default is None for name in Options.__annotations__ if name not in DEFAULTS)
    assert shown["iterations"].annotation == "int" and shown["target"].annotation == "float | None"


def bowl(config: Any) -> float:
    """Return a value that is best in the middle."""
    return -((config["x"] - 0.5) ** 2)


def test_the_defaults_of_tune_are_those_that_it_uses_and_those_of_a_study() -> None:
    study = tuning_study(bowl, {"x": (0.0, 1.0)}, 2, {})
    policy, objective = study.evaluation, study.objective.settings
    used = {
        "iterations": study.budget.iterations,
        "initial": study.agents.initial,
        "metric": objective["metric_name"],
        "mode": {"maximise": "max"}[objective["direction"]],
        "seed": study.study.seed,
        "name": study.study.name,
        **{name: getattr(policy, name) for name in DEFAULTS if hasattr(policy, name)},
    }
    assert used == {name: default for name, default in DEFAULTS.items() if name in used}
    assert set(DEFAULTS) - set(used) == {"resume", "repeats", "callbacks"}  # no part of a study
    assert {each.name: each.default for each in fields(Policy)}.items() >= {("retries", 0), ("failure", "avoid")}


def test_a_figure_shows_the_defaults_of_its_view_and_its_look() -> None:
    shown = inspect.signature(fedbo.Result.plot).parameters
    defaults = {each.name: each.default for kind in (View, Look) for each in fields(kind) if each.name != "look"}
    assert {name: shown[name].default for name in defaults} == defaults
    assert set(defaults) == {*Choices.__annotations__, "kind", "cell"}


@pytest.mark.parametrize("function", [*public(), fedbo.Terms, RaySearcher, RayScheduler])
def test_words_of_which_one_is_chosen_are_literals_for_type_checkers(function: Callable[..., Any]) -> None:
    for name, each in inspect.signature(function).parameters.items():
        if name in ("mode", "kind", "each", "by", "failure", "search"):
            assert not str(each.annotation).startswith("str"), f"{name}: {each.annotation}"
