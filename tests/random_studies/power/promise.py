"""The promise about power cuts, tried on one study: a list of what was broken.

After a power cut at any moment the command that goes on ends as if there had been none, or refuses in one line with a remedy,
and nothing that was reported as done is lost.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from fedbo.study.study import Study, StudyError, load_study
from tests.random_studies.carrying_out import LEGAL_NAMES, Ending, Untried, forked, words
from tests.random_studies.chaos.real_time import draw_real_time_study
from tests.random_studies.power.disk import POLICIES, Disk
from tests.random_studies.power.stories import (
    CutStory,
    extension_story,
    fork_story,
    meeting_story,
    real_time_story,
    run_story,
)

STORIES = ("run", "extension", "fork", "meeting", "real time")
_AGAIN = 0.25  # share of the cuts after which the process that goes on is cut off, too
_REFUSALS = ("DamagedError", "DirectoryError")

cuts_made = Counter[str]()  # by story and policy, and those that were refused


def broken_by_power_cuts(study: Study, folder: Path, seconds: float, cuts: int, seed: int, what: str = "") -> list[str]:
    """Carry out a story about a study, cut it off at random moments, and go on with what the disk may have kept."""
    rng = random.Random(f"power cuts {seed}")
    story = draw_story(what or STORIES[seed % len(STORIES)], study, folder, rng, seed)
    for work in (story.before, lambda: _kept(story, folder / "initial")):
        ended = forked(work, folder, seconds)
        if ended.error.startswith(LEGAL_NAMES):
            raise Untried(ended.error)
        if ended.code:
            return [words(ended, "what comes before", seconds)]
    counted = forked(lambda: _worked(story, folder, (), seed), folder, seconds)
    if counted.error.startswith((*LEGAL_NAMES, "ForkError", "StudyError")):
        raise Untried(counted.error)
    if counted.code:
        return [words(counted, story.name, seconds)]
    at = sorted(rng.sample(range(1, counted.given + 1), min(cuts, counted.given)))
    _restore(folder / "initial", story.place)
    forked(lambda: _worked(story, folder, at, seed), folder, seconds)
    broken = list[str]()
    for number in at:
        for policy in POLICIES if cuts >= counted.given else [rng.choice(POLICIES)]:
            image = folder / "images" / f"{number}-{policy}"
            if image.exists():
                broken += _broken_after(story, folder, image, (seconds, counted.given), rng)
    return broken


def draw_story(what: str, study: Study, folder: Path, rng: random.Random, seed: int) -> CutStory:
    """Return a story about a study; Untried where nothing of the kind can be told about it."""
    try:
        often = load_study({**study.document(), "recovery": {"events": rng.choice((6, 30, 600))}})
    except StudyError as error:
        raise Untried(str(error)) from None
    if what == "run":
        return run_story(often, folder)
    if what == "extension":
        return extension_story(often, folder, rng)
    if what == "fork":
        return fork_story(often, folder, rng)
    if what == "meeting":
        return meeting_story(folder, seed)
    return real_time_story(_alone(seed), folder)


def _alone(seed: int) -> Study:
    """Draw a study in real time that one process can carry out: without faults, and with one evaluation at a time."""
    document = draw_real_time_study(seed).document()
    document.pop("fault", None)
    evaluation = {key: value for key, value in document.get("evaluation", {}).items() if key in ("failure", "retries")}
    try:
        return load_study({**document, "evaluation": evaluation, "recovery": {"seconds": 0.5}})
    except StudyError as error:
        raise Untried(str(error)) from None


def _kept(story: CutStory, copy: Path) -> None:
    """Copy the state of a place before its story begins."""
    if story.place.exists():
        shutil.copytree(story.place, copy)


def _restore(copy: Path, place: Path) -> None:
    """Put the state of a copy in a place."""
    shutil.rmtree(place, ignore_errors=True)
    if copy.exists():
        shutil.copytree(copy, place)


def _worked(story: CutStory, folder: Path, at: Collection[int], seed: int) -> int:
    """Carry a story out in this process, leave images of the disk before some operations, and return how many there were."""
    images = folder / "images"
    images.mkdir(exist_ok=True)

    def cut(number: int) -> None:
        for policy in POLICIES:
            disk.write_image(images / f"{number}-{policy}", policy, random.Random(f"{seed} {number}"))
            (images / f"{number}-{policy}.json").write_text(json.dumps(story.known()))

    disk = Disk(story.place, at, cut)
    story.work()
    return disk.count


def _broken_after(story: CutStory, folder: Path, image: Path, limits: tuple[float, int], rng: random.Random) -> list[str]:
    """Go on with an image of the disk, once more cut off or not, and return what is wrong then."""
    seconds, operations = limits
    known, name = json.loads(image.with_suffix(".json").read_text()), f"{story.name}, {image.name}"
    cuts_made.update([story.name, image.name.partition("-")[2], "cuts"])
    _restore(image, story.place)
    if rng.random() < _AGAIN:
        number, policy = rng.randint(1, operations), rng.choice(POLICIES)
        shutil.rmtree(folder / "images-again", ignore_errors=True)
        (folder / "images-again").mkdir()
        ended = forked(lambda: _worked(story, folder / "images-again", (number,), 0), folder, seconds)
        second = folder / "images-again" / "images" / f"{number}-{policy}"
        if second.exists():
            known, name = known + json.loads(second.with_suffix(".json").read_text()), f"{name}, again {number}-{policy}"
            cuts_made.update([story.name, policy, "cuts", "second cuts"])
            _restore(second, story.place)
            ended = forked(story.work, folder, seconds)
    else:
        ended = forked(story.work, folder, seconds)
    if _refused(ended):
        cuts_made.update(["refused", f"refused: {ended.error[:200]}"])
        return []
    if ended.code:
        return [f"{name}: {words(ended, 'what goes on', seconds)}"]
    found = forked(lambda: story.check(known), folder, seconds)
    wrong = [words(found, "the check", seconds)] if found.code else list(found.given)
    return [f"{name}: {one}" for one in wrong]


def _refused(ended: Ending) -> bool:
    """Return whether a command was refused in one line with a remedy."""
    return bool(ended.code) and ended.error.startswith(_REFUSALS) and ";" in ended.error and "\n" not in ended.error
