"""What may be published of a private run holds no number of an agent, whatever the study is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.cli import OK, main
from fedbo.figures.page.page import render_page
from fedbo.privacy.public_export import RELEASED, export_public, private_labels
from fedbo.study.study import StudyError, load_study
from tests.random_studies.studies import draw_document

HIDDEN = ("time", "eligible", "sampled", "arrived", "clipped", "charged", "signal")


SMALL: dict[str, Any] = {
    "study": {"name": "private", "seed": 5},
    "objective": {"name": "quadratic", "agents": 4},
    "agents": {"initial": 2},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "dp_fts", "features": 20, "share": 1.0, "own": {"features": 20, "refit": 100}}],
    "privacy": {"secure_noise": True, "deltas": [0.005]},
}


def private_study(seed: int, folder: Path) -> Any:
    """Draw a random study whose first algorithm is private and whose noise is secure."""
    for attempt in range(200):
        rng = np.random.default_rng([34, seed, attempt])
        drawn = draw_document(rng, folder, ("dp_fts", "dp_fts_de", "dp_fed_prior")[seed % 3])
        drawn["study"] |= {"name": f"private {seed}", "replicates": 1}
        drawn["algorithm"] = drawn["algorithm"][:1] + [one for one in drawn["algorithm"][1:] if one["name"] != "dp_fed_pne"]
        drawn["privacy"] = {"secure_noise": True, "deltas": [0.005]}
        drawn |= {"hosting": {"kind": "inline", "workers": 0}}
        drawn["evaluation"] = {**drawn.get("evaluation", {}), "failure": "drop"}
        drawn["evaluation"].pop("time_limit", None)  # on a busy machine all evaluations might fail, and so would the run
        for name in ("sweep", "stopping"):
            drawn.pop(name, None)
        drawn.get("budget", {}).pop("target", None)
        try:
            return load_study(drawn)
        except StudyError:
            continue
    pytest.fail(f"seed {seed}: no drawn study was accepted")


@pytest.fixture(scope="module")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return fedbo.run(load_study(SMALL), out=tmp_path_factory.mktemp("private") / "run")


def numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in plain data."""
    if isinstance(value, dict):
        for part in value.values():
            yield from numbers(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def telling(found: Iterator[float]) -> set[float]:
    """Keep numbers of more than six digits: a setting such as 0.2 may also be a time by chance."""
    return {value for value in found if math.isfinite(value) and float(f"{value:.6g}") != value}


def private_numbers(result: Result) -> set[float]:
    """Collect every number of a run that belongs to an agent, or that has no noise."""
    rows = [
        {key: value for key, value in row.items() if key not in ("cell", "replicate")}
        for row in result.observations.to_pylist()
    ]
    metric = result.metric(0)
    native = [float(metric.native(row["value"])) for row in rows if math.isfinite(row["value"])]
    # A message that was clipped is as long as the bound, which is public.
    hidden = [
        {key: row[key] for key in HIDDEN if key != "signal" or row[key] != row["sensitivity"]}
        for row in result.privacy.to_pylist()
    ]
    return telling(numbers([rows, native, hidden, result.events["time"].to_pylist()]))


def check_public(result: Result, path: Path) -> None:
    export_public(result, path)
    text = path.read_text(encoding="utf-8")
    public = json.loads(text)
    assert not telling(numbers(public)) & private_numbers(result)
    assert "seed" not in text and result.manifest["study_sha256"] not in text
    assert set(public) == {"fedbo", "study", "releases"}
    assert all(set(row) == set(RELEASED) and not set(row) & set(HIDDEN) for row in public["releases"])


def check(result: Result, folder: Path) -> None:
    assert private_labels(result)
    check_public(result, folder / "public.json")
    shown, asked = (evaluations_of(render_page([result], agents)) for agents in (False, True))
    assert all(one == "[]" for one in shown), "no value of one evaluation"
    assert any(one != "[]" for one in asked) or not result.observations.num_rows  # as where nobody is there


def evaluations_of(page: str) -> list[str]:
    """Return the beginning of what each timeline tells of evaluations."""
    return re.findall(r'"evaluations":(\[\]|\[\[)', page)


def test_no_private_number_of_a_private_study_is_published(private_run: Result, tmp_path: Path) -> None:
    check(private_run, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 40))
def test_no_private_number_of_a_random_private_study_is_published(seed: int, tmp_path: Path) -> None:
    check(fedbo.run(private_study(seed, tmp_path), out=tmp_path / "run"), tmp_path)


def test_the_search_finds_a_private_number(private_run: Result) -> None:
    """The check above is one: with any private column among the public ones it fails."""
    hidden = telling(numbers([row["signal"] for row in private_run.privacy.to_pylist()]))
    assert hidden and hidden <= private_numbers(private_run)


def test_what_has_no_noise_or_seeded_noise_is_refused(tmp_path: Path) -> None:
    tables = {key: value for key, value in SMALL.items() if key != "privacy"}
    open_run = fedbo.run(tables | {"algorithm": [{"name": "random"}]}, out=tmp_path / "open")
    with pytest.raises(
        ResultError,
        match="has no private algorithm, so nothing can be published; export a private run",
    ):
        export_public(open_run, tmp_path / "public.json")
    result = fedbo.run(SMALL | {"privacy": {"deltas": [0.005]}}, out=tmp_path / "seeded")
    with pytest.raises(
        ResultError, match="is drawn from the study's seed and can be removed; run the study with .*secure_noise"
    ):
        export_public(result, tmp_path / "public.json")
    votes = load_study(tables | {"algorithm": [{"name": "dp_share_best", "every": 1}], "exchange": {"mode": "barrier"}})
    with pytest.raises(ResultError, match="noise of dp_share_best is drawn from the study's seed.*; serve the study to sites"):
        export_public(fedbo.run(votes, out=tmp_path / "votes"), tmp_path / "public.json")
    assert not (tmp_path / "public.json").exists()


def test_the_command_writes_one_new_file(private_run: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", str(private_run.directory), "--public", str(tmp_path / "public.json")]
    assert main(command) == OK
    assert "contains no data of single agents" in capsys.readouterr().out
    assert main(command) != OK
    assert "already exists; choose another file" in capsys.readouterr().err
