"""The commands `fedbo fit`: a world fitted to a run or a log, and `fedbo twin`: a run rebuilt in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import Format, Printed, RunFolderArgument, Sets, Trust, print_json

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
    printed: Printed = Format.text,
) -> None:
    """Fit durations, decision times, latencies, absences, crashes and losses, and print them as tables of a study.

    A log has a column duration, or started and finished; it may have agent, coordinates from 0 to 1 in u1, u2, …, and ended: 0
    where an evaluation was cut short.
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
        file = str(keep_durations(measured, out.resolve(), seed))
    world = fit_world(measured, seed, file)
    if out is not None:
        from fedbo.lab.twins.figure import draw_durations

        draw_durations(measured, world, out, source.name)
        atomic.write_text(out / "world.toml", world_toml(world, str(source), seed))
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
    from fedbo.analysis.result import Result
    from fedbo.lab.twins.twins import Twin, facts_of_prediction, ratios
    from fedbo.lab.twins.words import change_lines, cut_short, prediction_lines

    with Twin(Result.open(folder, trust), algorithm, seed) as made:
        if sets:
            made.study(replicates, sets)  # what is wrong is said at once
        unchanged = made.predict(replicates)
        changed = made.predict(replicates, sets) if sets else None
    if printed is Format.json:
        what_if = None if changed is None else {**facts_of_prediction(changed), "ratios": ratios(changed, unchanged)}
        print_json(
            {
                "algorithm": made.label,
                "unfinished": dict(made.world.unfinished),
                "twin": facts_of_prediction(unchanged),
                "changed": what_if,
            }
        )
        return
    print(f"twin of '{made.label}': {replicates} replicates, {unchanged.workers} workers")
    if made.others:
        print(f"other algorithms for --algorithm: {', '.join(made.others)}")
    if not unchanged.recorded.messages:
        print(f"'{made.label}' sent no message")
    for line in (*cut_short(made.world), *prediction_lines(unchanged)):
        print(line)
    for line in () if changed is None else change_lines(changed, unchanged, sets or ()):
        print(line)
