"""A tuning that Optuna's storage follows while it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial

import fedbo
from fedbo.optuna.export import NUMBER, export_to_optuna

VIRTUAL: dict[str, Any] = {"timing": {"clock": "virtual"}, "hosting": {"kind": "inline"}, "evaluation": {"resources": []}}
SPACE = {"rate": (1e-3, 1.0, "log"), "n": (1, 4), "kind": ["a", "b"], "fixed": 3}


def loss(config: dict[str, Any], agent: int) -> dict[str, Any]:
    if config["n"] == 3:
        raise ValueError("three is one too many")
    return {"loss": config["rate"] + agent, "seconds": 2.0, "note": f"of {agent}"}


def tuned(out: Path, mirror: Any, iterations: int = 6, resume: bool = False) -> Any:
    return fedbo.tune(
        loss, SPACE, 2, iterations=iterations, out=out, mirror=mirror, name="live", metric="loss", mode="min",
        algorithm="random", seed=2, study=VIRTUAL, resume=resume,
    )  # fmt: skip


def trials_of(storage: Any) -> dict[str, list[FrozenTrial]]:
    return {name: optuna.load_study(study_name=name, storage=storage).trials for name in optuna.get_all_study_names(storage)}


def facts(trial: FrozenTrial) -> tuple[Any, ...]:
    notes = {name: each for name, each in trial.user_attrs.items() if name not in (NUMBER, "step", "origin")}
    return trial.state, trial.values, trial.params, notes, trial.distributions, trial.duration


def test_the_mirror_of_a_run_is_its_export(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    result = tuned(tmp_path / "run", url)
    names = export_to_optuna(result, tmp_path / "journal")
    exported = trials_of(optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal"))))
    mirrored = trials_of(url)
    assert list(mirrored) == names and {trial.state.name for trial in mirrored[names[0]]} == {"COMPLETE", "FAIL"}
    for name in names:
        assert [facts(trial) for trial in mirrored[name]] == [facts(trial) for trial in exported[name]]
        assert [trial.user_attrs[NUMBER] for trial in mirrored[name]] == list(range(9))
    good = next(trial for trial in mirrored[names[1]] if trial.values)
    assert (good.user_attrs["note"], good.user_attrs["seconds"]) == ("of 1", 2.0)


def test_each_trial_is_there_once_after_a_resume_and_others_are_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    tuned(tmp_path / "run", url)
    before = trials_of(url)
    result = tuned(tmp_path / "run", url, iterations=8, resume=True)
    after = trials_of(url)
    assert {name: len(trials) for name, trials in after.items()} == dict.fromkeys(before, 11) and len(result.observations) == 22
    for name, trials in before.items():
        assert [facts(trial) for trial in after[name][:9]] == [facts(trial) for trial in trials]
    for other, resume in ((tmp_path / "other", False), (tmp_path / "other", True)):
        with pytest.raises(
            fedbo.errors.ArgumentError, match="has the study 'live, random, replicate 0, agent 0' of another run"
        ):
            tuned(other, url, resume=resume)


def test_a_storage_that_cannot_be_opened_is_refused_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(
        fedbo.errors.ArgumentError, match=re.escape("mirror = 'nowhere': cannot be opened by Optuna (ArgumentError: ")
    ):
        tuned(tmp_path / "run", "nowhere")
    assert not (tmp_path / "run").exists()
