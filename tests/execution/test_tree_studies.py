"""Studies of the tree searches and of BLiN in a world with every trouble: cut off and taken up again, they end the same."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import TROUBLED, tables

import fedbo

PULLS = 20
STUDY: dict[str, Any] = {
    **TROUBLED,
    "study": {"name": "trees", "seed": 3},
    "agents": {"initial": 0, "checkpoint": 3, "targets": [0, 1]},
    "budget": {"pulls": PULLS},
    "algorithm": [
        {"name": "hct", "rho": 0.7, "c": 0.03},
        {"name": "hct", "point": "uniform", "label": "uniform"},
        {"name": "t_hoo", "rho": 0.7},
        {"name": "d_blin", "factor": 0.05},
        {"name": "a_blin", "factor": 0.05, "point": "uniform"},
    ],
    "recovery": {"events": 30},
}


def interrupt(directory: Path) -> None:
    """Wait until the study has made two snapshots, and interrupt this process."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if sum(json.loads(path.read_text())["number"] for path in directory.glob("parts/*/latest.json")) >= 2:
            break
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.long
def test_studies_of_trees_and_of_blin_go_on_from_where_they_were_cut_off(tmp_path: Path) -> None:
    fedbo.run(STUDY, out=tmp_path / "alone")
    directory = tmp_path / "cut off"
    threading.Thread(target=interrupt, args=(directory,)).start()
    with pytest.raises(KeyboardInterrupt, match="cut off"):
        fedbo.run(STUDY, out=directory)
    fedbo.resume(directory)
    assert tables(directory) == tables(tmp_path / "alone")
    result = fedbo.Result.open(directory)
    assert result.manifest["resumed"] == 1
    rows = result.observations.to_pandas()
    assert set(rows.algorithm) == {"hct", "uniform", "t_hoo", "d_blin", "a_blin"}
    spent = rows.groupby(["algorithm", "agent", "step", "query"]).pulls.first().groupby(["algorithm", "agent"]).sum()
    assert (spent <= PULLS).all() and (spent >= PULLS / 2).all()
    assert not np.isnan(rows.value[rows.error.isna()]).any() and rows.error.notna().any()
