"""Our stoppers as a scheduler of Ray Tune: verdicts by brute force, beside Tune's own schedulers, restoring, and refusals."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

tune = pytest.importorskip("ray.tune", reason="the scheduler needs Ray Tune: pip install 'ray[tune]'")
from ray.tune import schedulers  # noqa: E402

import fedbo  # noqa: E402
from fedbo.tuning.ray_scheduler import RayScheduler  # noqa: E402
from fedbo.tuning.ray_searcher import RaySearcher  # noqa: E402

CONTROLLER = SimpleNamespace(get_live_trials=list)


class Trial:
    def __init__(self, number: int) -> None:
        self.trial_id = f"{number:05d}"


def trials(count: int) -> list[Any]:
    return [Trial(number) for number in range(count)]


def added(scheduler: Any, many: list[Any], mode: str = "max") -> Any:
    assert scheduler.set_search_properties("score", mode)
    for trial in many:
        scheduler.on_trial_add(CONTROLLER, trial)
    return scheduler


def stopped_at(scheduler: Any, many: list[Any], curves: np.ndarray, seed: int = 0) -> list[int]:
    """Let trials report in turns that are drawn; give the step at which each was stopped. `curves (n, steps)` has values."""
    rng, steps, going = np.random.default_rng(seed), [0] * len(many), list(range(len(many)))
    while going:
        n = going[int(rng.integers(len(going)))]
        steps[n] += 1
        result = {"training_iteration": steps[n], "score": float(curves[n, steps[n] - 1])}
        said = scheduler.on_trial_result(CONTROLLER, many[n], result)
        if said == "STOP" or steps[n] == curves.shape[1]:
            scheduler.on_trial_complete(CONTROLLER, many[n], result)
            going.remove(n)
    return steps


def noted(folder: Path, ids: list[str], sign: int) -> list[tuple[str, int, float]]:
    """Read the lines of the log: the trial, the rung and the value of the metric."""
    known = {int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]): name for name in ids}
    lines = [json.loads(line) for line in (folder / "rungs-0.jsonl").read_text().splitlines()]
    return [(known[number], fidelity, sign * value) for number, _, fidelity, value in lines]


def walks(count: int, steps: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 1)) + np.cumsum(rng.normal(size=(count, steps)), axis=1) / 5


class Replay:
    """Verdicts from the lines of the log alone, by counting."""

    def __init__(self, table: dict[str, Any], sign: int) -> None:
        self.table, self.sign = table, sign
        self.seen: dict[str, dict[int, float]] = {}
        self.first: dict[str, int] = {}

    def verdict(self, trial: str, fidelity: int, value: float) -> str:
        bracket = self.first.setdefault(trial, fidelity)
        others = [one for name, one in self.seen.items() if self.first[name] == bracket and fidelity in one]
        mine = self.seen.setdefault(trial, {})
        mine[fidelity] = self.sign * value
        if self.table["kind"] == "median":
            means = [mean(v for level, v in one.items() if level <= fidelity) for one in others]
            return "stop" if len(means) >= 3 and max(mine.values()) < median(means) else "go"
        better = sum(one[fidelity] > self.sign * value for one in others)
        return "go" if better < max(1, (len(others) + 1) // self.table.get("reduction", 3)) else "stop"


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize(
    "table", [{"kind": "asha"}, {"kind": "asha", "reduction": 2, "smallest": 2}, {"kind": "hyperband"}, {"kind": "median"}]
)
def test_verdicts_are_those_of_a_brute_force_replay_of_the_log(table: dict[str, Any], mode: str, tmp_path: Path) -> None:
    many, curves = trials(40), walks(40, 27, 1)
    steps = stopped_at(added(RayScheduler(tmp_path, table, 27), many, mode), many, curves)
    head = json.loads((tmp_path / "scheduler.json").read_text())
    assert head == {"stopping": table, "steps": 27, "metric": "score", "mode": mode}
    replay, ends, sign = Replay(table, 1 if mode == "max" else -1), dict[str, int](), 1 if mode == "max" else -1
    for trial, fidelity, value in noted(tmp_path, [trial.trial_id for trial in many], sign):
        assert trial not in ends, "none that was stopped is noted again"
        assert value == curves[int(trial), fidelity - 1]
        if fidelity == 27 or replay.verdict(trial, fidelity, value) == "stop":
            ends[trial] = fidelity
    assert [ends[trial.trial_id] for trial in many] == steps
    assert {27} < set(steps), "some are stopped"


@pytest.mark.parametrize("reduction", [2, 3, 4])
def test_tunes_asha_lets_go_on_what_ours_does_and_others_by_its_interpolation_alone(reduction: int, tmp_path: Path) -> None:
    """Tune takes a percentile of the m values before, ours the best of m + 1: the same where m < 2, or odd with reduction 2."""
    many, rng, differ = trials(12), np.random.default_rng(3), set[int]()
    for turn in range(40):
        ours = added(RayScheduler(tmp_path / str(turn), {"kind": "asha", "reduction": reduction}, reduction + 1), many)
        theirs = added(schedulers.ASHAScheduler(max_t=reduction, reduction_factor=reduction), many)
        for before, (trial, value) in enumerate(zip(many, rng.normal(size=12), strict=True)):
            result = {"training_iteration": 1, "score": float(value)}
            said, told = (one.on_trial_result(CONTROLLER, trial, result) for one in (ours, theirs))
            assert said == told or (said, told) == ("STOP", "CONTINUE")
            differ |= {before} if said != told else set()
    assert differ and differ <= set(range(2, 12, 2) if reduction == 2 else range(2, 12))


def test_the_median_rule_stops_the_same_trials_at_the_same_steps_as_tunes(tmp_path: Path) -> None:
    many, curves = trials(40), walks(40, 12, 2)
    ours = added(RayScheduler(tmp_path, "median", 12), many)
    theirs = added(schedulers.MedianStoppingRule("training_iteration", grace_period=1, min_samples_required=3), many)
    steps = stopped_at(ours, many, curves)
    assert steps == stopped_at(theirs, many, curves)
    assert len({*steps}) > 3


def test_a_scheduler_of_the_same_folder_goes_on_where_it_was_also_after_a_kill_within_a_line(tmp_path: Path) -> None:
    many, curves = trials(30), walks(30, 9, 4)
    scheduler = added(RayScheduler(tmp_path, "hyperband", 9), many)
    steps = stopped_at(scheduler, many, curves)
    before = (tmp_path / "rungs-0.jsonl").read_bytes()
    with (tmp_path / "rungs-0.jsonl").open("a") as file:
        file.write("[99, 0, 1, 0.")
    copies = added(pickle.loads(pickle.dumps(scheduler)), many), added(RayScheduler(tmp_path, "hyperband", 9), many)
    for again in copies:
        assert stopped_at(again, many, curves, seed=2) == steps, "told again what they were told"
        assert again.debug_string() == scheduler.debug_string() == f"Using hyperband of fedbo: num_stopped={stops(steps)}"
    assert (tmp_path / "rungs-0.jsonl").read_bytes() == before + b"[99, 0, 1, 0."
    with pytest.raises(ValueError, match='has rungs of .*"hyperband".*; use the same arguments, or a new folder'):
        added(RayScheduler(tmp_path, "asha", 9), many)


def stops(steps: list[int]) -> int:
    return sum(step < 9 for step in steps)


def test_results_without_metric_or_time_are_passed_over_and_what_is_no_number_is_worst(tmp_path: Path) -> None:
    many = trials(3)
    scheduler = added(RayScheduler(tmp_path, "asha", 9), many, "min")
    for result in ({"training_iteration": 1}, {"score": 1.0}):
        assert scheduler.on_trial_result(CONTROLLER, many[0], result) == "CONTINUE"
    assert not (tmp_path / "rungs-0.jsonl").exists()
    found = []
    for trial, value in zip(many, (5.0, float("nan"), None), strict=True):
        found.append(scheduler.on_trial_result(CONTROLLER, trial, {"training_iteration": 4, "score": value}))
    assert found == ["CONTINUE", "STOP", "STOP"]
    assert len((tmp_path / "rungs-0.jsonl").read_text().splitlines()) == 2 + 1 + 1, "the first passed two rungs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("asah", 9), "stopping = 'asah': no stopper 'asah'; did you mean 'asha'"),
        (
            ({"kind": "asha", "smallest": 9}, 9),
            "stopping['smallest'] = 9: must be at least 1",
        ),
        (({"kind": "asha", "reduction": 1}, 9), "stopping['reduction'] = 1: must be at least 2"),
        (
            ({"kind": "asha", "variant": "promote"}, 9),
            "stopping['variant'] = 'promote': must be \"stop\" in Ray Tune",
        ),
        (({"kind": "median", "graze": 2}, 9), "stopping['graze'] = 2: no such key; did you mean 'grace'"),
        (({"kind": 3}, 9), "stopping = 3: must be a string in quotes"),
        (("asha", 1), "steps = 1: must be a whole number, at least 2"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(arguments: tuple[Any, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as found:
        RayScheduler(tmp_path, *arguments)
    assert "\n" not in str(found.value)


def test_metric_and_mode_are_needed_once(tmp_path: Path) -> None:
    scheduler = RayScheduler(tmp_path, "asha", 9, metric="score", mode="min")
    assert scheduler.set_search_properties(None, None) and scheduler.set_search_properties("score", "min")
    assert not scheduler.set_search_properties("loss", None) and not scheduler.set_search_properties(None, "max")
    with pytest.raises(ValueError, match="RayScheduler requires both; pass them to TuneConfig or RayScheduler"):
        RayScheduler(tmp_path, "asha", 9).on_trial_add(CONTROLLER, trials(1)[0])


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_an_experiment_stops_early_and_a_restored_one_goes_on_with_its_rungs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    broken = tmp_path / "broken"
    broken.touch()

    def train(config: dict[str, Any]) -> None:
        from pathlib import Path

        for step in range(1, 100):
            if step == 5 and Path(config["broken"]).exists():
                raise RuntimeError("not now")
            tune.report({"loss": config["rate"] + 1 / step})

    space = {"rate": tune.uniform(0.0, 1.0), "broken": str(broken)}
    searcher = RaySearcher(tmp_path / "agent", terms=fedbo.Terms("random", seed=3))
    trainable = tune.with_resources(train, {"cpu": 0.5})
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=8, search_alg=searcher,
            scheduler=RayScheduler(tmp_path / "rungs", {"kind": "asha", "reduction": 3}, 20),
        ),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )  # fmt: skip
    first = tuner.fit()
    assert first.errors and {result.metrics["training_iteration"] for result in first if not result.error} <= {1, 3}
    before = (tmp_path / "rungs" / "rungs-0.jsonl").read_text()
    broken.unlink()
    again = tune.Tuner.restore(str(tmp_path / "run"), trainable, restart_errored=True, param_space=space).fit()
    after = (tmp_path / "rungs" / "rungs-0.jsonl").read_text()
    assert not again.errors and after.startswith(before) and len(after) > len(before)
    replay, ends = Replay({"kind": "asha"}, -1), list[int]()
    for trial, fidelity, value in noted(tmp_path / "rungs", [result.metrics["trial_id"] for result in again], -1):
        if fidelity == 20 or replay.verdict(trial, fidelity, value) == "stop":
            ends.append(fidelity)
    assert sorted(result.metrics["training_iteration"] for result in again) == sorted(ends)
    told = searcher._agent._log.told.values()
    assert set(told) >= {result.metrics["loss"] for result in first if not result.error}
    searcher.close()
