"""The command `fedbo tabulate`: evaluate a federation at a design, for the objective `tabulated`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import Format, Printed, Quiet, print_json, progress_display, say_failures, stop_interrupted

_WHAT = "Name of an objective, or a study file with an [objective]."
_SETTING = (
    "Set one setting of the objective, for example agents=6, or one key of the study file, for example objective.agents=6."
)
ObjectiveArgument = Annotated[str, typer.Argument(metavar="OBJECTIVE", help=_WHAT, show_default=False)]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SETTING)]


def tabulate(
    objective: ObjectiveArgument,
    sets: Sets = None,
    points: Annotated[int, typer.Option(min=1, help="Number of points of the Sobol design that all agents share.")] = 4096,
    refine: Annotated[int, typer.Option(min=0, help="Number of further evaluations per agent near its best points.")] = 0,
    agents: Annotated[
        str | None, typer.Option(metavar="0,1,5", help="Evaluate only these agents. Default: all agents.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of all random draws. Default: the study's seed, else 0.")
    ] = None,
    replicate: Annotated[
        int, typer.Option(min=0, help="Replicate whose objectives are evaluated, if they differ between replicates.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the table: a new one, or one with the same table. Default: NAME.table.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of Ray workers; 0 uses this process. Default: the study's number, else 0.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster, for example auto. Default: the study's address, else none.")
    ] = None,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Evaluate every agent's objective at many points, and write a table for the objective "tabulated".

    Repeat the command to resume it, or to extend the table by larger --points or --refine. Finished evaluations are kept.
    """
    from fedbo_tables.sources import source
    from fedbo_tables.tabulation import TableRequest, tabulate_objective

    origin, hosting = source(objective, sets or (), seed, replicate)
    given = {"workers": workers, "address": address}
    hosting = hosting.model_copy(update={key: value for key, value in given.items() if value is not None})
    folder = out or Path(f"{origin.name}.table")
    try:
        facts = tabulate_objective(
            origin, folder, TableRequest(points, refine, _listed(agents)), hosting, progress_display(quiet)
        )
    except KeyboardInterrupt as stop:
        stop_interrupted(folder if stop.args else None, "run the same command again to continue", printed)
    if printed is Format.json:
        print_json({**facts, "directory": str(folder.resolve())})
    else:
        from fedbo.figures.reports.tables import console
        from fedbo_tables.shown import tabulation_table

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
        raise typer.BadParameter(f"--agents {agents}: is not a list of agents; write, for example, --agents 0,1,5") from None
