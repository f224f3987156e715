"""The commands `fedbo fit`: a world fitted to a run or a log, and `fedbo twin`: a run rebuilt in virtual time."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbo.commands.arguments import Dark, Format, Printed, RunFolderArgument, Sets, Trust, print_json

Source = Annotated[
    Path, typer.Argument(metavar="RUN|FILE", help="A run directory, or a log file (.csv or .parquet).", show_default=False)
]
Fitted = Annotated[
    str | None, typer.Option("--algorithm", help="Label of the algorithm to fit. Default: the first federated one.")
]
CellNumber = Annotated[int, typer.Option(min=0, help="Number of the cell in the sweep.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random draws.")]


def fit(
    source: Source,
    algorithm: Fitted = None,
    cell: CellNumber = 0,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for world.toml, durations.png, and durations that no distribution fits.")
    ] = None,
    dark: Dark = False,
    printed: Printed = Format.text,
) -> None:
    """Fit durations, decision times, latencies, absences, crashes and losses, and print them as tables of a study.

    A log has a column duration, or started and finished; it may have agent, coordinates from 0 to 1 in u1, u2, …, and ended: 0
    where an evaluation was cut short.
    """
    from fedbo.lab.twins.functions import fit as fit_source
    from fedbo.lab.twins.words import world_facts, world_toml

    world = unwrap(fit_source)(source, algorithm=algorithm, cell=cell, seed=seed, out=out, dark=dark)
    if printed is Format.json:
        print_json(world_facts(world))
    else:
        print(world_toml(world, str(source), seed), end="")


def twin(
    folder: RunFolderArgument,
    sets: Sets = None,
    algorithm: Fitted = None,
    replicates: Annotated[int, typer.Option(min=2, max=1000, help="Number of replicates of the twin.")] = 20,
    seed: Seed = 0,
    trust: Trust = False,
    printed: Printed = Format.text,
) -> None:
    """Rebuild a run in virtual time from its fit, compare both, and predict the effect of --set."""
    from fedbo.lab.twins.functions import twin as rebuild
    from fedbo.lab.twins.twins import facts_of_prediction

    options: dict[str, Any] = {"algorithm": algorithm, "replicates": replicates, "seed": seed, "trust": trust}
    found = unwrap(rebuild)(folder, overrides=sets or (), **options)
    if printed is Format.text:
        print(found.words)
        return
    what_if = None if found.changed is None else {**facts_of_prediction(found.changed), "ratios": found.ratios}
    facts = {"algorithm": found.algorithm, "unfinished": dict(found.world.unfinished)}
    print_json({**facts, "twin": facts_of_prediction(found.unchanged), "changed": what_if})
