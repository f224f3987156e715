"""The command `fedbo twin`: a recorded run rebuilt in virtual time, and the predicted effect of changes."""

from __future__ import annotations

from typing import Annotated

import typer

from fedbo.commands.arguments import Format, Printed, RunFolderArgument, Sets, Trust, print_json
from fedbo.commands.fit import Fitted, Seed


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
