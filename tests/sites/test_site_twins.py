"""The twin of a run at sites, made of the times that sites release alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.lab.twins.twins import Twin
from fedbo.study.study import load_study
from tests.sites.direct import sites_document
from tests.sites.loopback import SiteThreads, arrange

SITES = 5


class Lasting:
    """An objective whose evaluations take log-normal times about a tenth of a second."""

    best_value = None

    def __init__(self, agent: int) -> None:
        self._draws = np.random.default_rng(agent)

    def evaluate(self, x: Any, rng: Any) -> float:
        time.sleep(0.1 * float(np.exp(0.4 * self._draws.standard_normal())))
        return -float(((x - 0.5) ** 2).sum())

    def score(self, x: Any) -> None:
        return None


@pytest.mark.long
@pytest.mark.parametrize("mode", ["barrier", "immediate"])
def test_the_twin_of_five_sites_predicts_their_makespan(
    tmp_path: Path, monkeypatch: Any, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    box = {"low": [0.0, 0.0], "high": [1.0, 1.0]}
    tables: dict[str, Any] = {"budget": {"iterations": 25}, "sites": {"share": "scores", "streams": "secret"}}
    arranged = arrange(load_study(sites_document(box, SITES, exchange={"mode": mode}, **tables)), tmp_path)
    sites = SiteThreads(arranged, [Lasting(agent) for agent in range(SITES)])
    result = arranged.serve()
    sites.finish()
    with Twin(result, None, 0) as twin:
        prediction = twin.predict(20)
    (row,) = [row for row in prediction.rows() if row["fact"] == "makespan"]
    with capsys.disabled():
        print(f"\n{mode}: makespan {row['recorded']:.2f} s, twin {row['twin']:.2f} s, error {row['error']:+.1%}")
    assert abs(row["error"]) < 0.25
