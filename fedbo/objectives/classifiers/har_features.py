"""The 561 features of a window of smartphone signals, recomputed from raw counts after UCI HAR's `features_info.txt`.

All names and their order are the published ones, with their misprints (`fBodyBody…`, a stray bracket in feature 556, and bands
of three axes under one name). The numbers are not the published ones bit for bit. This module decides the points that the
description leaves open. The first two follow from published averages over all windows of a subject and an activity, some of
which are in our tests.

- Filters run forwards over a whole recording, and so delay.
- A spectrum is the amplitude at bins 1 to 64, without the mean.
- A jerk is the difference to the previous sample times 50 Hz.
- An entropy is Shannon's, of the shares of the squared values, in nats.
- Quartiles are interpolated as NumPy does.
- arCoeff are Burg's a_1 … a_4 of x_t + a_1 x_(t-1) + … = e_t.
- Angles are in radians.

Two differences are intentional. The published tGravityAccMag repeats tBodyAccMag; here it is the norm of gravity. And the
published file scales every feature to [-1, 1] over all subjects. Here each agent standardises by its training half, so that no
agent's numbers reach another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from fedbo.objectives.base import Array

VERSION = 1  # to be raised with every change of a number: features are kept in the cache under it
WIDTH = 128  # samples of a window, 2.56 seconds
BINS = WIDTH // 2
RATE = 50.0  # samples a second
AXES = ("X", "Y", "Z")
PAIRS = ((0, 1), (0, 2), (1, 2))
ORDER = 4  # of the autoregression
BANDS = tuple((start, start + width) for width in (8, 16, 24) for start in range(0, BINS - width + 1, width))
MOMENTS = (("skewness", 3), ("kurtosis", 4))
SPECTRA = {  # by the published name, of which signal
    "fBodyAcc": "BodyAcc",
    "fBodyAccJerk": "BodyAccJerk",
    "fBodyGyro": "BodyGyro",
    "fBodyAccMag": "BodyAccMag",
    "fBodyBodyAccJerkMag": "BodyAccJerkMag",
    "fBodyBodyGyroMag": "BodyGyroMag",
    "fBodyBodyGyroJerkMag": "BodyGyroJerkMag",
}
ANGLES = {  # by the published name, between the mean of which signal and gravity
    "tBodyAccMean,gravity": "BodyAcc",
    "tBodyAccJerkMean),gravityMean": "BodyAccJerk",
    "tBodyGyroMean,gravityMean": "BodyGyro",
    "tBodyGyroJerkMean,gravityMean": "BodyGyroJerk",
}


class Column(NamedTuple):
    """One feature of all windows: its published name and its values `(windows,)`."""

    name: str
    value: Array


def filtered(signal: Array, corner: float) -> Array:
    """Pass the low frequencies of `signal (n, axes)`: third-order Butterworth, `corner` in Hz, at rest before it starts."""
    sections = scipy.signal.butter(3, corner, fs=RATE, output="sos")
    rest = scipy.signal.sosfilt_zi(sections)[:, :, None] * signal[0]
    low: Array = scipy.signal.sosfilt(sections, signal, axis=0, zi=rest)[0]
    return low


def signals(acceleration: Array, rotation: Array) -> dict[str, Array]:
    """Split one recording, `(n, 3)` in g and `(n, 3)` in rad/s, into time signals `(n, 3)` and their norms `(n, 1)`."""
    clean = [filtered(scipy.signal.medfilt(raw, (3, 1)), 20.0) for raw in (acceleration, rotation)]
    gravity = filtered(clean[0], 0.3)
    body = clean[0] - gravity
    threefold = {
        "BodyAcc": body,
        "GravityAcc": gravity,
        "BodyAccJerk": _jerk(body),
        "BodyGyro": clean[1],
        "BodyGyroJerk": _jerk(clean[1]),
    }
    norms = {f"{name}Mag": np.linalg.norm(signal, axis=1, keepdims=True) for name, signal in threefold.items()}
    return threefold | norms


def _jerk(signal: Array) -> Array:
    return np.diff(signal, axis=0, prepend=signal[:1]) * RATE


def features(windows: dict[str, Array]) -> list[Column]:
    """Return the 561 features of windows `(windows, 3 or 1, 128)` of the signals of `signals`, in the published order."""
    columns = []
    for name, window in windows.items():
        columns += _in_time(f"t{name}", window)
    for name, signal in SPECTRA.items():
        columns += _in_frequency(name, np.abs(np.fft.rfft(windows[signal]))[..., 1:])
    gravity = windows["GravityAcc"].mean(axis=2)
    columns += [Column(f"angle({name})", angle(windows[signal].mean(axis=2), gravity)) for name, signal in ANGLES.items()]
    columns += [Column(f"angle({a},gravityMean)", angle(one[None], gravity)) for a, one in zip(AXES, np.eye(3), strict=True)]
    return columns


def _in_time(name: str, window: Array) -> list[Column]:
    coefficients = burg(window)
    columns = _shape_of(name, window)
    for axis, end in enumerate(_ends(window)):
        own = coefficients[:, axis]
        columns += [Column(f"{name}-arCoeff(){end}{',' if end else ''}{k + 1}", own[:, k]) for k in range(ORDER)]
    if window.shape[1] == 3:
        pairs = [(f"{AXES[i]},{AXES[j]}", correlation(window[:, i], window[:, j])) for i, j in PAIRS]
        columns += [Column(f"{name}-correlation()-{pair}", value) for pair, value in pairs]
    return columns


def _in_frequency(name: str, spectrum: Array) -> list[Column]:
    ends, frequency = _ends(spectrum), np.arange(1, BINS + 1) * (RATE / WIDTH)
    columns = _shape_of(name, spectrum)
    columns += [Column(f"{name}-maxInds{end}", v) for end, v in zip(ends, spectrum.argmax(axis=2).T, strict=True)]
    mean = _ratio(spectrum @ frequency, spectrum.sum(axis=2))
    columns += [Column(f"{name}-meanFreq(){end}", v) for end, v in zip(ends, mean.T, strict=True)]
    for axis, end in enumerate(ends):
        columns += [Column(f"{name}-{kind}(){end}", moment(spectrum[:, axis], power)) for kind, power in MOMENTS]
    if len(ends) == 3:
        energy = spectrum**2
        for axis in range(3):
            bands = [(f"{a + 1},{b}", energy[:, axis, a:b].mean(axis=1)) for a, b in BANDS]
            columns += [Column(f"{name}-bandsEnergy()-{band}", value) for band, value in bands]
    return columns


def _shape_of(name: str, window: Array) -> list[Column]:
    """Describe the values of each axis of `(windows, axes, n)`: what signals and spectra have in common."""
    columns = []
    for kind, values in _statistics(window):
        own = zip(_ends(window), values.T, strict=True) if values.ndim == 2 else [("", values)]
        columns += [Column(f"{name}-{kind}(){end}", value) for end, value in own]
    return columns


def _statistics(window: Array) -> list[tuple[str, Array]]:
    low, middle, high = np.percentile(window, (25, 50, 75), axis=2)
    square = window**2
    share = _ratio(square, square.sum(axis=2, keepdims=True))
    return [
        ("mean", window.mean(axis=2)),
        ("std", window.std(axis=2)),
        ("mad", np.median(np.abs(window - middle[..., None]), axis=2)),
        ("max", window.max(axis=2)),
        ("min", window.min(axis=2)),
        ("sma", np.abs(window).mean(axis=2).sum(axis=1)),
        ("energy", square.mean(axis=2)),
        ("iqr", high - low),
        ("entropy", scipy.special.entr(share).sum(axis=2)),
    ]


def _ends(window: Array) -> tuple[str, ...]:
    return tuple(f"-{axis}" for axis in AXES) if window.shape[1] == 3 else ("",)


def burg(window: Array) -> Array:
    """Return a_1 … a_4 of each series of `(..., n)` by Burg's recursion, as `(..., 4)`; 0 for a series of zeros."""
    ahead, behind = window[..., 1:], window[..., :-1]
    model = np.zeros((*window.shape[:-1], ORDER + 1))
    model[..., 0] = 1.0
    for k in range(1, ORDER + 1):
        power = (ahead**2 + behind**2).sum(axis=-1)
        reflection = _ratio(-2.0 * (ahead * behind).sum(axis=-1), power)[..., None]
        model[..., : k + 1] += reflection * model[..., k::-1]
        ahead, behind = (ahead + reflection * behind)[..., 1:], (behind + reflection * ahead)[..., :-1]
    return model[..., 1:]


def correlation(one: Array, other: Array) -> Array:
    """Return the correlation of each pair of rows of `(windows, n)`; 0 where one is constant."""
    a, b = (series - series.mean(axis=1, keepdims=True) for series in (one, other))
    return _ratio((a * b).sum(axis=1), np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1)))


def moment(values: Array, power: int) -> Array:
    """Return the mean of (value - mean)^power of each row over its standard deviation to that power; 0 for constant rows."""
    gap = values - values.mean(axis=1, keepdims=True)
    return _ratio((gap**power).mean(axis=1), (gap**2).mean(axis=1) ** (power / 2))


def angle(one: Array, other: Array) -> Array:
    """Return the angles, in radians, between the rows of two `(windows, 3)`; a right angle where one is zero."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.arccos(np.clip(_ratio((one * other).sum(axis=1), lengths), -1.0, 1.0))


def _ratio(above: Array, below: Array) -> Array:
    """Divide; return 0 where the denominator is 0, as for a constant signal."""
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below != 0.0)
