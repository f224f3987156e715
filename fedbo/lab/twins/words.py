"""Worlds and twins as text: TOML with the tests as comments, and predictions with the recorded facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedbo.lab.twins.families import DRAWS, REFUSED, Candidate
from fedbo.lab.twins.fitting import DEPENDS, DurationFit, FittedWorld
from fedbo.lab.twins.twins import TwinPrediction, ratios
from fedbo.study.document import to_toml


def world_toml(world: FittedWorld, source: str, seed: int) -> str:
    """Format a world as tables of a study, with each model's goodness of fit."""
    head = [
        f"environment fitted to {source}: tables of a study",
        f"p: distance from the Kaplan-Meier estimate, {DRAWS} draws of a bootstrap, seed {seed}; below {REFUSED}: does not fit",
        *_evaluations(world),
        *cut_short(world),
        *world.notes,
        *_rest(world),
    ]
    return "".join(f"# {line}\n" for line in head) + "\n" + to_toml(world.tables())


def world_facts(world: FittedWorld) -> dict[str, Any]:
    """Return a world as plain data."""
    fits = {"evaluation": world.evaluation, "latency": world.latency}
    tried = {
        name: [
            {
                "model": one.model,
                **one.settings,
                "intervals": {key: list(ends) for key, ends in one.intervals.items()},
                "distance": one.distance,
                "p": None if world.unmeasured and name == "evaluation" else one.p,
            }
            for one in fit.tried
        ]
        for name, fit in fits.items()
        if fit is not None
    }
    dependence = world.evaluation.dependence
    return {
        "world": world.tables(),
        "tried": tried,
        "p": world.p_of(),
        "unfinished": dict(world.unfinished),
        "unmeasured": world.unmeasured,
        "dependence": None if dependence is None else dependence._asdict(),
        "workers": world.workers,
        "startup": world.startup,
        "queued": world.queued,
        "interrupted": world.interrupted,
        "notes": list(world.notes),
        "begins": {str(agent): took for agent, took in world.begins.items()},
        "failed": world.failures[0],
        "evaluations": world.failures[1],
    }


def _evaluations(world: FittedWorld) -> Iterator[str]:
    fit, cut = world.evaluation, world.unmeasured
    verdict = "" if cut and fit.p is not None else _verdict(fit)
    yield f"evaluations: {fit.count}, standard deviation {fit.spread:.2g} of the mean; {fit.model}{verdict}"
    yield from _tried(fit, not cut)
    if fit.factors:
        yield f"agents differ (log-rank test, p below {DEPENDS}): each agent is a group with its own speed"
    found = fit.dependence
    if found is not None:
        words = f"explains {found.share:.0%} of the variance of their logarithms, F-test p = {found.p_none:.2g}"
        yield f"on the configuration: a linear regression {words}{'' if found.p_none < DEPENDS else ', so it is omitted'}"


def _rest(world: FittedWorld) -> Iterator[str]:
    if world.latency is not None:
        yield f"latencies: {world.latency.count}; {world.latency.model}{_verdict(world.latency)}"
        yield from _tried(world.latency)
    if world.availability is not None:
        tested = "" if world.p_of()["absence"] is None else f"; absences are exponential with p = {world.absence_p:.2g}"
        yield f"absences: presences are assumed to be exponential{tested}"
    failed, count = world.failures
    if failed:
        yield f"failures: {failed} of {count} evaluations returned no value, which these tables cannot express"
    if (latest := max(world.begins.values(), default=0.0)) > 0:
        yield f"first steps took up to {latest:.3g} longer than their evaluations; these tables omit this"
    if world.startup is not None:
        yield f"a worker was idle for {world.startup:.3g} between two evaluations: the startup of a [cluster]"
    if world.cluster:
        yield "[cluster], resources and preemptions: those of the recorded study"
    if world.queued is not None:
        yield f"evaluations waited {world.queued:.3g} in the queue for workers, on average"
    if world.interrupted:
        yield f"{world.interrupted} durations are not counted, because a preemption interrupted these evaluations"
    if world.workers > 1:
        yield f"at most {world.workers} evaluations ran at once"


def cut_short(world: FittedWorld) -> Iterator[str]:
    """Yield a line for each kind of time of which some had not ended."""
    for kind, cut in world.unfinished.items():
        if cut:
            yield f"{cut} of {cut + world.ended[kind]} {kind} had not ended: they count as longer than they had taken so far"
    if world.unmeasured:
        count = world.unmeasured + world.ended["evaluations"]
        words = "when they began is unknown, so these times are too short, and their fit is not tested"
        yield f"{world.unmeasured} of {count} evaluations had not ended: {words}"
    if world.unfinished.get("evaluations") and world.evaluation.model == "log_linear":
        yield "the regression on the configuration leaves out evaluations that had not ended, so its times are too short"


def _verdict(fit: DurationFit) -> str:
    if fit.model == "empirical":
        return ", as measured, because no distribution fits"
    if fit.p is None:
        words = ", although no distribution fits" if fit.tried else ""
        return f"{words}, with unknown p" if not words and fit.spread > 0.01 else words
    return f", p = {fit.p:.2g}" + (
        "" if fit.p >= REFUSED else ", which does not fit; use --out to draw measured values instead"
    )


def _tried(fit: DurationFit, is_tested: bool = True) -> Iterator[str]:
    if fit.tried:
        yield "  tried, best first, with intervals of 95 %: " + "; ".join(
            f"{one.model} {', '.join(_setting(one, name) for name in one.settings)}"
            + (f", p = {one.p:.2g}" if is_tested else "")
            for one in fit.tried
        )


def _setting(one: Candidate, name: str) -> str:
    low, high = one.intervals[name]
    return f"{name} {one.settings[name]:.4g} [{low:.4g}, {high:.4g}]"


def prediction_lines(found: TwinPrediction) -> Iterator[str]:
    """Yield the lines of a twin's predictions and the recorded facts."""
    yield f"{'':12} {'recorded':>10} {'twin':>10} {'95 % of replicates':>24} {'error':>8}"
    for row in found.rows():
        if row["twin"] is None or (row["recorded"] is None and row["fact"] != "order"):
            continue
        recorded = "" if row["fact"] == "order" else f"{row['recorded']:.4g}"
        error = "" if row["error"] is None else f"{row['error']:+.1%}"
        interval = f"{row['low']:.4g} to {row['high']:.4g}"
        yield f"{row['fact']:12} {recorded:>10} {row['twin']:>10.4g} {interval:>24} {error:>8}"


def change_lines(changed: TwinPrediction, unchanged: TwinPrediction, sets: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the changes, with intervals of 95 % over replicates."""
    workers = "" if changed.workers == unchanged.workers else f": {changed.workers} workers instead of {unchanged.workers}"
    yield f"with {', '.join(sets)}{workers}"
    yield f"{'':12} {'twin':>10} {'changed':>10} {'ratio [95 %]':>24}"
    for row in ratios(changed, unchanged):
        low, high = row["ratio"] - row["half"], row["ratio"] + row["half"]
        ratio = f"{row['ratio']:.3g} [{low:.3g}, {high:.3g}]"
        yield f"{row['fact']:12} {row['from']:>10.4g} {row['to']:>10.4g} {ratio:>24}"
