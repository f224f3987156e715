"""The commands that inspect a study or a run: `validate`, `show`, `compare`, `plot` and `replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from fedbo.commands import arguments as options
from fedbo.commands.answers import answer_in, show_answer
from fedbo.commands.arguments import FAILED, Format, Stop, TableFormat, listed, note_failures, offered, print_json
from fedbo.settings.arguments import FigureKind
from fedbo.settings.logs import say
from fedbo.settings.rooms import optional_or

if TYPE_CHECKING:
    from fedbo.analysis.result import Choices, Result
    from fedbo.figures.reports.views import ReportView

_KINDS = get_args(FigureKind)


def validate(
    study: options.StudyFile,
    sets: options.Sets = None,
    timed: Annotated[bool, typer.Option("--time", help="Start each run for a few seconds to estimate the total time.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print the complete study file, with every default.")] = False,
    trust: options.Trust = False,
    printed: options.Printed = Format.text,
) -> None:
    """Check a study without running it, and print what it will cost.

    A data set or a library that its objectives need and that is not on this machine is a warning: other hosts may have it.
    """
    from dataclasses import asdict

    from fedbo.execution.requirements import validation
    from fedbo.figures.reports.tables import console, plain, study_facts
    from fedbo.objectives.datasets.data import without_fetching
    from fedbo.study.study import load_study

    with without_fetching():
        checked = load_study(study, sets or [], trust)
    if full and printed is Format.text:
        print(checked.to_toml())
        return
    if timed:
        offered("forecast", "--time")
    found = validation(checked, timed)
    cost, total, duration = found.cost, found.epsilon_together, found.time
    if printed is Format.json:
        facts = {
            **asdict(cost),
            "assumptions": cost.assumptions,
            "epsilon": plain(list(found.epsilon)),
            "reveals": found.reveals,
        }
        facts["epsilon_together"] = None if total is None else asdict(total)
        facts |= {"missing": None, "endless": None, **found.warnings}
        facts |= {"time": None if duration is None else {**asdict(duration), "virtual": duration.virtual}} if timed else {}
        print_json({"study": checked.document(), "sha256": checked.digest(), "estimate": facts})
        return
    console().print(study_facts(cost, optional_or("estimate_lines", ())(found.epsilon, total), found.reveals))
    for warning in found.warnings.values():
        say(f"warning: {warning}")
    if timed:
        print(offered("forecast_line", "--time")(duration))


def show(
    folder: options.RunFolderArgument,
    baseline: options.Baseline = None,
    trouble: Annotated[bool, typer.Option("--trouble", help="Show stragglers, messages, crashes and failures.")] = False,
    agents: Annotated[bool, typer.Option("--agents", help="With --trouble: add one row per agent.")] = False,
    privacy: Annotated[bool, typer.Option("--privacy", help="Show the privacy spent.")] = False,
    regret: Annotated[bool, typer.Option("--regret", help="Show regret on the mean of all agents' functions.")] = False,
    prints: Annotated[bool, typer.Option("--printed", help="Show what evaluations of your own code printed.")] = False,
    best: Annotated[
        bool, typer.Option("--best", help="Show the best configuration of each agent, and one recommended for all.")
    ] = False,
    trials: Annotated[bool, typer.Option("--trials", help="Show every evaluation with its configuration.")] = False,
    algorithm: options.Chosen = None,
    level: options.Level = None,
    trust: options.Trust = False,
    printed: options.TableFormats = TableFormat.text,
) -> None:
    """Print the summary of a run; for a sweep, also compare its cells."""
    from fedbo.analysis.comparison import target_of
    from fedbo.analysis.described import failures
    from fedbo.analysis.result import Result
    from fedbo.figures.reports.views import ReportView

    if (answer := answer_in(folder, trust)) is not None:
        show_answer(answer, printed)
        return
    asked = {"trouble": trouble, "privacy": privacy, "regret": regret, "printed": prints, "best": best, "trials": trials}
    chosen = [name for name, wanted in asked.items() if wanted]
    if len(chosen) > 1:
        raise typer.BadParameter(f"--{chosen[0]} and --{chosen[1]} cannot be combined; set one of them")
    if agents and not trouble:
        raise typer.BadParameter("--agents: requires --trouble; add --trouble, or remove --agents")
    if privacy:
        offered("privacy_table", "--privacy")
    result = Result.open(folder, trust)
    target = target_of(result, algorithm, level)
    view = ReportView(chosen[0] if chosen else "summary", baseline, target, algorithm, agents)
    _print_view(view, result, printed)
    if view.name == "summary":
        failed, first = failures(result)
        note_failures(failed, len(result.observations), first)


def _print_view(view: ReportView, result: Result, printed: TableFormat) -> None:
    """Print a view of a run in one of the formats."""
    from fedbo.figures.reports.tables import console
    from fedbo.figures.reports.views import written

    if printed is TableFormat.json:
        print_json({**view.facts(result), "figures": []})
    elif printed is TableFormat.csv:
        print(view.records(result).to_csv(), end="")
        if view.name == "summary" and result.study.sweep:
            print("CSV does not contain the comparison of cells; use --format json", file=sys.stderr)
    elif printed is TableFormat.text and view.name == "printed":
        _show_prints(result)
    elif printed is TableFormat.text:
        console().print(view.shown(result))
        print(f"results: {result.address or result.directory}")
    else:
        print(written(view.shown(result), printed), end="")


def _show_prints(result: Result) -> None:
    """Print the output of each evaluation, below a line that names the evaluation."""
    from fedbo.analysis.finished_run import configurations
    from fedbo.objectives.typed_spaces.declared_space import in_words

    rows = result.printed.to_pylist()
    for row in rows:
        cell = f"cell {row['cell']}, " if len(result.manifest["cells"]) > 1 else ""
        place = f"replicate {row['replicate']}, agent {row['agent']}, step {row['step']}, evaluation {row['number']}"
        point = in_words(configurations(result, row["cell"]).at(row["x"]))
        print(f"{cell}{row['algorithm']}, {place}, {point}:\n{row['text'].rstrip()}")
    if not rows:
        print("no evaluation printed anything; output of built-in objectives is not kept")


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN...", help="Two or more run directories.", show_default=False)
    ],
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves of all runs into this file (.png, .pdf or .svg) or folder.")
    ] = None,
    cell: options.CellNumber = None,
    regret: options.Regret = False,
    algorithms: options.Algorithms = None,
    replicate: options.Replicate = None,
    panels: options.Panels = None,
    width: options.Width = None,
    height: options.Height = None,
    font: options.Font = None,
    font_size: options.FontSize = None,
    title: options.Title = True,
    dark: options.Dark = False,
    trust: options.Trust = False,
    printed: options.TableFormats = TableFormat.text,
) -> None:
    """Print several runs of the same objective side by side; compare each algorithm with the same one in the first run."""
    from fedbo.analysis.result import Result
    from fedbo.analysis.side_by_side import side_by_side
    from fedbo.figures.reports.tables import console, plain
    from fedbo.figures.reports.views import runs_table, written

    lists: Choices = {"algorithms": listed("algorithms", algorithms), "panels": listed("panels", panels)}
    look: Choices = {"width": width, "height": height, "font": font, "font_size": font_size, "title": title, "dark": dark}
    choices: Choices = {"regret": regret, "replicate": replicate, **lists, **look}
    given = {"cell": cell, **choices, "no-title": not title, "title": None}
    if plot is None and (idle := [name for name, value in given.items() if value is not None and value is not False]):
        raise typer.BadParameter(f"--{idle[0].replace('_', '-')}: is for a figure; add --plot FILE, or leave it out")
    results = [Result.open(folder, trust) for folder in folders]
    rows = side_by_side(results)
    figures = [] if plot is None else [str(rows.plot(plot, cell, **choices))]
    if printed is TableFormat.json:
        print_json({"runs": plain(list(rows)), "figures": figures})
    elif printed is TableFormat.csv:
        print(rows.to_csv(), end="")
    elif printed is TableFormat.text:
        console().print(runs_table(results, rows))
    else:
        print(written(runs_table(results, rows), printed), end="")
    for figure in figures if printed is not TableFormat.json else ():
        print(f"figure: {figure}", file=sys.stdout if printed is TableFormat.text else sys.stderr)


def plot(
    folder: options.RunFolderArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="File of the figure (.png, .pdf or .svg), or a folder for it. Default: the run directory."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"Kind of figure: {', '.join(_KINDS[:-1])} or {_KINDS[-1]}. Default: sweep, or overview without a sweep."
        ),
    ] = None,
    cell: options.CellNumber = None,
    regret: options.Regret = False,
    algorithm: options.Chosen = None,
    algorithms: options.Algorithms = None,
    replicate: options.Replicate = None,
    panels: options.Panels = None,
    level: options.Level = None,
    width: options.Width = None,
    height: options.Height = None,
    font: options.Font = None,
    font_size: options.FontSize = None,
    title: options.Title = True,
    dark: options.Dark = False,
    caption: Annotated[
        bool, typer.Option("--caption", help="Print a LaTeX caption: n, what intervals are, paired tests.")
    ] = False,
    trust: options.Trust = False,
) -> None:
    """Draw a figure of a run and print its path."""
    from fedbo.analysis.result import Result

    choices: Choices = {
        **{"regret": regret, "algorithm": algorithm, "level": level, "replicate": replicate},
        **{"algorithms": listed("algorithms", algorithms), "panels": listed("panels", panels)},
    }
    look: Choices = {"width": width, "height": height, "font": font, "font_size": font_size, "title": title, "dark": dark}
    if (answer := answer_in(folder, trust)) is not None:
        idle = [name for name, value in {"kind": kind, **choices, "caption": caption}.items() if value not in (None, False)]
        if idle:
            raise typer.BadParameter(
                f"the figure of {answer.what} does not support --{idle[0]}; remove it, or plot one of its runs"
            )
        print(answer.draw(out, cell or 0, look))
        return
    every: Choices = {**choices, **look}
    result, chosen = Result.open(folder, trust), cast(FigureKind | None, kind)
    path = result.plot(out, chosen, cell, **every)
    print(f"% {path}\n{result.caption(chosen, cell, **every)}" if caption else path)


def replay(
    folder: options.RunFolderArgument,
    out: Annotated[Path | None, typer.Option(help="Keep the results of the replay in this new or empty directory.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with the run and print the first difference.")] = False,
    trust: options.Trust = False,
    printed: options.Printed = Format.text,
) -> None:
    """Repeat a run in virtual time: from its study, or from its record if it ran in real time."""
    from dataclasses import asdict

    from fedbo.execution.replay import replay as replay_run

    found = replay_run(folder, out, verify, trust)
    if printed is Format.json:
        print_json(asdict(found))
    else:
        print(found.words)
    if verify and not found.same:
        raise Stop(FAILED)
