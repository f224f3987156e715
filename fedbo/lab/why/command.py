"""The command `why`: when the bad end of a run was decided, and which luck it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.answers import StoredAnswer, finish_answer
from fedbo.commands.arguments import Format, Printed, Quiet, RunFolderArgument, Trust, print_json, progress_display

if TYPE_CHECKING:
    from fedbo.execution.progress import Progress
    from fedbo.lab.why.result import Why


def why(
    folder: RunFolderArgument,
    end: Annotated[
        str | None,
        typer.Option(
            help='The bad end, such as "regret > 0.1", "best < 0.8 at t = 10", "time to level > 40", "end > 30", '
            '"epsilon > 2", "agent 3 last" or stuck. Default: only the spread of the best value.'
        ),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="Label of the algorithm; needed if there are several.")] = None,
    replicate: Annotated[int | None, typer.Option(help="Replicate to ask. Default: the first that ended so.")] = None,
    cell: Annotated[int, typer.Option(min=0, help="Number of the cell in the sweep.")] = 0,
    level: Annotated[
        float | None, typer.Option(help='Level of "time to level". Default: the final value of the first algorithm.')
    ] = None,
    budget: Annotated[int, typer.Option(help="Branches to spend on a bad end.")] = 150,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Rows of the design for shares of the spread, each about ten branches. Default: 64, or 0 with --end."
        ),
    ] = None,
    branch: Annotated[
        int | None, typer.Option(help="Repeat this branch as a run directory; RUN is then an answer, such as RUN/why/end.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New or empty directory for the answer. Default: one in the folder why of the run.")
    ] = None,
    trust: Trust = False,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Ask why a run ended badly: repeat it from many moments with other luck, and with one source of luck made anew."""
    from fedbo.lab.why.question import Question
    from fedbo.lab.why.why import repeat_branch, why_run

    if branch is not None:
        place = repeat_branch(folder, branch, out, trust)
        if printed is Format.json:
            print_json({"directory": str(place)})
        else:
            print(f"results: {place}")
        return
    question = Question(
        end=end or "", algorithm=algorithm, replicate=replicate, cell=cell, level=level, budget=budget, rows=rows
    )
    finish_answer(lambda: stored(why_run(folder, question, out, progress_display(quiet), trust)), printed)


def stored(why: Why) -> StoredAnswer:
    """Return an answer as `show` and `plot` take it."""
    from fedbo.lab.why.figure import draw_why
    from fedbo.lab.why.result import SourceRow
    from fedbo.lab.why.tables import why_facts, why_table

    return StoredAnswer(
        what="why",
        directory=why.directory,
        table=why_table(why),
        facts=why_facts(why),
        rows=("sources", SourceRow, [*why.sources, *why.agents]),
        draw=lambda path, _, look: draw_why(why, path, look),
    )


def read(folder: Path, _: bool) -> StoredAnswer:
    """Read the answer in a directory."""
    from fedbo.lab.why.result import Why

    return stored(Why.open(folder))


def resume(folder: Path, progress: Progress | None) -> StoredAnswer:
    """Continue to ask why, with the original question."""
    from fedbo.lab.why.why import resume_why

    return stored(resume_why(folder, progress))
