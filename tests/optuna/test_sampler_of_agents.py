"""Optuna's studies on agents of fedbo, held to Optuna's own contract of samplers: real runs in memory and in a journal."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ConfigSpace as CS
import pytest

optuna = pytest.importorskip("optuna", reason="the sampler needs Optuna: pip install optuna")
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

import fedbo  # noqa: E402
from fedbo.optuna import Sampler  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPACE: dict[str, Any] = {
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "width": FloatDistribution(0.0, 1.0, step=0.25),
    "n": IntDistribution(1, 30),
    "kind": CategoricalDistribution(["a", "b", None]),
}


def loss(trial: Any) -> float:
    rate, n = trial.suggest_float("rate", 1e-4, 1.0, log=True), trial.suggest_int("n", 1, 30)
    width, kind = trial.suggest_float("width", 0.0, 1.0, step=0.25), trial.suggest_categorical("kind", ["a", "b", None])
    return float((math.log10(rate) + 2) ** 2 + 0.01 * (n - 12) ** 2 + abs(width - 0.5) + (kind != "b"))


def conditional() -> CS.ConfigurationSpace:
    space = CS.ConfigurationSpace({"kind": ["tree", "net"], "layers": (1, 4), "version": 3})
    space.add(CS.Float("rate", (1e-4, 1.0), log=True))
    space.add(CS.EqualsCondition(space["layers"], space["kind"], "net"))
    return space


def sampler_of(folder: Path, space: Any, terms: fedbo.Terms, number: int = 0, meeting: fedbo.Meeting | None = None) -> Sampler:
    """Make a sampler of an agent that repeats what it suggests."""
    return Sampler(agent=fedbo.Agent(folder, space, replace(terms, repeats=True), number, meeting))


def close(sampler: Sampler) -> None:
    """Close the folder of the sampler's agent."""
    assert sampler._agent is not None
    sampler._agent.close()


def told(sampler: Sampler) -> dict[str, float | None]:
    """Give what the sampler's agent was told, by token."""
    assert sampler._agent is not None
    return sampler._agent._log.told


def test_a_study_comes_to_a_better_value_than_it_began_with(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, SPACE, fedbo.Terms("gp_ei", seed=2, mode="min"))
    study = optuna.create_study(sampler=sampler)
    study.optimize(loss, n_trials=18)
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    values = [trial.value for trial in study.trials]
    assert min(values[3:]) < min(values[:3])
    assert sorted(value for value in told(sampler).values() if value is not None) == sorted(values)
    close(sampler)


def test_inactive_parameters_are_not_suggested_and_others_are_drawn(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, conditional(), fedbo.Terms("ts", initial=4))

    def worth(trial: Any) -> float:
        kind, rate = trial.suggest_categorical("kind", ["tree", "net"]), trial.suggest_float("rate", 1e-4, 1.0, log=True)
        assert ("layers" in trial.relative_params) == (kind == "net")
        layers = trial.suggest_int("layers", 1, 4) if kind == "net" else 0
        return float(layers - rate + 0.1 * trial.suggest_float("elsewhere", 0.0, 1.0))

    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(worth, n_trials=9)
    assert {trial.params["kind"] for trial in study.trials} == {"tree", "net"}
    assert len({trial.params["elsewhere"] for trial in study.trials}) == 9
    assert len(told(sampler)) == 9 and None not in told(sampler).values()
    close(sampler)


def test_pruned_trials_teach_the_last_value_that_they_reported_and_failed_ones_nothing(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, SPACE, fedbo.Terms("random", mode="min"))

    def moody(trial: Any) -> float:
        value = loss(trial)
        trial.report(value + 1.0, 1)
        trial.report(value, 2)
        if trial.number % 6 == 1:
            raise optuna.TrialPruned
        if trial.number % 6 == 4:
            trial.report(float("nan"), 3)
            raise optuna.TrialPruned
        if trial.number % 3 == 2:
            raise RuntimeError("not this one")
        return value

    study = optuna.create_study(sampler=sampler)
    study.optimize(moody, n_trials=6, catch=RuntimeError)
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL] * 2
    found = list(told(sampler).values())
    assert [value is None for value in found] == [False, False, True, False, True, True]
    assert found[1] == study.trials[1].value == study.trials[1].intermediate_values[2]
    assert sampler._agent is not None and sampler._agent.pending() == []
    close(sampler)


def test_threads_share_a_sampler_and_points_under_way_differ(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, SPACE, fedbo.Terms("ts", mode="min"))
    study = optuna.create_study(sampler=sampler)
    study.optimize(loss, n_trials=12, n_jobs=4)
    assert len(told(sampler)) == 12 == len({str(trial.params) for trial in study.trials})
    open_ones = [study.ask(SPACE) for _ in range(3)]
    assert len({str(trial.params) for trial in open_ones}) == 3
    for trial in open_ones:
        study.tell(trial, 1.0)
    assert len(told(sampler)) == 15
    close(sampler)


def test_a_study_in_a_journal_goes_on_in_a_new_process_of_the_sampler(tmp_path: Path) -> None:
    def opened() -> tuple[Any, Sampler]:
        storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
        sampler = sampler_of(tmp_path / "agent", SPACE, fedbo.Terms("ts", seed=1, mode="min"))
        return optuna.create_study(study_name="s", storage=storage, sampler=sampler, load_if_exists=True), sampler

    study, sampler = opened()
    study.optimize(loss, n_trials=4)
    lost = study.ask(SPACE)  # whoever had it in hand ends here
    close(sampler)
    study, sampler = opened()
    assert study.ask(SPACE).params == lost.params, "the agent hands it out again"
    study.optimize(loss, n_trials=3)
    assert len([value for value in told(sampler).values() if value is not None]) == 7
    close(sampler)


def test_trials_of_another_origin_are_taken_in_once(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, SPACE, fedbo.Terms("ts", mode="min"))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(1))
    study.optimize(loss, n_trials=5)
    study.sampler = sampler
    fixed = {"rate": 0.01, "n": 12, "width": 0.5, "kind": "b"}
    study.enqueue_trial(fixed)
    study.optimize(loss, n_trials=3)
    added = {token: value for token, value in told(sampler).items() if "added" in token}
    assert sorted(value or 0.0 for value in added.values()) == sorted(t.value for t in study.trials[:6])
    assert sampler._agent is not None and sampler._agent.best() == (fixed, 0.0)
    assert sum(value is not None for value in told(sampler).values()) == 8
    with pytest.warns(UserWarning, match="trial 8 was ignored: configuration: rate = 50.0: must be a number in"):
        params = {**fixed, "rate": 50.0}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions={**SPACE, "rate": FloatDistribution(1e-4, 100.0)}, value=1.0)
        )
        study.ask(SPACE)
    close(sampler)


def test_studies_of_two_sites_learn_from_each_other(tmp_path: Path) -> None:
    def asked(k: int, meeting: fedbo.Meeting | None, folder: str) -> list[Any]:
        terms = fedbo.Terms({"name": "fts", "p": 0.0}, agents=2, seed=3, mode="min")
        sampler = sampler_of(tmp_path / folder / str(k), SPACE, terms, k, meeting)
        study = optuna.create_study(sampler=sampler)
        study.optimize(loss, n_trials=6)
        close(sampler)
        return [trial.params for trial in study.trials]

    meeting = fedbo.Meeting(tmp_path / "meeting")
    asked(0, meeting, "together")
    together, alone = asked(1, meeting, "together"), asked(1, None, "alone")
    assert together[:3] == alone[:3] and together != alone


def test_a_study_with_several_objectives_or_another_direction_is_refused(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, SPACE, fedbo.Terms(mode="min"))
    with pytest.raises(ValueError, match="has 2 objectives; use a study with one objective"):
        optuna.create_study(directions=["minimize", "maximize"], sampler=sampler).ask(SPACE)
    optuna.create_study(sampler=sampler).ask(SPACE)
    with pytest.raises(ValueError, match="has direction 'max', not 'min'; set mode = 'max'"):
        optuna.create_study(direction="maximize", sampler=sampler).ask(SPACE)
    close(sampler)
