"""Wrong arguments of hunts through Python: each is one line with the argument, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedbo
from tests import test_wrong_arguments
from tests.test_wrong_arguments import NO_PATHS, NOT_WHOLE, STUDY, Wrong


def hunted(**options: Any) -> Callable[[Path], object]:
    given = {"study": STUDY, "claim": "random ends", "worlds": 1} | options
    return lambda folder: fedbo.hunt(given.pop("study"), given.pop("claim"), **({"out": folder / "hunt"} | given))


def cases() -> Iterator[tuple[str, Any, Callable[[Path], object]]]:
    given: dict[str, list[Any]] = {
        "claim": [5, None, "", ["random ends"], "random is quick", "ts ends", "random is not worse than random",
                  "best of random is at least 1 at t = 9", "bytes of random is at most 1 at mean"],
        "vary": ["timing", 5, None, [], {"timing": 1}, ["weather"], ["timing", "timing"], [5], [["timing"]]],
        "worlds": [*NOT_WHOLE, 0],
        "seed": NOT_WHOLE,
        "search": ["best", 5, None, True, ["guided"]],
        "overrides": ["budget.iterations=3", 5, [5], ["iterations"], {"budget.iterations": 0}, {5: 3}],
        "out": NO_PATHS,
        "progress": ["yes", 1, None],
    }  # fmt: skip
    for argument, values in given.items():
        for value in values:
            yield argument, value, hunted(**{argument: value})
    for value in (5, None, "", "gone.toml", {}, [STUDY], STUDY | {"sweep": {"budget.iterations": [1, 2]}}):
        yield "study|gone.toml", value, hunted(study=value)
    wall = STUDY | {"timing": {"clock": "wall"}, "hosting": {"kind": "packed"}}
    yield "study", "real time", hunted(study=wall)
    for value in NO_PATHS:
        yield "directory", value, lambda folder, value=value: fedbo.Hunt.open(value)


@pytest.mark.parametrize(
    "wrong", [pytest.param(Wrong(argument, "", call), id=f"{argument}-{n}") for n, (argument, _, call) in enumerate(cases())]
)
def test_a_wrong_argument_of_a_hunt_is_one_line(wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_wrong_arguments.test_a_wrong_argument_is_one_line_with_its_name_before_anything_starts(wrong, tmp_path, monkeypatch)
