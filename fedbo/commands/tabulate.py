"""The command `fedbo tabulate`: evaluate a federation at a design, for the objective `tabulated`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import (
    Format,
    Printed,
    Quiet,
    print_json,
    progress_display,
    say_failures,
    stop_interrupted,
)

if TYPE_CHECKING:
    pass

_WHAT = "A federation's name, or a study file for its [objective]."
_SETTING = "A setting of the federation, such as agents=6; of a study file a key, such as objective.agents=6."
ObjectiveArgument = Annotated[str, typer.Argument(metavar="OBJECTIVE", help=_WHAT, show_default=False)]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SETTING)]


def tabulate(
    objective: ObjectiveArgument,
    sets: Sets = None,
    points: Annotated[int, typer.Option(min=1, help="Points of the Sobol design, the same for all agents.")] = 4096,
    refine: Annotated[int, typer.Option(min=0, help="Evaluations of every agent about the best points found.")] = 0,
    agents: Annotated[str | None, typer.Option(metavar="0,1,5", help="Only these agents; default: all.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Of all draws; default: the study's, else 0.")] = None,
    replicate: Annotated[int, typer.Option(min=0, help="Whose objectives, where every replicate has others.")] = 0,
    out: Annotated[Path | None, typer.Option(help="The table's folder, new or of the same table; default: NAME.table.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Ray actors; 0: this process. Default: the study's, else 0.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="A Ray cluster, such as auto; default: the study's, else none.")] = None,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Evaluate every agent's objective at many points, for the objective "tabulated"; given again, it resumes or extends.

    Ctrl-C and kills keep what was evaluated. More --points and more --refine keep what there is.
    """
    from fedbo.lab.tabulation.sources import source
    from fedbo.lab.tabulation.tabulation import TableRequest, tabulate

    origin, hosting = source(objective, sets or (), seed, replicate)
    given = {"workers": workers, "address": address}
    hosting = hosting.model_copy(update={key: value for key, value in given.items() if value is not None})
    folder = out or Path(f"{origin.name}.table")
    try:
        facts = tabulate(origin, folder, TableRequest(points, refine, _listed(agents)), hosting, progress_display(quiet))
    except KeyboardInterrupt as stop:
        stop_interrupted(folder if stop.args else None, "go on with the same command", printed)
    if printed is Format.json:
        print_json({**facts, "directory": str(folder.resolve())})
    else:
        from fedbo.figures.reports.tables import console, tabulation_table

        console().print(tabulation_table(facts))
        print(f"table: {folder}")
    entries = facts["agents"].values()
    failed, total = (sum(entry[key] for entry in entries) for key in ("failed", "evaluated"))
    say_failures(failed, total, facts["first_failure"])


def _listed(agents: str | None) -> tuple[int, ...] | None:
    if agents is None:
        return None
    try:
        return tuple(int(word) for word in agents.split(","))
    except ValueError:
        raise typer.BadParameter(f"--agents {agents}: is no list of agents; write, for example, --agents 0,1,5") from None
