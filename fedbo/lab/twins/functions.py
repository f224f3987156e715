"""The functions `fit` and `twin` of `fedbo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.storage import atomic
from fedbo.analysis.result import Result
from fedbo.call_arguments import Overrides, named_in_python, overrides_of, results_of
from fedbo.lab.twins.fitting import FittedWorld, fit_world
from fedbo.lab.twins.sources import keep_durations, measure
from fedbo.lab.twins.twins import Twin, TwinPrediction, ratios
from fedbo.lab.twins.words import change_lines, cut_short, prediction_lines, world_toml
from fedbo.settings import arguments as checks
from fedbo.study.paths import make_folder


@named_in_python()
def fit(
    source: str | Path,
    *,
    algorithm: str | None = None,
    cell: int = 0,
    seed: int = 0,
    out: str | Path | None = None,
    dark: bool = False,
) -> FittedWorld:
    """Fit durations, latencies, absences, crashes and losses to a run or a log; `tables()` of the answer are those of a study.

    `source` is the directory of a run, or a .csv or .parquet file (docs/what-if.md). The folder `out` gets world.toml,
    durations.png, on a dark page if `dark`, and durations that no distribution fits. Raises MeasurementError where too little
    was measured.
    """
    place, out = Path(checks.path("source", source)), None if out is None else Path(checks.path("out", out))
    if checks.flag("dark", dark) and out is None:
        raise checks.wrong("dark", dark, "is for the figure in the folder out; set out too")
    measured = measure(place, algorithm, checks.whole("cell", cell))
    if out is None:
        return fit_world(measured, checks.whole("seed", seed), None)
    from fedbo.lab.twins.figure import draw_durations

    make_folder(out)
    world = fit_world(measured, seed, str(keep_durations(measured, out.resolve(), checks.whole("seed", seed))))
    draw_durations(measured, world, out, place.name, dark)
    atomic.write_text(out / "world.toml", world_toml(world, str(source), seed))
    return world


class TwinAnswer(NamedTuple):
    """The twin of an algorithm's run: its world, the facts that it predicts without and with changes, and all as text.

    `changed` is None without changes. `ratios` are those of the changed twin to the unchanged one, each with `half` of its
    interval of 95 %.
    """

    algorithm: str
    world: FittedWorld
    unchanged: TwinPrediction
    changed: TwinPrediction | None
    ratios: list[dict[str, Any]]
    words: str

    def __str__(self) -> str:
        return self.words


@named_in_python()
def twin(
    run: Result | str | Path,
    *,
    overrides: Overrides = (),
    algorithm: str | None = None,
    replicates: int = 20,
    seed: int = 0,
    trust: bool = False,
) -> TwinAnswer:
    """Rebuild a run in virtual time from its fit alone, compare both, and predict the effect of `overrides`.

    Raises MeasurementError where too little was measured, and StudyError for a change that a twin cannot make.
    """
    checks.whole("seed", seed)
    checks.whole("replicates", replicates, 2, 1000)
    changes = overrides_of(overrides)
    with Twin(results_of([run], trust)[0], algorithm, seed) as made:
        if changes:
            made.study(replicates, changes)  # what is wrong is said at once
        unchanged = made.predict(replicates)
        changed = made.predict(replicates, changes) if changes else None
        words = [f"twin of '{made.label}': {replicates} replicates, {unchanged.workers} workers"]
        words += [f"other algorithms of the run: {', '.join(made.others)}"] if made.others else []
        words += [] if unchanged.recorded.messages else [f"'{made.label}' sent no message"]
        words += [*cut_short(made.world), *prediction_lines(unchanged)]
        words += [] if changed is None else change_lines(changed, unchanged, changes)
        both = [] if changed is None else ratios(changed, unchanged)
        return TwinAnswer(made.label, made.world, unchanged, changed, both, words="\n".join(words))
