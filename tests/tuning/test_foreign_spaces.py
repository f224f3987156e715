"""Every distribution of Optuna, Ray Tune and ConfigSpace, with every option: it samples as there, or is refused by name.

Two samples of 700 are of one distribution unless their distance exceeds the two-sided bound of Kolmogorov and Smirnov at a
level of 1e-6, which is the probability of a false alarm for each of a dozen continuous cases; the seeds are fixed. Of discrete
cases the supports are compared, in which each value has a probability of at least 0.03: 6e-10 for each value missed.
"""

from __future__ import annotations

import inspect
import math
from contextlib import nullcontext
from typing import Any

import ConfigSpace as CS
import numpy as np
import optuna
import pytest
from ConfigSpace import hyperparameters as hyper
from optuna import distributions as optunas
from ray.tune.search import sample as rays
from scipy.stats import ks_2samp

from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.errors import ArgumentError

COUNT, LEVEL = 700, 1e-6
Case = tuple[str, dict[str, Any], str]  # the name, its arguments, and what a refusal says, if it is one
OPTUNA: list[Case] = [
    ("FloatDistribution", {"low": -1.0, "high": 3.0}, ""),
    ("FloatDistribution", {"low": 1e-5, "high": 10.0, "log": True}, ""),
    ("FloatDistribution", {"low": 0.0, "high": 1.0, "step": 0.1}, ""),
    ("FloatDistribution", {"low": 2.0, "high": 2.0}, ""),
    ("IntDistribution", {"low": -3, "high": 7}, ""),
    ("IntDistribution", {"low": 1, "high": 9, "log": True}, ""),
    ("IntDistribution", {"low": 1, "high": 9, "step": 4}, ""),
    ("IntDistribution", {"low": 4, "high": 4}, ""),
    ("CategoricalDistribution", {"choices": (None, 1, "a", 0.5)}, ""),
    ("CategoricalDistribution", {"choices": (1, True)}, "has 1 and True, which are equal"),
    ("UniformDistribution", {"low": 0.0, "high": 1.0}, "is a UniformDistribution of Optuna"),
    ("LogUniformDistribution", {"low": 0.1, "high": 1.0}, "is a LogUniformDistribution of Optuna"),
    ("DiscreteUniformDistribution", {"low": 0.0, "high": 1.0, "q": 0.5}, "is a DiscreteUniformDistribution of Optuna"),
    ("IntUniformDistribution", {"low": 0, "high": 4, "step": 2}, "is a IntUniformDistribution of Optuna"),
    ("IntLogUniformDistribution", {"low": 1, "high": 4, "step": 1}, "is a IntLogUniformDistribution of Optuna"),
]
RAY: list[Case] = [
    ("uniform", {"lower": -1.0, "upper": 3.0}, ""),
    ("uniform", {"lower": -1, "upper": 3}, ""),  # whole bounds of numbers
    ("quniform", {"lower": 0.0, "upper": 10.0, "q": 1}, ""),
    ("quniform", {"lower": 0.2, "upper": 1.0, "q": 0.1}, ""),
    ("loguniform", {"lower": 1e-4, "upper": 1.0}, ""),
    ("loguniform", {"lower": 1, "upper": 100}, ""),
    ("qloguniform", {"lower": 0.5, "upper": 10.0, "q": 0.5}, "is a logarithmic range of Ray Tune with steps of 0.5"),
    ("qloguniform", {"lower": 1.0, "upper": 10.0, "q": 1}, "is a logarithmic range of Ray Tune with steps of 1"),
    ("randint", {"lower": 1, "upper": 6}, ""),
    ("randint", {"lower": 1, "upper": 2}, ""),
    ("lograndint", {"lower": 1, "upper": 6}, ""),
    ("qrandint", {"lower": 1, "upper": 6, "q": 1}, ""),
    ("qrandint", {"lower": 2, "upper": 10, "q": 2}, ""),
    ("qlograndint", {"lower": 2, "upper": 10, "q": 2}, "is a logarithmic range of Ray Tune with steps of 2"),
    ("qlograndint", {"lower": 1, "upper": 6, "q": 1}, ""),
    ("choice", {"categories": [None, 1, "a", 0.5]}, ""),
    ("choice", {"categories": ["a", "b", "a"]}, "has 'a' twice"),
    (
        "choice",
        {"categories": [[64], [64, 64]]},
        "boolean or None; give it a name, which your function looks up in a dictionary",
    ),
    ("randn", {"mean": 0.0, "sd": 1.0}, "is a Normal Float of Ray Tune"),
    ("qrandn", {"mean": 0.0, "sd": 1.0, "q": 0.5}, "is a Normal Float of Ray Tune"),
    ("sample_from", {"func": len}, "Function of Ray Tune"),
]
REFUSED = "use a uniform, categorical, ordinal or constant parameter"
BETA, NORMAL = {"alpha": 2, "beta": 3, "lower": 1, "upper": 9}, {"mu": 5, "sigma": 2, "lower": 1, "upper": 9}
CONFIGSPACE: list[Case] = [
    ("UniformFloatHyperparameter", {"lower": -1.0, "upper": 3.0, "default_value": 0.0, "meta": {"unit": "s"}}, ""),
    ("UniformFloatHyperparameter", {"lower": 1e-4, "upper": 1.0, "log": True}, ""),
    ("UniformIntegerHyperparameter", {"lower": 1, "upper": 9, "log": True, "default_value": 2, "meta": None}, ""),
    ("UniformIntegerHyperparameter", {"lower": -2, "upper": 3}, ""),
    ("CategoricalHyperparameter", {"choices": ["a", "b", "c"], "default_value": "b", "weights": [1, 1, 1], "meta": None}, ""),
    ("CategoricalHyperparameter", {"choices": ["a", "b"], "weights": [0.9, 0.1]}, "parameter p: has weights"),
    ("OrdinalHyperparameter", {"sequence": ["low", "high"], "default_value": "high", "meta": None}, ""),
    ("Constant", {"value": 3, "meta": None}, ""),
    ("UnParametrizedHyperparameter", {"value": "x", "meta": None}, ""),
    ("NormalFloatHyperparameter", {**NORMAL, "log": False, "default_value": 2.0, "meta": None}, REFUSED),
    ("NormalIntegerHyperparameter", {**NORMAL, "log": False, "default_value": 2, "meta": None}, REFUSED),
    ("BetaFloatHyperparameter", {**BETA, "log": False, "default_value": 2.0, "meta": None}, REFUSED),
    ("BetaIntegerHyperparameter", {**BETA, "log": False, "default_value": 2, "meta": None}, REFUSED),
]
ABSTRACT = {"BaseDistribution", "Hyperparameter", "NumericalHyperparameter", "FloatHyperparameter", "IntegerHyperparameter"}


def test_no_distribution_and_no_option_is_left_out() -> None:
    kinds = {name: kind for name, kind in vars(optunas).items() if inspect.isclass(kind)}
    kinds = {name: kind for name, kind in kinds.items() if issubclass(kind, optunas.BaseDistribution)}
    _covers(OPTUNA, kinds, {"name"})
    made = {name: each for name, each in vars(rays).items() if inspect.isfunction(each) and each.__module__ == rays.__name__}
    _covers(RAY, {name: each for name, each in made.items() if not name.startswith("_")}, {"base"})  # deprecated, ignored there
    kinds = {
        name: kind for name, kind in vars(hyper).items() if inspect.isclass(kind) and issubclass(kind, hyper.Hyperparameter)
    }
    _covers(CONFIGSPACE, kinds, {"name"})


def _covers(cases: list[Case], kinds: dict[str, Any], aside: set[str]) -> None:
    assert {name for name, _, _ in cases} == set(kinds) - ABSTRACT
    for name in set(kinds) - ABSTRACT:
        given = set().union(*(arguments for each, arguments, _ in cases if each == name))
        assert given == set(inspect.signature(kinds[name]).parameters) - aside, name


def _ours(space: Any, seed: int = 1) -> list[Any]:
    read = read_space(written_space({"p": space, "other": (0.0, 1.0)}))
    draws = np.random.default_rng(seed).random((COUNT, len(read.parameters)))
    return [read.decode(u)["p"] for u in draws]


def _compare(ours: list[Any], theirs: list[Any], refused: str) -> None:
    assert not refused
    theirs = [each.item() if isinstance(each, np.generic) else each for each in theirs]
    if len(set(theirs)) > COUNT // 2:
        distance = ks_2samp(ours, theirs).statistic
        assert distance < math.sqrt(-math.log(LEVEL / 2) / 2) * math.sqrt(2 / COUNT)
    else:
        assert {(type(each), each) for each in ours} == {(type(each), each) for each in theirs}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("name", "arguments", "refused"), OPTUNA)
def test_optuna(name: str, arguments: dict[str, Any], refused: str) -> None:
    space = getattr(optunas, name)(**arguments)
    with _saying(refused):
        ours = _ours(space)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=2))
        draw = study.sampler.sample_independent
        theirs = [draw(study, None, "p", space) for _ in range(COUNT)]  # type: ignore[arg-type]
        _compare(ours, [space.low] * COUNT if space.single() and hasattr(space, "low") else theirs, refused)


@pytest.mark.parametrize(("name", "arguments", "refused"), RAY)
def test_ray_tune(name: str, arguments: dict[str, Any], refused: str) -> None:
    domain = getattr(rays, name)(**arguments)
    with _saying(refused):
        ours = _ours(domain)
        theirs = domain.sample(size=COUNT, random_state=np.random.RandomState(3))
        _compare(ours, theirs, refused)


@pytest.mark.parametrize(("name", "arguments", "refused"), CONFIGSPACE)
def test_configspace(name: str, arguments: dict[str, Any], refused: str) -> None:
    with _saying(refused):
        parameter = getattr(hyper, name)("p", **arguments)
        ours = _ours(parameter)
        space = CS.ConfigurationSpace(seed=4)
        space.add(parameter)
        _compare(ours, [configuration["p"] for configuration in space.sample_configuration(COUNT)], refused)


def _saying(refused: str) -> Any:
    return pytest.raises(ArgumentError, match=refused) if refused else nullcontext()
