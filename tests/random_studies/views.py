"""What is promised of every run: each command that reads it answers, or says in a line what to do. A list of what broke."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedbo.cli import main
from fedbo.commands.arguments import OK, WRONG_INPUT, TableFormat
from fedbo.figures.plot import KINDS
from fedbo.study.study import Study
from tests.random_studies.carrying_out import LEGAL_NAMES, begin_or_go_on, forked, hosted, words

SHOWN = ((), ("--trouble", "--agents"), ("--privacy",), ("--regret",), ("--printed",), ("--best",), ("--trials",))
FIGURES = 5  # of each run: a figure takes most of a second


def broken_views(study: Study, folder: Path, seconds: float, seed: int) -> list[str]:
    """Run a study in a fork, and ask for every table and format, some figures, reports and exports; a traceback is broken."""
    directory = folder / "run"
    ended = forked(lambda: begin_or_go_on(hosted(study, "inline"), directory), folder, seconds)
    if ended.error.startswith(LEGAL_NAMES):
        return []
    if ended.code:
        return [words(ended, "the run", seconds)]
    shutil.copytree(directory, folder / "same")
    drawn = random.Random(f"views {seed}")
    asked = forked(lambda: list(broken_answers(commands(directory, folder / "same", drawn))), folder, seconds)
    return [words(asked, "the commands", seconds)] if asked.code else list(asked.given)


def broken_answers(asked: Iterable[list[str]]) -> Iterator[str]:
    """Yield what is wrong with the answers of some commands."""
    for command in asked:
        said, complaint = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
                code = main(command)
        except Exception as error:
            yield f"fedbo {' '.join(command)}: {type(error).__name__}: {error}"
            continue
        lines = complaint.getvalue().splitlines()
        if code not in (OK, WRONG_INPUT) or (code == WRONG_INPUT and len(lines) != 1) or (code == OK and not said.getvalue()):
            yield f"fedbo {' '.join(command)}: exit code {code}, {len(lines)} lines of complaint: {lines[-1:]}"


def commands(run: Path, same: Path, rng: random.Random) -> Iterator[list[str]]:
    """Yield commands that read a run, or compare it with the copy `same`."""
    first, out = str(run), run.parent
    for options in SHOWN:
        yield ["show", first, *options, "--format", rng.choice([each.value for each in TableFormat])]
    for kind in rng.sample(KINDS, FIGURES):
        yield ["plot", first, "--kind", kind, "--out", str(out / f"{kind}.{rng.choice(['png', 'svg', 'pdf'])}")]
    yield ["compare", first, str(same), "--format", rng.choice([each.value for each in TableFormat])]
    yield ["report", first, "--out", str(out / "one.html"), *rng.choice([[], ["--agents"]])]
    yield ["report", first, str(same), "--out", str(out / "two.html")]
    yield ["watch", first, "--once", "--format", rng.choice(["text", "json"])]
    yield ["validate", str(run / "study.toml")]
    for more in (["--to", "optuna"], ["--to", "perfetto"], ["--public", str(out / "public.json")]):
        yield ["export", first, *more]
