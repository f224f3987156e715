"""The command `leak`: what the messages of a study or of a run betray, measured by attacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.answers import StoredAnswer, finish_answer
from fedbo.commands.arguments import Format, Printed, Quiet, Sets, progress_display

if TYPE_CHECKING:
    from fedbo.execution.progress import Progress
    from fedbo_leak.result import Leak


def leak(
    source: Annotated[
        Path, typer.Argument(metavar="STUDY|RUN", help="A study file (TOML), or a run directory.", show_default=False)
    ],
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="New or empty directory for the result. Default: a new one under runs/.")
    ] = None,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Attack the messages of a study, and say what a coordinator, another agent and a reader learn of an agent."""
    from fedbo_leak.leak import attack_study

    finish_answer(lambda: stored(attack_study(source, sets or (), out, progress_display(quiet))), printed)


def stored(leak: Leak) -> StoredAnswer:
    """Return the result of attacks as `show` and `plot` take it."""
    from fedbo_leak.figure import draw_leak
    from fedbo_leak.measuring import LeakRow
    from fedbo_leak.result import leak_facts, leak_table

    return StoredAnswer(
        what="a measurement of leakage",
        directory=leak.directory,
        table=leak_table(leak),
        facts=leak_facts(leak),
        rows=("attacks", LeakRow, leak.rows),
        draw=lambda path, _, look: draw_leak(leak, path, look),
    )


def read(folder: Path, _: bool) -> StoredAnswer:
    """Read the result of the attacks in a directory."""
    from fedbo_leak.result import Leak

    return stored(Leak.open(folder))


def resume(folder: Path, progress: Progress | None) -> StoredAnswer:
    """Continue attacks, with the original study."""
    from fedbo_leak.leak import resume_leak

    return stored(resume_leak(folder, progress))
