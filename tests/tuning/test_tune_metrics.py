"""The metrics of `fedbo.tune`: the words of [[metric]] as dictionaries."""

from __future__ import annotations

from typing import Any

import pytest

from fedbo.settings.errors import ArgumentError
from fedbo.tuning.tune import tuning_study

SPACE = {"rate": (1e-3, 1.0)}
METRICS = [
    {"name": "error", "mode": "min", "reference": 1.0},
    {"name": "seconds", "mode": "min", "reference": 60.0},
    {"name": "memory", "at_most": 8e9},
]


def trained(config: dict[str, float]) -> dict[str, float]:
    """Return metrics."""
    return {"error": config["rate"], "seconds": 1.0 / config["rate"], "memory": 1e9}


def study_of(**options: Any) -> Any:
    """Return the study of a tuning by random search."""
    return tuning_study(trained, SPACE, 2, {"algorithm": "random", **options})  # type: ignore[typeddict-item]


def test_the_first_objective_is_the_value() -> None:
    """Its name and its mode need no other argument."""
    study = study_of(metrics=METRICS)
    assert (study.federation().metric.name, study.federation().metric.sign) == ("error", -1)
    assert [table.name for table in study.metric] == ["error", "seconds", "memory"]
    assert study.problem().references == (-1.0, -60.0)


def test_limits_alone_leave_metric_and_mode_as_they_are() -> None:
    """A limit is set beside them."""
    study = study_of(metric="error", mode="min", metrics=[{"name": "memory", "at_most": 8e9}])
    assert study.federation().metric.name == "error" and study.problem().constraints == 1


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ("error", "metrics = 'error': must be a list of tables"),
        ([], "metrics = []: must be a list of tables"),
        ([{"name": "memory", "at_mots": 1.0}], "metrics[0]['at_mots'] = 1.0: no such key; did you mean 'at_most'?"),
        ([METRICS[0], {"name": "seconds", "mode": "min"}], "metrics[1]['reference']: is missing"),
        ([{"name": "error", "mode": "least"}], "metrics[0]['mode'] = 'least': must be 'min' or 'max'"),
    ],
)
def test_errors_name_the_entry(metrics: Any, words: str) -> None:
    """With the place in the argument."""
    with pytest.raises(ArgumentError) as found:
        study_of(metrics=metrics)
    assert words in str(found.value)
