"""Errors that cross processes: pools of a user and Ray make them again by their class and arguments."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedbo.actors.storage.sealed import DamagedError, FormatError
from fedbo.execution.failures import RunError
from fedbo.lab.twins.measurements import MeasurementError
from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError
from fedbo.settings.errors import SettingError, invalid, unknown_choice
from fedbo.settings.own_code import CodeError
from fedbo.settings.trust import UntrustedError

ERRORS = [
    DamagedError(Path("events.parquet"), "it is missing", "run it again"),
    DataDamagedError("tiny.txt is not the published file"),
    DataMissingError("the data set 'tiny' is not on this machine"),
    FormatError("'events.parquet': has format 4"),
    LibraryMissingError("needs PyTorch"),
    MeasurementError("has a sweep"),
    RunError("the run failed", Path("run")),
    invalid("agents", 0, "take at least 1"),
    SettingError("share", "must be at most 1", 2, "take 1"),
    unknown_choice("algorithm", "ftz", ("fts", "ts")),
    UntrustedError("evil.py:E"),
    CodeError("my.py:41 in ask (agent 0, step 3): RuntimeError: bang", "Traceback …"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_says_the_same_in_another_process(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
