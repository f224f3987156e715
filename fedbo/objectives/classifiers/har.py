"""Activity recognition by smartphone: 30 subjects, each tuning a logistic regression on its own windows.

The experiment of Dai et al. 2020 (FTS, Sec. 5.2 and appendix D.2.2) and 2021 (DP-FTS-DE, Sec. 5.2) on the recordings of
Anguita et al. 2013. By default the windows are cut from the raw recordings that the same authors published later
(Reyes-Ortiz et al. 2016), and their 561 features are computed here: 10,411 windows instead of 10,299, and 284 to 413 a subject
instead of 281 to 409. Windows overlap by half, and a window's neighbours may lie in the other half of the split, as in the
published experiment; an error is therefore lower than it would be on another day's recordings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require_agent
from fedbo.objectives.classifiers import hapt
from fedbo.objectives.classifiers.har_features import VERSION, WIDTH, features, signals
from fedbo.objectives.classifiers.logistic import LogisticAgent, trainee, tuned
from fedbo.objectives.classifiers.uci_har import FeatureTable, kept, original
from fedbo.objectives.datasets.data import DATA_SETS, locate

SUBJECTS = 30
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")  # labels 1 to 6


@dataclass(frozen=True)
class Har(CountedFederation):
    """Activities of thirty phone users: tune batch size, L2 weight and learning rate.

    agents: the number of subjects, in their order.
    features: the 561 features, "recomputed" from the raw recordings, or "uci", the original ones, which the user must supply
      (see `uci_har.py`).
    epochs: passes of training over the rows. The papers do not report it; 20 reach a validation error of about 0.015 with good
      settings.
    log: make the axes of the L2 weight and the learning rate geometric; by default they are linear, as published.
    """

    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    agents: Annotated[int, Ge(1), Le(SUBJECTS), f"there are {SUBJECTS} subjects"] = SUBJECTS
    """First subjects that take part."""
    features: Literal["recomputed", "uci"] = "recomputed"
    """Features recomputed from raw recordings, or UCI's original ones, which you supply."""
    epochs: Annotated[int, Ge(1), Le(10_000)] = 20
    """Passes over the training rows."""
    log: bool = False
    """Whether `l2` and `learning_rate` have geometric axes."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the ranges of the batch size (rows), the L2 weight and the learning rate."""
        return tuned(self.log)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> LogisticAgent:
        """Build one subject's objective; half of its windows validate, whichever streams there are, as with the landmines."""
        from sklearn.model_selection import train_test_split  # not imported where nothing is evaluated: it takes half a second

        require_agent(agent, self.agents)
        x, label = (original() if self.features == "uci" else recomputed()).of(agent + 1)
        _, held_out = train_test_split(np.arange(len(x)), test_size=0.5, stratify=label, random_state=0)
        return trainee(x.astype(np.float64), label, held_out, self.epochs, self.log)


@cache
def recomputed() -> FeatureTable:
    """Return the features of all windows that show one of the six activities, recording by recording."""
    (file,) = DATA_SETS["hapt"].files
    return kept(f"hapt-{VERSION}-{file.sha256}", _computed)


def _computed() -> FeatureTable:
    stored = hapt.read(locate("hapt") / "hapt_raw_int16.npz")
    offset, values, labels, subjects = stored.recording_offset, [], [], []
    for start, end, subject in zip(offset[:-1], offset[1:], stored.recording_subject, strict=True):
        label = stored.label[start:end]
        starts = window_starts(label)
        acceleration = stored.acc[start:end].astype(np.float64) * hapt.ACC_SCALE
        rotation = stored.gyro[start:end].astype(np.float64) * hapt.GYRO_SCALE
        cut = {name: windows(signal, starts) for name, signal in signals(acceleration, rotation).items()}
        values.append(np.column_stack([column.value for column in features(cut)]).astype(np.float32))
        labels.append(label[starts].astype(np.int64) - 1)
        subjects.append(np.full(len(starts), int(subject)))
    return FeatureTable(np.concatenate(values), np.concatenate(labels), np.concatenate(subjects))


def window_starts(label: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Return the first samples of the windows of a recording: half-overlapping, each within one stretch of one activity."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(label)) + 1, [len(label)]])
    stretches = [(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True) if 1 <= label[a] <= len(ACTIVITIES)]
    return np.concatenate([np.arange(a, b - WIDTH + 1, WIDTH // 2) for a, b in stretches])


def windows(signal: Array, starts: npt.NDArray[np.int64]) -> Array:
    """Cut `signal (n, axes)` into windows `(windows, axes, 128)`."""
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(signal, WIDTH, axis=0)[starts])


FEDERATIONS = {"har": Har}
