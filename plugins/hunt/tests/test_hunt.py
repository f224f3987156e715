"""Hunts: planted claims are found and shrunk, true ones stand, an interruption changes nothing, and the command."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from planted_claims import PLANTED, STUDY, TRUE, PlantedClaim, hunt_known, noisy, trials_to_find
from real_claims import REAL, RealClaim, needless
from typer.testing import CliRunner

import fedbo
from fedbo.cli import app
from fedbo.settings.errors import ArgumentError
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError
from fedbo.study.study import load_study
from fedbo_hunt.hunt import hunt_world, question_of, resume_hunt
from fedbo_hunt.result import Hunt
from fedbo_hunt.shrinking import shrink, smaller
from fedbo_hunt.trials import LAST, SEARCH, SHRINKING, VERDICT, WorldTrials
from fedbo_hunt.worlds import Worlds

BY_NAME = {planted.name: planted for planted in PLANTED}
SMALL: dict[str, Any] = {
    "study": {"name": "small", "seed": 3},
    "objective": {"name": "quadratic", "agents": 2},
    "budget": {"iterations": 1},
    "agents": {"initial": 1},
    "algorithm": [{"name": "random"}, {"name": "random", "label": "other"}],
}
FIXED = ("study", "algorithm")  # tables that a hunt does not shrink
CLAIM = "end of random is at most 2.5"


def is_smallest(found: Hunt, planted: PlantedClaim) -> bool:
    """Check that no single change of the reported world keeps breaking the claim by more than the noise hides."""
    document = tomllib.loads(found.world)
    left = []
    for candidate in smaller(document, FIXED):
        try:
            load_study(candidate)
        except StudyError:
            continue
        left.append(planted.excess(candidate))
    return planted.excess(document) > 0 and all(excess < 0.15 for excess in left)


def check_found(planted: PlantedClaim, folder: Path) -> None:
    hunts = (hunt_known(noisy(planted), folder / f"hunt {seed}", seed, planted.vary, 120) for seed in range(3))
    found = next((hunt for hunt in hunts if hunt.broken), None)  # some searches of 120 worlds find none
    assert found is not None and found.reported is not None, planted.name
    assert found.reported.how == "shrunk"
    assert found.reported.low <= planted.excess(tomllib.loads(found.world)) + 0.15
    assert is_smallest(found, planted), found.world


def test_a_planted_claim_is_found_blind_and_shrunk_until_all_that_is_left_is_needed(tmp_path: Path) -> None:
    check_found(BY_NAME["short rounds"], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", BY_NAME)
def test_planted_claims_are_found_blind_and_shrunk(name: str, tmp_path: Path) -> None:
    check_found(BY_NAME[name], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", BY_NAME)
def test_the_guided_search_takes_fewer_trials_than_random_search(name: str, tmp_path: Path) -> None:
    """The median of 20 searches, where one that finds nothing counts as infinitely long."""
    taken = {
        how: median(
            trials_to_find(BY_NAME[name], tmp_path / f"{how} {seed}", seed, how, 120) or float("inf") for seed in range(20)
        )
        for how in ("guided", "random")
    }
    assert taken["guided"] <= taken["random"], taken


def test_a_true_claim_stands(tmp_path: Path) -> None:
    for place, law in enumerate(("normal", "rare loss")):
        found = hunt_known(TRUE[law], tmp_path / law, place, ("availability",), 6)
        assert not found.broken and found.worlds == 6, law
        assert str(found) == f'No world breaks the claim "{found.claim}" beyond doubt: 6 worlds were tried.'


@pytest.mark.long
def test_at_most_one_of_two_hundred_hunts_refutes_a_true_claim(tmp_path: Path) -> None:
    broken = [
        (name, seed)
        for name, law in TRUE.items()
        for seed in range(20)
        if hunt_known(law, tmp_path / f"{name} {seed}", seed, ("fault", "availability"), 8).broken
    ]
    assert len(broken) <= 1, broken


def test_seeds_of_the_search_the_shrinking_and_the_verdicts_differ(tmp_path: Path) -> None:
    from fedbo_hunt.claims import parse_claim

    trials = WorldTrials(tmp_path, parse_claim(CLAIM), 4)
    assert len({trials.seed(purpose) for purpose in (SEARCH, VERDICT, SHRINKING, LAST)}) == 4


def test_worlds_are_those_of_their_seed_and_vary_no_other_table() -> None:
    worlds = Worlds(STUDY, ("timing", "fault"), 3)
    drawn = [worlds.draw(number) for number in range(30)]
    assert [one.changes for one in drawn] == [Worlds(STUDY, ("timing", "fault"), 3).draw(n).changes for n in range(30)]
    assert {tuple(one.changes) for one in drawn} == {("timing",), ("fault",), ("timing", "fault")}
    one = next(one for one in drawn if one.space())
    same = one.at({str(place): value for place, value in enumerate(one.values)})
    assert same.values == pytest.approx(one.values, rel=0.05) and same.family == one.family
    assert len({each.family for each in drawn}) > 10


def test_shrinking_rounds_numbers_and_leaves_fixed_tables_alone() -> None:
    document = {**SMALL, "timing": {"evaluation": {"model": "constant", "mean": 2.37}}, "fault": [{"kind": "loss"}]}
    least = shrink(
        document, lambda one: "timing" in one and one["timing"].get("evaluation", {}).get("mean", 1.0) > 1.5, fixed=FIXED
    )
    assert least["timing"] == {"evaluation": {"model": "constant", "mean": 2.0}}
    assert (least["study"], least["algorithm"]) == (SMALL["study"], SMALL["algorithm"])
    assert "fault" not in least


@pytest.fixture(scope="module")
def stood(tmp_path_factory: pytest.TempPathFactory) -> Hunt:
    """A hunt by real runs that breaks nothing, and so has nothing to shrink."""
    return hunt_world(question_of(SMALL, "random ends", ["timing"], 1), tmp_path_factory.mktemp("stood") / "hunt")


@pytest.fixture(scope="module")
def hunted(tmp_path_factory: pytest.TempPathFactory) -> Hunt:
    question = question_of(SMALL, CLAIM, ["timing"], 2)
    return hunt_world(question, tmp_path_factory.mktemp("hunt") / "hunt")


@pytest.mark.long
def test_a_broken_claim_has_a_small_world_a_replay_and_a_sentence(hunted: Hunt) -> None:
    assert hunted.broken and hunted.reported is not None and f'"{hunted.claim}" fails in a world of' in str(hunted)
    world = fedbo.load_study(hunted.directory / "world.toml")
    replay = fedbo.Result.open(hunted.directory / "replay")
    assert replay.study.digest() == world.digest()
    ends: dict[int, float] = {}
    for row in replay.observations.to_pylist():
        ends[row["replicate"]] = max(ends.get(row["replicate"], 0.0), row["finished"])
    assert [ends[number] - 2.5 for number in sorted(ends)] == pytest.approx(list(hunted.reported.excesses))
    assert len(hunted.world.splitlines()) <= len((hunted.directory / "found.toml").read_text().splitlines())
    assert not (hunted.directory / "parts").exists()


@pytest.mark.long
def test_nothing_of_the_smallest_world_of_real_runs_can_be_left_out(hunted: Hunt, tmp_path: Path) -> None:
    assert hunted.reported is not None and hunted.reported.how == "shrunk"
    world = tomllib.loads(hunted.world)
    assert "timing" in world and world["agents"] == SMALL["agents"], "without that the claim fails in any world"
    assert needless(hunted, tmp_path, 8) == []
    more = replace(hunted, world=hunted.world + '\n[[fault]]\nkind = "slow"\nat = 1000.0\n')
    assert [path for path, _ in needless(more, tmp_path, 8)][0] == ("fault",)


@pytest.mark.long
@pytest.mark.parametrize("real", REAL, ids=[real.name for real in REAL])
def test_claims_about_real_runs_fail_in_the_known_part_of_the_world_alone(real: RealClaim, tmp_path: Path) -> None:
    vary = [*dict.fromkeys((*real.guilty, real.innocent))]
    found = fedbo.hunt(real.study, real.claim, vary=vary, worlds=real.worlds, out=tmp_path / "found")
    world = tomllib.loads(found.world)
    assert found.reported is not None and found.reported.how == "shrunk"
    assert {*real.guilty} == {name for name in vary if name in world}, found.world
    (tmp_path / "looks").mkdir()
    assert needless(found, tmp_path / "looks", 20) == [], found.world
    alone = fedbo.hunt(real.study, real.claim, vary=[real.innocent], worlds=real.worlds, out=tmp_path / "innocent")
    assert not alone.broken


@pytest.mark.long
def test_an_interrupted_hunt_goes_on_to_the_same_result(hunted: Hunt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried_out, count = WorldTrials._excess, [0]

    def interrupted(self: WorldTrials, work: Any, replicate: int) -> float | None:
        count[0] += 1
        if count[0] == 30:
            raise KeyboardInterrupt
        return carried_out(self, work, replicate)

    monkeypatch.setattr(WorldTrials, "_excess", interrupted)
    with pytest.raises(KeyboardInterrupt) as stop:
        hunt_world(question_of(SMALL, CLAIM, ["timing"], 2), tmp_path / "hunt")
    assert stop.value.args == (tmp_path / "hunt",)
    with pytest.raises(fedbo.errors.ResultError, match="continue with: fedbo resume"):
        Hunt.open(tmp_path / "hunt")
    with (tmp_path / "hunt" / "ledger.jsonl").open("a") as ledger:
        ledger.write('["ab", "sea')  # a line that a kill cut off
    whole = resume_hunt(tmp_path / "hunt")
    assert count[0] == 30 + sum(hunted.trials) - 29
    assert (whole.tried, whole.verdicts, whole.world, whole.trials) == (
        hunted.tried,
        hunted.verdicts,
        hunted.world,
        hunted.trials,
    )
    assert Hunt.open(tmp_path / "hunt") == whole


def test_wrong_hunts_are_refused_before_anything_starts(stood: Hunt, tmp_path: Path) -> None:
    def refused(error: type[Exception], words: str, study: dict[str, Any] = SMALL, **more: Any) -> None:
        with pytest.raises(error, match=words):
            question_of(study, **{"claim": CLAIM, **more})

    refused(ArgumentError, "names 'fts'; choose labels of the study", claim="fts ends")
    refused(ArgumentError, "vary = .*'weather'.*: must be a list of some of timing, availability", vary=["timing", "weather"])
    refused(ArgumentError, "worlds = 0: must be a whole number, at least 1", worlds=0)
    refused(StudyError, "cannot be hunted in; remove it", {**SMALL, "sweep": {"budget.iterations": [1, 2]}})
    refused(
        StudyError,
        "real time, at sites or with secure noise",
        {**SMALL, "timing": {"clock": "wall"}, "hosting": {"kind": "packed"}},
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DirectoryError, match="is not an empty directory"):
        hunt_world(question_of(SMALL, CLAIM), tmp_path / "full")
    with pytest.raises(DirectoryError, match="contains another hunt"):
        hunt_world(question_of(SMALL, CLAIM), stood.directory)


def printed(*words: str) -> str:
    found = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_prints_shows_and_plots_a_hunt(stood: Hunt, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(load_study(SMALL).to_toml())
    out = str(tmp_path / "out")
    facts = json.loads(
        printed(
            "hunt",
            str(study),
            "--claim",
            "random ends",
            "--vary",
            "timing",
            "--worlds",
            "1",
            "--out",
            out,
            "-q",
            "--format",
            "json",
        )
    )
    assert facts["broken"] is False and facts["worlds"] == 1
    assert facts["sentence"].startswith('No world breaks the claim "random ends" beyond doubt: 1 worlds were tried')
    assert Path(facts["figures"][0]).is_file()
    assert 'No world breaks the claim "random ends"' in " ".join(printed("show", str(stood.directory)).split())
    assert "drawn,timing," in printed("show", str(stood.directory), "--format", "csv")


@pytest.mark.long
def test_a_broken_claim_is_shown_and_plotted(hunted: Hunt, tmp_path: Path) -> None:
    shown = " ".join(printed("show", str(hunted.directory)).split())
    for words in (f'The claim "{CLAIM}" fails in a world of', "Verdicts on fresh seeds", "2 worlds were tried", "fedbo run"):
        assert words in shown, words
    assert "drawn,timing," in printed("show", str(hunted.directory), "--format", "csv")
    assert Path(printed("plot", str(hunted.directory), "--out", str(tmp_path / "hunt.svg")).strip()).is_file()
