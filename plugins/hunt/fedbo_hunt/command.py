"""The command `hunt`: the smallest world in which a claim about a method fails."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.answers import StoredAnswer, finish_answer
from fedbo.commands.arguments import Format, Printed, Quiet, Sets, StudyFile, progress_display

if TYPE_CHECKING:
    from fedbo.execution.progress import Progress
    from fedbo_hunt.result import Hunt


class SearchName(StrEnum):
    """How worlds are searched."""

    guided = "guided"
    random = "random"


def hunt(
    study: StudyFile,
    claim: Annotated[
        str,
        typer.Option(
            help='Claim, such as "fts is not worse than ts by 0.01 at t = 10", "bytes of fts is at most 1e6", "fts ends".',
            show_default=False,
        ),
    ],
    vary: Annotated[
        str, typer.Option(metavar="A,B", help="Tables of the study that worlds draw anew.")
    ] = "timing,availability,fault,exchange,agents",
    worlds: Annotated[int, typer.Option(help="Number of worlds to try.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the hunt.")] = 0,
    search: Annotated[
        SearchName, typer.Option(help="Guide the search by what broke so far, or draw all worlds.")
    ] = SearchName.guided,
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="New or empty directory for the result. Default: a new one under runs/.")
    ] = None,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Hunt for the smallest world in which a claim about a method fails, and test it on fresh seeds."""
    from fedbo_hunt.hunt import hunt_world, question_of

    varied = [name.strip() for name in vary.split(",") if name.strip()]
    question = question_of(study, claim, varied, worlds, seed, search.value, sets or ())
    finish_answer(lambda: stored(hunt_world(question, out, progress_display(quiet))), printed)


def stored(hunt: Hunt) -> StoredAnswer:
    """Return the result of a hunt as `show` and `plot` take it."""
    from fedbo_hunt.figure import draw_hunt
    from fedbo_hunt.result import TriedRow, hunt_facts, hunt_table

    return StoredAnswer(
        what="a hunt",
        directory=hunt.directory,
        table=hunt_table(hunt),
        facts=hunt_facts(hunt),
        rows=("worlds", TriedRow, hunt.tried),
        draw=lambda path, _, look: draw_hunt(hunt, path, look),
    )


def read(folder: Path, _: bool) -> StoredAnswer:
    """Read the result of the hunt in a directory."""
    from fedbo_hunt.result import Hunt

    return stored(Hunt.open(folder))


def resume(folder: Path, progress: Progress | None) -> StoredAnswer:
    """Continue a hunt, with the original question."""
    from fedbo_hunt.hunt import resume_hunt

    return stored(resume_hunt(folder, progress))
