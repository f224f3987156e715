"""The 561 features of a window: their published names, and their numbers beside those of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from fedbo.objectives.base import Array
from fedbo.objectives.classifiers.har_features import angle, burg, features, filtered, signals
from fedbo.objectives.datasets.data import inventory, locate

NO_NAMES = not any(row.name == "uci_har_meta" and row.state == "found" for row in inventory())
SECONDS = np.arange(3000) / 50.0
GRAVITY = np.array([0.8, -0.5, 0.2])


def walk() -> tuple[Array, Array]:
    """Give a minute of somebody who sways at 1 Hz, in steady gravity, with noise at 24 Hz."""
    sway = np.sin(2.0 * np.pi * SECONDS)[:, None] * [0.3, 0.1, 0.0]
    hum = np.sin(2.0 * np.pi * 24.0 * SECONDS)[:, None] * [0.0, 0.0, 0.2]
    return GRAVITY + sway + hum, np.cos(2.0 * np.pi * SECONDS)[:, None] * [0.0, 2.0, 1.0]


def described(windows_of: dict[str, Array]) -> dict[str, Array]:
    return {column.name: column.value for column in features(windows_of)}


def random_windows(n: int = 5) -> dict[str, Array]:
    """Draw windows of all ten signals."""
    draws = np.random.Generator(np.random.Philox(8))
    axes = {name: 1 if name.endswith("Mag") else 3 for name in signals(*walk())}
    return {name: draws.standard_normal((n, count, 128)).cumsum(axis=2) / 10.0 + 0.3 for name, count in axes.items()}


@pytest.mark.skipif(NO_NAMES, reason="UCI HAR's names are not here: see `fedbo data list`")
def test_the_names_of_the_features_and_their_order_are_the_published_ones() -> None:
    published = (locate("uci_har_meta") / "features.txt").read_text().splitlines()
    assert [f"{i + 1} {column.name}" for i, column in enumerate(features(random_windows()))] == published


def test_there_are_561_features_and_all_are_finite_also_for_somebody_who_does_not_move() -> None:
    still = {name: np.zeros_like(window) for name, window in random_windows().items()}
    for given in (random_windows(), still):
        columns = features(given)
        assert len(columns) == 561 and all(column.value.shape == (5,) and np.isfinite(column.value).all() for column in columns)


def test_statistics_of_a_window_are_those_of_scipy() -> None:
    given, found = random_windows(), described(random_windows())
    for axis, end in enumerate("XYZ"):
        one = given["BodyGyro"][2, axis]
        expected = {
            "mean": one.mean(),
            "std": np.sqrt(np.mean((one - one.mean()) ** 2)),
            "mad": stats.median_abs_deviation(one),
            "max": max(one),
            "min": min(one),
            "energy": sum(one**2) / 128,
            "iqr": stats.iqr(one),
            "entropy": stats.entropy(one**2),
        }
        for kind, value in expected.items():
            assert found[f"tBodyGyro-{kind}()-{end}"][2] == pytest.approx(value, rel=1e-12)
    x, y, z = given["BodyGyro"][2]
    assert found["tBodyGyro-correlation()-X,Z"][2] == pytest.approx(np.corrcoef(x, z)[0, 1])
    assert found["tBodyGyro-sma()"][2] == pytest.approx(
        np.mean([abs(a) + abs(b) + abs(c) for a, b, c in zip(x, y, z, strict=True)])
    )


def test_the_spectrum_is_the_fourier_sum_and_its_variables_are_those_of_scipy() -> None:
    given, found = random_windows(), features(random_windows())
    one = given["BodyAccJerk"][3, 1]
    turn = np.exp(-2j * np.pi * np.outer(np.arange(1, 65), np.arange(128)) / 128)
    amplitude = np.abs(turn @ one)
    by_name = {column.name: column.value[3] for column in found}
    expected = {
        "mean()-Y": amplitude.mean(),
        "maxInds-Y": np.argmax(amplitude),
        "meanFreq()-Y": np.average(np.arange(1, 65) * 50.0 / 128.0, weights=amplitude),
        "skewness()-Y": stats.skew(amplitude),
        "kurtosis()-Y": stats.kurtosis(amplitude, fisher=False),
    }
    for kind, value in expected.items():
        assert by_name[f"fBodyAccJerk-{kind}"] == pytest.approx(value, rel=1e-9)
    # the bands of the three axes have the same names: those of Y are the second ones
    bands = [column.value[3] for column in found if column.name == "fBodyAccJerk-bandsEnergy()-9,16"]
    assert bands[1] == pytest.approx(np.mean(amplitude[8:16] ** 2))
    wide = [column.value[3] for column in found if column.name == "fBodyAccJerk-bandsEnergy()-25,48"]
    assert wide[1] == pytest.approx(np.mean(amplitude[24:48] ** 2))


def test_angles_are_those_between_means_and_gravity() -> None:
    given, found = random_windows(), described(random_windows())
    down, jerk = given["GravityAcc"][1].mean(axis=1), given["BodyAccJerk"][1].mean(axis=1)
    between = np.arctan2(np.linalg.norm(np.cross(jerk, down)), jerk @ down)
    assert found["angle(tBodyAccJerkMean),gravityMean)"][1] == pytest.approx(between)
    assert found["angle(Z,gravityMean)"][1] == pytest.approx(np.arccos(down[2] / np.linalg.norm(down)))
    assert angle(np.array([[1.0, 0.0, 0.0]]), np.array([[-2.0, 0.0, 0.0]]))[0] == pytest.approx(np.pi)


def test_burgs_coefficients_are_those_of_the_process_that_made_a_long_series() -> None:
    """Four standard errors, 2 / sqrt(20,000) at most each: a false alarm in 2,000 seeds, and this one is fixed."""
    true = np.array([-1.2, 0.9, -0.4, 0.1])
    noise = np.random.Generator(np.random.Philox(5)).standard_normal(20_000)
    series = np.zeros(20_000)
    for t in range(4, 20_000):
        series[t] = noise[t] - true @ series[t - 4 : t][::-1]
    assert np.abs(burg(series) - true).max() < 4.0 / np.sqrt(20_000)


def test_burgs_coefficients_of_a_window_are_found_also_by_searching_for_each_reflection() -> None:
    """The k-th reflection makes the residuals forwards and backwards, together, as small as it can (Burg 1975)."""
    series = random_windows()["BodyAcc"]
    found = burg(series)
    assert found.shape == (5, 3, 4)
    for one, coefficients in zip(series.reshape(-1, 128), found.reshape(-1, 4), strict=True):
        model = np.array([1.0])
        for _ in range(4):
            grown = np.append(model, 0.0)

            def power(reflection: float, grown: Array = grown, one: Array = one) -> float:
                tried = grown + reflection * grown[::-1]
                return float(sum(np.sum(np.convolve(one, end, "valid") ** 2) for end in (tried, tried[::-1])))

            model = grown + minimize_scalar(power, tol=1e-12).x * grown[::-1]
        assert model[1:] == pytest.approx(coefficients, abs=1e-6)
        assert np.abs(np.roots(model)).max() < 1.0


def test_gravity_body_and_noise_come_apart() -> None:
    parts, late = signals(*walk()), slice(500, 3000)
    amplitude = {name: np.sqrt(2.0) * np.std(signal[late], axis=0) for name, signal in parts.items()}
    assert np.abs(parts["GravityAcc"][late] - GRAVITY).max() < 0.01
    assert amplitude["BodyAcc"][:2] == pytest.approx([0.3, 0.1], rel=0.03)
    assert amplitude["BodyAcc"][2] < 0.09, "24 Hz are damped from 0.2"
    assert amplitude["BodyAccJerk"][0] == pytest.approx(2.0 * np.pi * 0.3, rel=0.03)
    assert amplitude["BodyGyro"][1:] == pytest.approx([2.0, 1.0], rel=0.01)
    assert np.allclose(parts["BodyGyroMag"][:, 0], np.sqrt(np.sum(parts["BodyGyro"] ** 2, axis=1)))
    assert parts["BodyGyroJerk"].shape == (3000, 3) and parts["GravityAccMag"].shape == (3000, 1)


def test_the_filter_halves_the_power_at_its_corner_and_knows_nothing_of_what_is_to_come() -> None:
    wave = np.sin(2.0 * np.pi * 20.0 * SECONDS)[:, None]
    assert np.std(filtered(wave, 20.0)[500:]) == pytest.approx(0.5, rel=1e-3)
    other = wave.copy()
    other[1000:] = 7.0
    assert np.array_equal(filtered(wave, 0.3)[:1000], filtered(other, 0.3)[:1000])


def test_a_steady_signal_is_all_gravity_from_its_first_sample_on_and_a_single_spike_is_removed() -> None:
    steady = np.tile(GRAVITY, (3000, 1))
    spiked = steady.copy()
    spiked[1500, 1] += 3.0
    plain = signals(steady, steady)
    assert np.allclose(plain["GravityAcc"][1:-1], GRAVITY) and np.abs(plain["BodyAcc"][1:-1]).max() < 1e-9
    for name, signal in signals(spiked, steady).items():
        assert np.allclose(signal, plain[name], atol=1e-12)
