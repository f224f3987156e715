"""The command `hunt`: the smallest world in which a claim about a method fails."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import Format, Printed, Quiet, Sets, StudyFile, carried_out, print_answer, progress_display

if TYPE_CHECKING:
    from fedbo.lab.hunt.result import Hunt


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
    from fedbo.lab.hunt.hunt import hunt_world, question_of

    varied = [name.strip() for name in vary.split(",") if name.strip()]
    question = question_of(study, claim, varied, worlds, seed, search.value, sets or ())
    finish_hunt(lambda: hunt_world(question, out, progress_display(quiet)), printed)


def finish_hunt(carry_out: Callable[[], Hunt], printed: Format) -> None:
    """Carry a hunt out, draw its figure and print its result."""
    from fedbo.lab.hunt.figure import draw_hunt
    from fedbo.lab.hunt.tables import hunt_facts, hunt_table

    found = carried_out(carry_out, printed)
    print_answer(hunt_table(found), hunt_facts(found), draw_hunt(found), found.directory, printed)
