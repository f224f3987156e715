"""Activity recognition by smartphone: the windows, their features as they are kept, and what an evaluation gives."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.algorithms.streams import Streams
from fedbo.objectives.classifiers import hapt
from fedbo.objectives.classifiers.har import Har, recomputed, window_starts, windows
from fedbo.objectives.classifiers.har_features import features, signals
from fedbo.objectives.classifiers.logistic import LogisticAgent
from fedbo.objectives.datasets.data import inventory, locate

HERE = {row.name for row in inventory() if row.state == "found"}
needs_recordings = pytest.mark.skipif("hapt" not in HERE, reason="hapt_raw_int16.npz is not here: see `fedbo data list`")
needs_meta = pytest.mark.skipif("uci_har_meta" not in HERE, reason="UCI HAR's ids are not here: see `fedbo data list`")


def holder(agent: int, **settings: object) -> LogisticAgent:
    return Har(**settings).objective(agent, Streams(0).rng("world"), Streams(0).rng("own"))  # type: ignore[arg-type]


def feature_names() -> list[str]:
    still = signals(np.ones((128, 3)), np.ones((128, 3)))
    return [column.name for column in features({name: windows(part, np.array([0])) for name, part in still.items()})]


def test_windows_overlap_by_half_within_stretches_of_one_activity() -> None:
    label = np.concatenate([[k] * n for k, n in ((-1, 10), (1, 127), (2, 128), (7, 500), (6, 320), (6, 1), (5, 200))])
    assert window_starts(label.astype(np.int8)).tolist() == [137, 765, 829, 893, 957, 1086, 1150]
    signal = np.random.Generator(np.random.Philox(0)).random((1500, 3))
    cut = windows(signal, np.array([137, 893]))
    assert cut.shape == (2, 3, 128) and np.array_equal(cut[1], signal[893 : 893 + 128].T)


@needs_recordings
def test_the_windows_have_the_counts_of_classes_and_subjects_that_the_set_is_known_for() -> None:
    table = recomputed()
    assert table.features.shape == (10_411, 561) and np.isfinite(table.features).all()
    assert np.bincount(table.label).tolist() == [1722, 1544, 1407, 1801, 1979, 1958]
    sizes = [len(table.of(subject)[1]) for subject in range(1, 31)]
    assert (min(sizes), max(sizes), sum(sizes)) == (284, 413, 10_411)


@needs_recordings
@needs_meta
def test_subjects_have_nearly_as_many_windows_as_in_the_original_set() -> None:
    folder = locate("uci_har_meta")
    subjects = np.concatenate([np.loadtxt(folder / f"subject_{part}.txt", dtype=int) for part in ("train", "test")])
    labels = np.concatenate([np.loadtxt(folder / f"y_{part}.txt", dtype=int) for part in ("train", "test")])
    ours = np.array([np.bincount(recomputed().of(subject)[1], minlength=6) for subject in range(1, 31)])
    theirs = np.array([np.bincount(labels[subjects == subject] - 1, minlength=6) for subject in range(1, 31)])
    assert np.corrcoef(ours.sum(axis=1), theirs.sum(axis=1))[0, 1] > 0.99
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.98


# Averages of UCI HAR's own features over all windows of subject 1 in activities 1 to 6 and of subject 2 in 1 and 2
PUBLISHED = {
    "tBodyAcc-mean()-X": (0.2773, 0.2555, 0.2892, 0.2612, 0.2789, 0.2216, 0.2764, 0.2472),
    "tBodyAcc-std()-Z": (-0.2600, -0.0195, -0.2304, -0.9396, -0.9798, -0.8261, -0.4253, -0.1121),
    "tGravityAcc-mean()-X": (0.9352, 0.8934, 0.9319, 0.8315, 0.9430, -0.2489, 0.9130, 0.7907),
    "tGravityAcc-std()-Y": (-0.9713, -0.9528, -0.9370, -0.9355, -0.9812, -0.9077, -0.9721, -0.9238),
    "tBodyAccMag-mean()": (-0.1370, -0.1299, 0.0272, -0.9485, -0.9843, -0.8419, -0.2904, -0.1073),
    "tBodyGyroJerk-std()-Y": (-0.3045, -0.6017, -0.2388, -0.9895, -0.9951, -0.9679, -0.6341, -0.6455),
    "fBodyAcc-mean()-Z": (-0.3316, -0.4333, -0.2256, -0.9592, -0.9853, -0.8827, -0.4538, -0.2810),
    "fBodyAcc-meanFreq()-Z": (0.0497, -0.5201, 0.2943, 0.2388, 0.2449, 0.0894, 0.0689, -0.2366),
    "fBodyAccJerk-meanFreq()-X": (-0.2093, -0.3770, -0.2532, 0.2566, 0.3142, 0.1324, -0.0727, -0.0491),
    "fBodyGyro-meanFreq()-X": (0.0148, -0.1875, -0.1005, 0.1892, -0.1203, -0.0035, 0.0073, -0.1153),
    "fBodyAccMag-meanFreq()": (0.1906, -0.0977, 0.1192, 0.2367, 0.2846, 0.0864, 0.3932, 0.1077),
}


@needs_recordings
def test_averages_of_features_are_those_of_the_original_set_up_to_their_scale() -> None:
    """Filters that delay nothing, or spectra with their mean, lower several of these correlations to 0.3 and less."""
    table, names = recomputed(), feature_names()
    groups = [(1, label) for label in range(6)] + [(2, 0), (2, 1)]
    ours = np.array([table.features[(table.subject == s) & (table.label == label)].mean(axis=0) for s, label in groups])
    agreement = {name: np.corrcoef(ours[:, names.index(name)], column)[0, 1] for name, column in PUBLISHED.items()}
    assert min(agreement.values()) > 0.98, agreement


@needs_recordings
def test_kept_features_are_those_that_the_code_computes_now() -> None:
    """Else a number was changed and `VERSION` was not."""
    stored = hapt.read(locate("hapt") / "hapt_raw_int16.npz")
    end = stored.recording_offset[1]
    starts = window_starts(stored.label[:end])
    parts = signals(stored.acc[:end] * hapt.ACC_SCALE, stored.gyro[:end] * hapt.GYRO_SCALE)
    fresh = np.column_stack([c.value for c in features({name: windows(part, starts) for name, part in parts.items()})])
    table = recomputed()
    assert np.allclose(table.features[: len(fresh)], fresh, rtol=1e-4, atol=1e-6)
    assert np.array_equal(table.label[: len(fresh)] + 1, stored.label[starts])
    assert set(table.subject[: len(fresh)]) == {1}


@needs_recordings
def test_half_of_each_subject_validates_with_every_activity_in_both_halves() -> None:
    for agent in range(30):
        one = holder(agent)
        seen, hidden = one.train[1], one.validation[1]
        assert abs(len(seen) - len(hidden)) <= 1
        assert np.abs(np.bincount(seen, minlength=6) - np.bincount(hidden, minlength=6)).max() <= 1
        assert one.train[0].shape == (len(seen), 561) and len(one.order) == 20


@needs_recordings
def test_subjects_are_recognised_at_a_good_setting_and_worse_at_a_bad_one() -> None:
    """Chance is 0.8; agents with a good point in common are why they may learn of each other."""
    rng = Streams(0).rng("none")
    some = [holder(agent) for agent in range(0, 30, 2)]
    good = np.array([-one.evaluate(np.array([25.0, 0.02, 0.07]), rng) for one in some])
    bad = np.array([-one.evaluate(np.array([25.0, 1.0, 0.1]), rng) for one in some])
    assert good.max() < 0.08 and good.mean() < 0.02 < 0.05 < bad.mean() < 0.6


def test_settings_that_make_no_sense_are_refused_by_name() -> None:
    for settings in ({"agents": 31}, {"agents": 0}, {"features": "raw"}, {"epochs": 0}):
        ((name, value),) = settings.items()
        with pytest.raises(ValueError, match=f"{name} must be in .*, not {value}|no {name} '{value}'"):
            Har(**settings)  # type: ignore[arg-type]
