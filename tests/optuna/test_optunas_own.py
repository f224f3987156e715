"""The tests that Optuna ships for authors of samplers, as they are, on the sampler without an agent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

optuna = pytest.importorskip("optuna", reason="the sampler needs Optuna: pip install optuna")
own = pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna has its tests from version 4.6 on")

from fedbo.optuna import Sampler  # noqa: E402


class TestSampler(own.BasicSamplerTestCase, own.RelativeSamplerTestCase, own.MultiObjectiveSamplerTestCase):  # type: ignore[misc,name-defined]
    """All but `SingleOnlySamplerTestCase`, which is for samplers that refuse several objectives."""

    @pytest.fixture
    def sampler(self) -> Callable[[], Sampler]:
        return lambda: Sampler(seed=1, n_startup_trials=0)
