"""WISDM's phone users: the published counts, splits as the Google glasses had them, and what an evaluation gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedbo.algorithms.streams import Streams
from fedbo.objectives.classifiers.logistic import LogisticAgent
from fedbo.objectives.classifiers.wisdm import ACTIVITIES, TASKS, UserRows, Wisdm, completed, held_out, users_of
from fedbo.objectives.datasets.data import DataDamagedError, inventory, locate

NO_DATA = not any(row.name == "wisdm" and row.state == "found" for row in inventory())
needs_data = pytest.mark.skipif(NO_DATA, reason="WISDM_ar_v1.1_transformed.arff is not here: see `fedbo data list`")
FILE = "WISDM_ar_v1.1_transformed.arff"


def holder(agent: int, **settings: object) -> LogisticAgent:
    return Wisdm(**settings).objective(agent, Streams(0).rng("world"), Streams(0).rng("own"))  # type: ignore[arg-type]


def rows(task: str = "activity") -> tuple[UserRows, ...]:
    return users_of(locate("wisdm") / FILE, task)


def every_activity() -> tuple[np.ndarray, np.ndarray]:
    """Give the users and the activities of all rows of the file, read in another way."""
    lines = (locate("wisdm") / FILE).read_text().splitlines()
    cells = [line.split(",") for line in lines[lines.index("@data") + 1 :] if line]
    return np.array([int(cell[1]) for cell in cells]), np.array([cell[-1] for cell in cells])


@needs_data
def test_the_rows_have_the_published_counts_and_42_informative_features() -> None:
    user, activity = every_activity()
    assert len(user) == 5418 and len(set(user)) == 36 and set(activity[user == 9]) == {"Walking"}
    own = rows()
    sizes = [len(one.label) for one in own]
    assert len(own) == 35 and sum(sizes) == 5418 - np.sum(user == 9) and (min(sizes), max(sizes)) == (60, 273)
    counts = np.sum([np.bincount(one.label, minlength=6) for one in own], axis=0)
    counts[ACTIVITIES.index("Walking")] += np.sum(user == 9)
    assert dict(zip(ACTIVITIES, counts.tolist(), strict=True)) == {
        "Walking": 2081,
        "Jogging": 1625,
        "Upstairs": 632,
        "Downstairs": 528,
        "Sitting": 306,
        "Standing": 246,
    }
    features = np.concatenate([one.features for one in own])
    assert features.shape[1] == 42 and np.all(np.nanstd(features, axis=0) > 0.0)


@needs_data
def test_values_are_missing_only_where_the_file_says_so() -> None:
    own = np.concatenate([one.features for one in rows()])
    alone = sum(line.count("?") for line in (locate("wisdm") / FILE).read_text().splitlines() if line.split(",")[1:2] == ["9"])
    missing = np.isnan(own).sum(axis=0)
    assert np.flatnonzero(missing).tolist() == [32, 33, 34], "XPEAK, YPEAK and ZPEAK"
    assert missing.sum() + alone == 381 + 131 + 103


@needs_data
@pytest.mark.parametrize("task", list(TASKS))
def test_the_agents_of_a_task_are_the_users_who_have_both_classes(task: str) -> None:
    user, activity = every_activity()
    positive = np.isin(activity, TASKS[task]) if TASKS[task] else activity
    expected = [one for one in range(1, 37) if len(set(positive[user == one])) > 1]
    own = rows(task)
    assert Wisdm(task=task).n_agents == len(own) == len(expected)  # type: ignore[arg-type]
    assert [len(one.label) for one in own] == [np.sum(user == one) for one in expected]
    if TASKS[task]:
        assert [one.label.sum() for one in own] == [positive[user == one].sum() for one in expected]


@needs_data
def test_a_user_validates_on_100_rows_or_else_on_half_with_each_class_in_its_share() -> None:
    for one in rows():
        hidden = held_out(one.label)
        n = len(one.label)
        assert len(set(hidden)) == (100 if n >= 200 else n // 2)
        share = np.bincount(one.label, minlength=6) * len(hidden) / n
        assert np.abs(np.bincount(one.label[hidden], minlength=6) - share).max() <= 1.0
    sizes = [len(holder(agent).validation[1]) for agent in range(35)]
    assert max(sizes) == 100 and min(sizes) == 30


def test_rows_that_validate_are_chosen_at_random_within_a_class() -> None:
    label = np.repeat([0, 1], [60, 30])
    hidden = held_out(label)
    assert np.bincount(label[hidden]).tolist() == [30, 15]
    assert set(np.diff(hidden)) != {2}
    assert np.array_equal(hidden, held_out(label))


def test_a_missing_value_becomes_the_median_of_the_training_rows() -> None:
    nan = float("nan")
    given = np.array([[1.0, nan, 5.0], [nan, nan, 6.0], [3.0, 2.0, nan], [8.0, nan, 7.0]])
    filled = completed(given, np.array([2]))
    assert filled.tolist() == [[1.0, 0.0, 5.0], [4.5, 0.0, 6.0], [3.0, 2.0, 6.0], [8.0, 0.0, 7.0]]


@needs_data
def test_users_are_recognised_far_better_than_by_their_commonest_activity() -> None:
    rng = Streams(0).rng("none")
    agents = [holder(agent) for agent in range(12)]
    errors = np.array([-one.evaluate(np.array([34.0, 0.04, 0.066]), rng) for one in agents])
    blind = np.array([np.mean(one.validation[1] != np.bincount(one.train[1]).argmax()) for one in agents])
    assert errors.mean() < 0.5 * blind.mean() and np.mean(errors < blind) > 0.9
    still = -holder(0, task="still").evaluate(np.array([34.0, 0.04, 0.066]), rng)
    assert still < 0.05


@needs_data
def test_a_file_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (locate("wisdm") / FILE).read_bytes()
    (tmp_path / "wisdm").mkdir()
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path))
    for changed in (content[:-1000], content.replace(b"Jogging", b"Walking", 1), b""):
        (tmp_path / "wisdm" / FILE).write_bytes(changed)
        with pytest.raises(
            DataDamagedError, match="WISDM_ar_v1.1_transformed.arff is not the published .* expected sha256 8cb3fbba"
        ):
            holder(0)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"task": "eating"}, "no task 'eating'"),
        ({"agents": 36}, "agents = 36 is invalid: task 'activity' has 35 users; use 1 to 35"),
        ({"agents": 0}, "agents must be at least 1, not 0"),
        ({"agents": 26, "task": "still"}, "agents = 26 is invalid: task 'still' has 25 users"),
        ({"epochs": 0}, "epochs must be in .1, 10000., not 0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Wisdm(**settings)  # type: ignore[arg-type]


def test_fewer_agents_may_be_taken() -> None:
    assert Wisdm(agents=6, task="stairs").n_agents == 6 and Wisdm().n_agents == 35
