"""The command `fedbo fit`: a world fitted to a run or a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import Format, Printed, print_json

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
        Path | None, typer.Option(help="Folder for world.toml, and for durations that no distribution fits.")
    ] = None,
    printed: Printed = Format.text,
) -> None:
    """Fit durations, decision times, latencies, absences, crashes and losses, and print them as tables of a study.

    A log has a column duration, or started and finished; it may have agent, and coordinates from 0 to 1 in u1, u2, ….
    """
    from fedbo.actors.storage import atomic
    from fedbo.lab.twins.fitting import fit_world
    from fedbo.lab.twins.sources import keep_durations, measure
    from fedbo.lab.twins.words import world_facts, world_toml
    from fedbo.study.paths import make_folder

    measured = measure(source, algorithm, cell)
    file = None
    if out is not None:
        make_folder(out)
        file = str(keep_durations(measured, out.resolve()))
    world = fit_world(measured, seed, file)
    if out is not None:
        atomic.write_text(out / "world.toml", world_toml(world, str(source), seed))
    if printed is Format.json:
        print_json(world_facts(world))
    else:
        print(world_toml(world, str(source), seed), end="")
