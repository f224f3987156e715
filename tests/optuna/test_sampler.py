"""The sampler without an agent: what it infers from trials, shares through a storage, and learns of values and constraints."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

optuna = pytest.importorskip("optuna", reason="the sampler needs Optuna: pip install optuna")
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

from fedbo.optuna import Sampler  # noqa: E402
from fedbo.optuna.inferred_space import InferredSpace, union  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)


def branches(trial: Any) -> float:
    """Suggest a number of layers for a net only, with a width for each, and a depth for a tree."""
    kind, scale = trial.suggest_categorical("kind", ["net", "tree", None]), trial.suggest_float("scale", 0.0, 100.0, step=0.05)
    if kind == "net":
        widths = [trial.suggest_int(f"width {place}", 2, 64, log=True) for place in range(trial.suggest_int("layers", 1, 3))]
        return float(sum(widths) / 100.0 + abs(scale - 30.0))
    return float(trial.suggest_int("depth", 1, 9) if kind == "tree" else 20.0) + abs(scale - 30.0)


def test_branches_are_found_from_trials_and_all_that_a_branch_has_is_suggested() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    study.optimize(branches, n_trials=40)
    space = InferredSpace.of(study.trials, union(study.trials))
    assert space is not None
    rules = {each.pop("child"): each for each in json.loads(space.written)["conditions"]}
    assert rules["layers"] == {"type": "IN", "parent": "kind", "values": ["0"]}
    assert rules["depth"] == {"type": "IN", "parent": "kind", "values": ["1"]}
    assert rules["width 2"] == {"type": "GT", "parent": "layers", "value": 2} and "scale" not in rules
    for trial in study.trials:
        assert space.params(space.configuration(trial.params)) == trial.params
    study.sampler = Sampler(seed=1)
    study.optimize(branches, n_trials=12)
    for trial in study.trials[40:]:
        assert "scale" in trial.params and len(trial.params) >= 2
    assert study.best_value < min(trial.value for trial in study.trials[:40])


def test_ranges_that_change_choices_that_are_equal_and_single_values_are_suggested() -> None:
    def objective(trial: Any) -> float:
        low = trial.suggest_int("low", 0, 994, step=7)
        value = trial.suggest_float("x", low, low + 10.0) + trial.suggest_int("one", 1, 1)
        picked = trial.suggest_categorical("equal", [1, True, 1.0, float("nan"), (1, 2)])
        return float(value + (picked is True) + trial.suggest_float(f"new {trial.number}", 0.0, 1.0))

    with pytest.warns(UserWarning, match="Choices for a categorical distribution should be"):
        study = optuna.create_study(sampler=Sampler(seed=1, n_startup_trials=3))
        study.optimize(objective, n_trials=8)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 8
    assert {*study.sampler._space.names} == {"low", "x", "equal"}
    assert union(study.trials)["x"].high == max(trial.distributions["x"].high for trial in study.trials)


def quadratic(trial: Any) -> float:
    x, kind = trial.suggest_float("x", -5.0, 5.0), trial.suggest_categorical("kind", ["a", "b", "c"])
    return float((x - 1.0) ** 2 + "bca".index(kind))


def test_samplers_of_two_processes_share_a_study_and_what_runs_at_the_other(tmp_path: Path) -> None:
    def opened() -> Any:
        storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
        sampler = Sampler(seed=2, n_startup_trials=6)
        return optuna.create_study(study_name="s", storage=storage, sampler=sampler, load_if_exists=True)

    one, other = opened(), opened()
    one.optimize(quadratic, n_trials=6)
    running = [study.ask() for study in (one, other, one, other)]
    values = [quadratic(trial) for trial in running[:2]]
    values += [quadratic(trial) for trial in running[2:]]
    assert len({(trial.params["x"], trial.params["kind"]) for trial in running}) == 4
    third = opened()  # has no sampler that knows what runs
    new = third.ask()
    quadratic(new)
    assert new.params not in [trial.params for trial in running]
    assert sorted(third.sampler._tokens) == [6, 7, 8, 9, 10]
    for trial, value in zip(running, values, strict=True):
        third.tell(trial, value)
    third.optimize(quadratic, n_trials=3)
    assert third.best_trial.params["kind"] == "b" and third.best_value < 0.5
    assert third.sampler._tokens[6] in third.sampler._agent._log.told, "what ran elsewhere is learned by its token"


def test_values_constraints_and_references_become_metrics() -> None:
    def trained(trial: Any) -> tuple[float, float]:
        x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
        trial.set_constraint("memory", x - 0.5)
        trial.set_user_attr("memory", 99.0)
        return x + y, x * (2.0 - y)

    sampler = Sampler(seed=1, n_startup_trials=4)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    study.optimize(trained, n_trials=10)
    study.sampler.sample_relative(study, study.ask()._cached_frozen_trial, union(study.trials))
    first = [trial.values for trial in study.trials[:4]]
    worst = max(values[0] for values in first), min(values[1] for values in first)
    assert [table.get("reference") for table in sampler._agent.terms.metrics] == [*worst, None]
    told = list(sampler._agent._log.metrics.values())
    assert [metrics["constraint memory"] for metrics in told] == [trial.constraints["memory"] for trial in study.trials[:10]]
    front = {(metrics["objective 0"], metrics["objective 1"]) for _, metrics in sampler._agent.front()}
    assert front == {tuple(trial.values) for trial in study.best_trials}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of Optuna, on constraints_func
def test_a_function_of_constraints_limits_a_single_objective() -> None:
    sampler = Sampler(seed=1, n_startup_trials=5, constraints_func=lambda trial: (2.0 - trial.params["x"],))
    study = optuna.create_study(sampler=sampler)
    study.optimize(quadratic, n_trials=16)
    assert all(trial.constraints == {"0": 2.0 - trial.params["x"]} for trial in study.trials)
    assert study.best_trial.params["x"] == pytest.approx(2.0, abs=0.2)


def test_failed_pruned_and_enqueued_trials_and_those_of_other_samplers_are_learned() -> None:
    def moody(trial: Any) -> float:
        value = quadratic(trial)
        trial.report(value, 1)
        if trial.number % 4 == 1:
            raise optuna.TrialPruned
        if trial.number % 4 == 3:
            raise RuntimeError("not this one")
        return value

    study = optuna.create_study(sampler=Sampler(seed=1, n_startup_trials=2))
    study.enqueue_trial({"x": 4.0, "kind": "c"})
    study.add_trial(
        create_trial(
            params={"x": 3.0, "kind": "a"},
            distributions={"x": FloatDistribution(-5.0, 5.0), "kind": CategoricalDistribution(["a", "b", "c"])},
            value=6.0,
        )
    )
    study.optimize(moody, n_trials=10, catch=RuntimeError)
    study.ask({"n": IntDistribution(1, 3)})
    told = study.sampler._agent._log.told
    assert study.trials[0].params == {"x": 4.0, "kind": "c"} and 6.0 in told.values()
    values = [trial.value for trial in study.trials if trial.value is not None]
    assert sorted(value for value in told.values() if value is not None) == sorted(values)
    assert None in told.values()


def test_enqueued_values_outside_their_range_are_left_out_by_the_model_and_the_study_goes_on() -> None:
    study = optuna.create_study(sampler=Sampler(seed=1, n_startup_trials=2))
    study.optimize(quadratic, n_trials=4)
    study.enqueue_trial({"x": 9.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's own, of the range
        running = study.ask()
        running.suggest_float("x", -5.0, 5.0)
        running.suggest_categorical("kind", ["a", "b", "c"])
        study.optimize(quadratic, n_trials=2)
    study.tell(running, 1.0)
    with pytest.warns(UserWarning, match=r"^trial 4 was ignored: x = 9.0: must be a number in \[-5, 5\]$"):
        study.optimize(quadratic, n_trials=2)
    values = [value for value in study.sampler._agent._log.told.values() if value is not None]
    assert len(values) == 7 and len(study.trials) == 9, "all but trial 4, and the last, which is learned with the next"


def test_more_objectives_than_four_are_refused_before_the_first_trial() -> None:
    study = optuna.create_study(sampler=Sampler(), directions=["minimize"] * 5)
    with pytest.raises(ValueError, match="^study: has 5 objectives; use at most 4$"):
        study.optimize(lambda trial: [trial.suggest_float("x", 0.0, 1.0)] * 5, n_trials=1)
    assert not any(trial.params for trial in study.trials)


@pytest.mark.parametrize(("failed", "good", "drawn"), [(3, 1, True), (2, 2, False), (0, 3, True), (0, 4, False)])
def test_failed_trials_count_at_the_start_once_half_as_many_have_values(failed: int, good: int, drawn: bool) -> None:
    asked = list[str]()

    class Noted(optuna.samplers.RandomSampler):
        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            asked.append(name)
            return super().sample_independent(study, trial, name, distribution)

    study = optuna.create_study(sampler=Sampler(seed=1, n_startup_trials=4, independent_sampler=Noted(1)))
    held = {"x": FloatDistribution(0.0, 1.0)}
    for place in range(good):
        study.add_trial(create_trial(params={"x": 0.1 * place}, distributions=held, value=float(place)))
    for place in range(failed):
        study.add_trial(create_trial(state=TrialState.FAIL, params={"x": 1.0 - 0.1 * place}, distributions=held))
    study.ask().suggest_float("x", 0.0, 1.0)
    assert bool(asked) == drawn


def test_one_seed_gives_one_search_also_after_a_pickle_and_none_gives_others() -> None:
    def searched(sampler: Sampler, pickled: bool = False) -> list[Any]:
        study = optuna.create_study(sampler=sampler)
        study.optimize(quadratic, n_trials=8)
        study.sampler = pickle.loads(pickle.dumps(sampler)) if pickled else sampler
        study.optimize(quadratic, n_trials=2)
        return [trial.params for trial in study.trials]

    once = searched(Sampler(seed=4, n_startup_trials=4))
    assert searched(Sampler(seed=4, n_startup_trials=4), pickled=True) == once
    assert searched(Sampler(n_startup_trials=4)) != once
    reseeded = Sampler(seed=4, n_startup_trials=4)
    reseeded.reseed_rng()
    assert searched(reseeded) != once


def test_threads_share_a_sampler() -> None:
    study = optuna.create_study(sampler=Sampler(seed=1, n_startup_trials=4))
    study.optimize(quadratic, n_trials=16, n_jobs=4)
    assert len({str(trial.params) for trial in study.trials}) == 16


@pytest.mark.parametrize("directions", [["minimize"], ["minimize", "maximize"]])
def test_values_that_are_not_finite_or_too_large_do_not_stop_a_study(directions: list[str]) -> None:
    worth = [float("inf"), float("-inf"), 1e120, 1.0, 2.0]

    def objective(trial: Any) -> Any:
        value = worth[trial.number % 5] + trial.suggest_float("x", 0.0, 1.0)
        return value if len(directions) == 1 else (value, 1.0)

    study = optuna.create_study(directions=directions, sampler=Sampler(seed=1, n_startup_trials=2))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        study.optimize(objective, n_trials=10)
    assert {str(each.message).partition(":")[0] for each in told} <= {
        "trial 2 was ignored",
        "trial 7 counts as failed",
    } and told
    assert len(study.trials) == 10 and {trial.state for trial in study.trials} == {TrialState.COMPLETE}


def test_a_pruner_that_splits_a_study_into_brackets_shows_each_its_trials() -> None:
    def stepwise(trial: Any) -> float:
        value = quadratic(trial)
        for step in range(1, 28):
            trial.report(value + 1.0 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    pruner = optuna.pruners.HyperbandPruner(max_resource=27)
    study = optuna.create_study(sampler=Sampler(seed=1, n_startup_trials=5), pruner=pruner)
    study.optimize(stepwise, n_trials=30)
    assert study.best_value < 0.1 and TrialState.PRUNED in {trial.state for trial in study.trials}


def test_the_sampler_is_an_attribute_of_the_package_and_no_room_waits_for_optuna() -> None:
    code = "import sys, fedbo; fedbo.Terms; assert 'optuna' not in sys.modules; print(fedbo.optuna.Sampler(seed=1))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout == "Sampler\n", ended.stderr
