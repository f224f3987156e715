"""Ray Tune's experiments on agents of fedbo, held to Tune's own contract of searchers: real runs, limits and restoring."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ConfigSpace as CS
import pytest

tune = pytest.importorskip("ray.tune", reason="the searcher needs Ray Tune: pip install 'ray[tune]'")
from ray.tune.search import ConcurrencyLimiter  # noqa: E402

import fedbo  # noqa: E402
from fedbo.tuning.evaluated import evaluated  # noqa: E402
from fedbo.tuning.ray_searcher import RaySearcher  # noqa: E402

SPACE: dict[str, Any] = {
    "model": {"rate": tune.loguniform(1e-4, 1.0), "n": tune.randint(1, 31), "name": "tree"},
    "kind": tune.choice(["a", "b"]),
    "epochs": 2,
}


def searcher_of(folder: Path, **more: Any) -> RaySearcher:
    searcher = RaySearcher(folder, terms=fedbo.Terms(more.pop("algorithm", "ts"), seed=1), **more)
    assert searcher.set_search_properties("loss", "min", SPACE)
    return searcher


def test_a_suggestion_has_the_shape_of_the_space_and_leaves_constants_to_tune(tmp_path: Path) -> None:
    searcher = searcher_of(tmp_path)
    config = searcher.suggest("t1")
    assert set(config) == {"model", "kind"} and set(config["model"]) == {"rate", "n"}
    assert searcher.suggest("t1") == config != searcher.suggest("t2"), "one trial has one configuration"
    searcher.close()


def test_values_count_once_and_failures_have_no_value(tmp_path: Path) -> None:
    searcher = searcher_of(tmp_path)
    best = searcher.suggest("t1")
    for trial in ("t2", "t3", "t4"):
        searcher.suggest(trial)
    searcher.on_trial_result("t1", {"loss": 9.0})
    for loss in (2.0, 1.0):
        searcher.on_trial_complete("t1", {"loss": loss})
    searcher.on_trial_complete("t2", None, error=True)
    searcher.on_trial_complete("t3", {"other": 1.0})
    searcher.on_trial_complete("t4", {"loss": float("nan")})
    searcher.on_trial_complete("unheard of", {"loss": 0.0})
    flat = {"model/rate": best["model"]["rate"], "model/n": best["model"]["n"], "kind": best["kind"]}
    assert searcher._agent.best() == (flat, 2.0)
    assert searcher._agent.pending() == []
    retried = searcher._agent.given("00000-000001").configuration
    for _ in range(2):
        searcher.on_trial_complete("t2", {"loss": 1.5})
    assert searcher._agent.best() == (retried, 1.5), "what failed counts once it has succeeded"
    known = {"model": {"rate": 0.01, "n": 3}, "kind": "b"}
    for _ in range(2):
        searcher.add_evaluated_point(known, 0.5)
    assert searcher._agent.best() == ({"model/rate": 0.01, "model/n": 3, "kind": "b"}, 0.5)
    searcher.close()


def test_a_trial_that_is_stopped_while_it_is_paused_counts_with_its_last_report(tmp_path: Path) -> None:
    searcher = searcher_of(tmp_path / "agent")
    for trial in ("t1", "t2", "t3"):
        searcher.suggest(trial)
        for loss in (3.0, 2.0):
            searcher.on_trial_result(trial, {"loss": loss})
    searcher.on_trial_result("t1", {"seconds": 1.0})
    searcher.save_to_dir(str(tmp_path), "one")
    copy = RaySearcher(tmp_path / "agent", terms=searcher._terms)
    copy.restore_from_dir(str(tmp_path))
    copy.on_trial_complete("t1")  # as Tune tells of one that is paused
    copy.on_trial_complete("t2", {"loss": 1.0})
    copy.on_trial_complete("t3", error=True)
    assert list(copy._agent._log.told.values()) == [2.0, 1.0, None]
    copy.close()


def test_a_saved_searcher_goes_on_and_holds_no_pickle(tmp_path: Path) -> None:
    searcher = searcher_of(tmp_path / "agent")
    limited = ConcurrencyLimiter(searcher, max_concurrent=2)
    assert limited.suggest("t1") and limited.suggest("t2") and limited.suggest("t3") is None
    searcher.save_to_dir(str(tmp_path), "one")
    (saved,) = tmp_path.glob("searcher-state-one.json")
    assert len(json.loads(saved.read_text())["open"]) == 2
    expected = searcher.suggest("t1")
    searcher.suggest("after the save")
    copy = pickle.loads(pickle.dumps(searcher))  # as Tune does within a Tuner
    searcher.close()
    copy.restore_from_dir(str(tmp_path))
    assert copy.suggest("t1") == expected
    assert len(copy._agent.pending()) == 2, "what the experiment knows nothing of is given up"
    copy.close()
    with pytest.raises(ValueError, match="is of agent 0 in .*agent', not of 0 in .*other'; restore with that one"):
        RaySearcher(tmp_path / "other").restore(str(saved))


def test_conditions_and_what_cannot_be_tuned(tmp_path: Path) -> None:
    space = CS.ConfigurationSpace({"kind": ["tree", "net"], "layers": (1, 4)})
    space.add(CS.EqualsCondition(space["layers"], space["kind"], "net"))
    searcher = RaySearcher(tmp_path / "a", space, fedbo.Terms("random", initial=0, repeats=True), metric="loss", mode="min")
    assert searcher.set_search_properties(None, None, {"epochs": 3})
    found = [searcher.suggest(str(n)) for n in range(12)]
    assert all(("layers" in config) == (config["kind"] == "net") for config in found)
    assert not searcher.set_search_properties("loss", "min", SPACE), "Tune then says what is left unresolved"
    searcher.close()
    once = RaySearcher(tmp_path / "once", space, fedbo.Terms("random"), metric="loss", mode="min")
    asked = [once.suggest(str(n)) for n in range(6)]
    assert asked[5] == once.FINISHED and once.FINISHED not in asked[:5], "a space of five configurations runs out"
    once.close()
    with pytest.raises(
        ValueError, match="RaySearcher requires a space; pass param_space to the Tuner, or space to RaySearcher"
    ):
        RaySearcher(tmp_path / "b").suggest("t1")
    with pytest.raises(ValueError, match="RaySearcher requires both; pass them to TuneConfig"):
        RaySearcher(tmp_path / "b", space).suggest("t1")
    with pytest.raises(ValueError, match=r"space\['x'\]: is a CallSampler Function of Ray Tune"):
        RaySearcher(tmp_path / "b").set_search_properties("loss", "min", {"x": tune.sample_from(lambda spec: 1)})


EVERY: dict[str, Any] = {  # each function of Tune that makes a domain, but sample_from, which Tune resolves without searchers
    "uniform": tune.uniform(-1.0, 2.0),
    "quniform": tune.quniform(0.0, 2.0, 0.1),
    "loguniform": tune.loguniform(1e-4, 1.0),
    "qloguniform": tune.qloguniform(0.05, 7.0, 0.05),
    "qloguniform by one": tune.qloguniform(1.0, 2000.0, 1),
    "randn": tune.randn(3.0, 2.0),
    "qrandn": tune.qrandn(0.0, 2.0, 0.25),
    "randint": tune.randint(-3, 5),
    "qrandint": tune.qrandint(0, 30, 5),
    "lograndint": tune.lograndint(1, 1000),
    "qlograndint": tune.qlograndint(10, 5000, 10),
    "qlograndint by one": tune.qlograndint(2, 50, 1),
    "one of a step": tune.qlograndint(8, 15, 8),
    "choice": tune.choice(["a", None, 3, True]),
    "grid": tune.grid_search([1, 2, 4]),
}


def test_every_distribution_is_suggested_in_its_own_values_and_type(tmp_path: Path) -> None:
    searcher = RaySearcher(terms=fedbo.Terms("random", seed=1, initial=0))
    assert searcher.set_search_properties("loss", "min", {"inner": EVERY})
    found = [searcher.suggest(f"t{number}")["inner"] for number in range(60)]
    for name in EVERY.keys() - {"choice", "grid", "one of a step", "randn", "qrandn"}:
        domain, values = EVERY[name], [one[name] for one in found]
        own = domain.sample()
        assert {type(value) for value in values} == {type(own)}, name
        assert all(domain.is_valid(value) for value in values) and len({*values}) > 3, name
        step = getattr(domain.sampler, "q", None)
        assert step is None or all(abs(value / step - round(value / step)) < 1e-9 for value in values), name
    assert 2.0 < sum(one["randn"] for one in found) / 60 < 4.0 and all(one["qrandn"] % 0.25 == 0 for one in found)
    middle = sorted(one["qlograndint"] for one in found)[30]
    assert 50 < middle < 1000, "spread by logarithms"
    assert {one["choice"] for one in found} == {"a", None, 3, True} and {one["grid"] for one in found} == {1, 2, 4}
    for number, one in enumerate(found[:3]):
        searcher.add_evaluated_point({"inner": {name: value for name, value in one.items() if name != "one of a step"}}, number)
    assert len(searcher._agent._log.told) == 3
    assert searcher._coded({"inner": {"qlograndint": 250, "qloguniform": 0.35}}) == {
        "inner/qlograndint": 25,
        "inner/qloguniform": 7,
    }


def test_points_to_evaluate_come_first_and_an_agent_in_memory_is_saved_with_them(tmp_path: Path) -> None:
    points = [{"rate": 20.0, "kind": "b"}, {"rate": 100.0, "kind": "a"}, {"rate": 30.0, "kind": "a"}]
    space = {"rate": tune.qloguniform(10.0, 1000.0, 10.0), "kind": tune.choice(["a", "b"])}

    def opened() -> RaySearcher:
        searcher = RaySearcher(points_to_evaluate=points)
        assert searcher.set_search_properties("loss", "min", space)
        return searcher

    searcher = opened()
    assert [searcher.suggest("t1"), searcher.suggest("t1"), searcher.suggest("t2")] == [points[0], points[0], points[1]]
    searcher.on_trial_complete("t1", {"loss": 3.0})
    searcher.save(str(tmp_path / "state"))
    searcher.on_trial_complete("t2", {"loss": 0.5})
    expected = [searcher.suggest("t3"), searcher.suggest("t4")]
    for again in (RaySearcher(), opened()):
        again.restore(str(tmp_path / "state"))
        again.on_trial_complete("t2", {"loss": 0.5})
        assert [again.suggest("t3"), again.suggest("t4")] == expected and expected[0] == points[2]
        assert again._agent.best() == ({"rate": 10, "kind": "a"}, 0.5)
    copy = pickle.loads(pickle.dumps(searcher))
    assert copy.suggest("t5") == searcher.suggest("t5")


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_an_experiment_of_ray_tune_runs_fails_and_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    broken = tmp_path / "broken"
    broken.touch()

    def train(config: dict[str, Any]) -> None:  # within, so that workers need not import this module
        loss = abs(config["model"]["n"] - 12) + config["model"]["rate"]
        for step in range(config["epochs"]):
            tune.report({"loss": loss + 1 - step})
        if config["kind"] == "a" and os.path.exists(config["broken"]):
            raise RuntimeError("not this kind")

    meeting = fedbo.Meeting(tmp_path / "meeting")
    searcher = RaySearcher(tmp_path / "agent", terms=fedbo.Terms("fts", agents=2, seed=3), meeting=meeting)
    trainable = tune.with_resources(train, {"cpu": 0.5})
    tuner = tune.Tuner(
        trainable,
        param_space={**SPACE, "broken": str(broken)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=3,
            search_alg=ConcurrencyLimiter(searcher, max_concurrent=2),
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert len(results) == 3
    values = [value for value in searcher._agent._log.told.values() if value is not None]
    good = [result.metrics["loss"] for result in results if not result.error]
    assert sorted(values) == sorted(good) and len(good) == 2
    assert len(searcher._agent._log.told) == 3
    assert list((tmp_path / "meeting").glob("*.message"))
    broken.unlink()
    again = tune.Tuner.restore(
        str(tmp_path / "run"), trainable, restart_errored=True, param_space={**SPACE, "broken": str(broken)}
    )
    assert len([result for result in again.fit() if not result.error]) == 3
    assert len(searcher._agent._log.told) == 3, "nothing is told twice"
    searcher.close()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.filterwarnings("ignore")  # Tune's own
@pytest.mark.parametrize(
    "scheduler",
    [
        lambda: tune.schedulers.ASHAScheduler(max_t=9, reduction_factor=3),
        lambda: tune.schedulers.HyperBandScheduler(max_t=9),
        lambda: tune.schedulers.MedianStoppingRule(grace_period=2, min_samples_required=2),
    ],
    ids=["asha", "hyperband", "median"],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_what_a_scheduler_of_tune_stops_counts_with_its_last_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: Callable[[], Any], in_memory: bool
) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 10):
            tune.report({"loss": config["model"]["n"] + 1.0 / step})

    searcher = RaySearcher(None if in_memory else tmp_path / "agent", terms=fedbo.Terms("random", seed=3))
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 0.5}),
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=6, search_alg=ConcurrencyLimiter(searcher, max_concurrent=1),
            scheduler=(rule := scheduler()), reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )  # fmt: skip
    results = tuner.fit()
    if isinstance(rule, tune.schedulers.ASHAScheduler):  # the others need more trials
        assert {result.metrics["training_iteration"] for result in results} > {9}, "some end early"
    told = tuner._local_tuner._tune_config.search_alg.searcher._agent._log.told
    assert sorted(told.values()) == sorted(result.metrics["loss"] for result in results) and len(told) == 6
    searcher.close()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_an_experiment_with_an_agent_in_memory_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    broken = tmp_path / "broken"
    broken.touch()

    def train(config: dict[str, Any]) -> None:
        if config["width"] != 70 and os.path.exists(config["broken"]):
            raise RuntimeError("not now")
        tune.report({"loss": abs(config["width"] - 50) + config["rate"]})

    space = {"width": tune.qlograndint(10, 500, 10), "rate": tune.randn(0.0, 1.0), "broken": str(broken)}
    searcher = RaySearcher(points_to_evaluate=[{"width": 70, "rate": 0.5}])
    trainable = tune.with_resources(train, {"cpu": 0.5})
    tune_config = tune.TuneConfig(
        metric="loss", mode="min", num_samples=5, search_alg=ConcurrencyLimiter(searcher, max_concurrent=1)
    )
    run_config = tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0)
    results = tune.Tuner(trainable, param_space=space, tune_config=tune_config, run_config=run_config).fit()
    assert [result.error is None for result in results].count(True) == 1
    broken.unlink()
    again = tune.Tuner.restore(str(tmp_path / "run"), trainable, restart_errored=True, param_space=space).fit()
    assert [result.error for result in again] == [None] * 5
    assert all(result.config["width"] % 10 == 0 for result in again)
    points = evaluated(again, {"width": (10, 500), "rate": (-9.0, 9.0)})
    assert [point.value for point in points] == [result.metrics["loss"] for result in again]
    assert [point.configuration for point in points] == [
        {name: result.config[name] for name in ("width", "rate")} for result in again
    ]
