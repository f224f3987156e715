"""Studies have the digest that earlier versions gave them, so that runs which those began can go on.

`earlier/digests.json` has, for each method, the tables of a study and the digest of the version that added the method. A
setting that a method gains later must stand in `_LATER` of `fedbo.study.study`; a digest in the file is never replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedbo.algorithms.catalog import algorithms
from fedbo.study.study import load_study

DIGESTS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "earlier" / "digests.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", DIGESTS)
def test_a_study_has_the_digest_of_earlier_versions(name: str) -> None:
    assert load_study(DIGESTS[name]["study"]).digest() == DIGESTS[name]["digest"], f"name the new settings of {name} in _LATER"


def test_every_method_is_among_them() -> None:
    assert set(algorithms()) == set(DIGESTS)
