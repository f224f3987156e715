"""Objectives made from Python functions, and what evaluations cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.actors.evaluation.evaluate import evaluate
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array, Costly, Objective, cost_of, reports_costs
from fedbo.objectives.functions import Branin, Quadratic
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.python_function import PythonFunction
from fedbo.settings.trust import admit, places_in

X = np.array([0.25, 0.75])


def bowl(noise: float = 0.0) -> Objective:
    return Quadratic(noise=noise).objective(0, Streams(0).rng("world"), Streams(0).rng("own"))


def draws(step: int = 0) -> np.random.Generator:
    return Streams(0, step=step).rng("noise")


def test_what_says_no_costs_costs_1() -> None:
    inner, plain = Quadratic(cost_spread=3.0).objective(0, draws(), draws()), Branin().objective(0, draws(), draws())
    assert cost_of(inner, X) == 1.0 + 3.0 * 0.5
    assert not isinstance(plain, Costly) and cost_of(plain, X) == 1.0


def test_a_bowl_costs_most_in_the_corner_farthest_from_the_origin() -> None:
    one = Quadratic(dimensions=3, cost_spread=2.0).objective(0, draws(), draws())
    assert [one.cost(np.full(3, u)) for u in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert bowl().evaluate(X, draws()) == Quadratic(cost_spread=2.0).objective(
        0, Streams(0).rng("world"), Streams(0).rng("own")
    ).evaluate(X, draws())
    with pytest.raises(ValueError, match="cost_spread must be at least 0 and finite, not -1.0"):
        Quadratic(cost_spread=-1.0)


def value_of(function: Callable[..., Any], agent: int = 1, **settings: Any) -> float:
    federation = PythonFunction(function, (0.0, 0.0), (1.0, 1.0), agents=2, **settings)
    return federation.objective(agent, draws(), draws()).evaluate(X, draws())


def test_a_function_is_given_the_agent_and_the_stream_when_it_asks() -> None:
    def of_all(x: Array, agent: int, rng: np.random.Generator) -> float:
        return float(x[0] + agent + rng.standard_normal())

    assert value_of(lambda x: x[0]) == 0.25
    assert value_of(lambda x, agent: x[0] + agent) == 1.25
    assert value_of(lambda x, agent=5: x[0] + agent) == 1.25
    assert value_of(lambda x, power=2: x[0] ** power) == 0.0625
    assert value_of(of_all) == 1.25 + draws().standard_normal()
    assert value_of(np.sum) == 1.0


def test_a_generator_is_made_only_for_a_function_that_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made, rng = list[str](), Streams.rng
    monkeypatch.setattr(Streams, "rng", lambda self, purpose: (made.append(purpose), rng(self, purpose))[1])

    def noisy(x: Array, agent: int, rng: np.random.Generator) -> float:
        return float(rng.random())

    plain, drawn = (PythonFunction(one, (0.0, 0.0), (1.0, 1.0)) for one in (np.sum, noisy))
    assert plain.parameters is plain.parameters
    made.clear()
    assert evaluate(plain.objective(0, draws(), draws()), X, Streams(3)).value == 1.0 and "evaluation" not in made
    assert evaluate(drawn.objective(0, draws(), draws()), X, Streams(3)).value == Streams(3).rng("evaluation").random()


def test_a_minimised_function_is_negated_once_and_its_metric_turns_it_back() -> None:
    federation = PythonFunction(lambda x: 3.0 + x[0], (0.0,), (1.0,), direction="minimise", best=3.0, metric_name="loss")
    one = federation.objective(0, draws(), draws())
    assert one.evaluate(np.array([0.5]), draws()) == -3.5 and one.best_value == -3.0
    assert federation.metric.native(-3.5) == 3.5 and federation.metric.name == "loss"


def test_parameters_take_their_names_and_scales() -> None:
    federation = PythonFunction(lambda x: 0.0, (1e-3, 0.0), (1.0, 2.0), names=("rate", "depth"), log=(True, False))
    assert [(p.name, p.low, p.high, p.log) for p in federation.parameters] == [
        ("rate", 1e-3, 1.0, True),
        ("depth", 0.0, 2.0, False),
    ]


def test_a_function_cannot_change_the_point_it_was_given() -> None:
    def rude(x: Array) -> float:
        x[:] = 0.0
        return 1.0

    point = X.copy()
    PythonFunction(rude, (0.0, 0.0), (1.0, 1.0)).objective(0, draws(), draws()).evaluate(point, draws())
    assert np.array_equal(point, X)


def test_a_second_function_says_what_an_evaluation_of_the_first_costs() -> None:
    def dear(x: Array, agent: int) -> float:
        x[:] *= 8.0
        return float(x.sum()) + agent

    free = PythonFunction(np.sum, (0.0, 0.0), (1.0, 1.0), agents=2)
    costly = PythonFunction(np.sum, (0.0, 0.0), (1.0, 1.0), agents=2, cost=dear)
    assert reports_costs(costly) and not reports_costs(free)
    assert costly.objective(1, draws(), draws()).cost(X) == 9.0 and X.sum() == 1.0
    assert free.objective(1, draws(), draws()).cost(X) == 1.0
    admit(["math:fsum", "math:sinus"])
    named = PythonFunction(np.sum, (0.0, 0.0), (1.0, 1.0), cost="math:fsum")
    assert named.objective(0, draws(), draws()).cost(X) == 1.0
    with pytest.raises(ValueError, match="cost = 'math:sinus' is invalid: math has no 'sinus'"):
        PythonFunction(np.sum, (0.0,), (1.0,), cost="math:sinus")


@pytest.mark.parametrize("cost", [None, 0.0, -1.0, float("nan"), float("inf"), "dear"])
def test_a_cost_that_is_no_finite_number_above_0_is_refused(cost: Any) -> None:
    def odd(x: Array) -> Any:
        return cost

    one = PythonFunction(np.sum, (0.0, 0.0), (1.0, 1.0), cost=odd).objective(0, draws(), draws())
    with pytest.raises(ValueError, match="odd returned .*; return one finite number above 0"):
        one.cost(X)


def test_a_function_may_return_an_outcome_whose_value_and_score_are_native() -> None:
    def measured(x: Array) -> Outcome:
        return Outcome(2.0, 1.5, {"seconds": 3.0})

    for direction, sign in (("maximise", 1), ("minimise", -1)):
        one = PythonFunction(measured, (0.0, 0.0), (1.0, 1.0), direction=direction).objective(0, draws(), draws())
        assert one.evaluate(X, draws()) == Outcome(sign * 2.0, sign * 1.5, {"seconds": 3.0})


def test_a_function_that_returns_no_number_is_named() -> None:
    def forgetful(x: Array) -> None:
        return None

    with pytest.raises(TypeError, match="forgetful returned None; return one number"):
        value_of(forgetful)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("math", 'write it as "package.module:name"'),
        ("no_such_module:f", "no module 'no_such_module'"),
        ("json.no_such:f", "no module 'json.no_such'"),
        ("math:sinus", "math has no 'sinus'; its callables: .*'sin'"),
        ("math:pi", "it is a float; use a callable"),
        (7, "use a callable"),
    ],
)
def test_a_function_that_is_not_there_is_refused_with_what_would_do(place: Any, said: str) -> None:
    admit(places_in(place))
    with pytest.raises(ValueError, match=f"function = .* is invalid: .*{said}"):
        PythonFunction(place, (0.0,), (1.0,))


def test_what_a_users_own_module_misses_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_that_misses_another.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    admit(["module_that_misses_another:f"])
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_library'"):
        PythonFunction("module_that_misses_another:f", (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"low": ()}, "low = "),
        ({"high": (1.0, 2.0)}, "high = "),
        ({"names": ("a", "b")}, "names = "),
        ({"log": (True,)}, "parameter x1: a log range must start above 0"),
        ({"high": (0.0,)}, "parameter x1: .* is not a finite range"),
        ({"direction": "up"}, "no direction 'up'; available: maximise, minimise"),
        ({"agents": 0}, "agents must be at least 1, not 0"),
    ],
)
def test_settings_of_a_function_are_checked_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PythonFunction(**{"function": abs, "low": (0.0,), "high": (1.0,), **settings})
