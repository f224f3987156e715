"""Whether federation can help in a study, and whether it did: local, federated, controls and the bound on the same draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy
from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.algorithms import catalog
from fedbo.analysis.averages import mean_and_error, replicate_means
from fedbo.analysis.finished_run import own_metric
from fedbo.analysis.grouping import grouped
from fedbo.analysis.indicators import is_plain
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference
from fedbo.analysis.traces import IncumbentTrace
from fedbo.figures.reports.tables import amount, table_of
from fedbo.lab.worth.gain import Gain
from fedbo.objectives.base import Metric
from fedbo.settings.errors import ArgumentError
from fedbo.settings.rooms import optional_or
from fedbo.settings.shown import quoted
from fedbo.study.document import StudyError
from fedbo.study.study import Study, load_study

Array = npt.NDArray[np.float64]
Role = Literal["random", "local", "federated", "control", "bound"]
BESIDE = ("random", "gp_ei", "fed_prior", "share_best", "pooled")
CONTROLS = ("noise", "shuffled")
UNLIKE, ALIKE = 0.25, 0.7  # rank correlations half way between those that were measured: 0, 0.5 and 0.9
PLACES = ("a quarter", "half", "the end")


@dataclass(frozen=True, slots=True)
class Worth:
    """One algorithm of the comparison: native means at a quarter, half and the end, and its gain over the best local one.

    Gains are positive for an improvement, with Student intervals over replicates that hold for all federated methods together
    at 95 %; None with fewer than two replicates. `told` are the gains over its own best control, None without one. `worse`: it
    is clearly worse than each local algorithm at the end. `bytes` are sent by an agent, `epsilon` is the largest spending of
    one, 0 without privacy.
    """

    algorithm: str
    role: Role
    values: tuple[float, ...]
    gains: tuple[Difference | None, ...]
    told: tuple[Difference | None, ...]
    worse: bool
    bytes: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class WorthReport:
    """The comparison with its verdict as text.

    `directory` is that of its run. `local` is the best local algorithm. `enough` is the number of its iterations after which an
    agent reaches the level of the best common point; None if it does not.
    """

    directory: str
    rows: tuple[Worth, ...]
    gain: Gain
    local: str
    enough: int | None
    words: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.words)


def worth_study(study: Study) -> tuple[Study, list[str]]:
    """Add the algorithms for a verdict to a study, and list those that do not fit it; StudyError if it has a sweep."""
    if study.sweep:
        remedy = "remove [sweep], and set its values with --set, one cell at a time"
        raise StudyError(f"[sweep]: cannot be combined with fedbo worth; {remedy}")
    kept, left = study, list[str]()
    for table in _wanted(study):
        document = kept.document()
        try:
            kept = load_study({**document, "algorithm": [*document["algorithm"], table]}, derived=True)
        except StudyError as error:
            left.append(f"{table['name']}: {str(error).splitlines()[0]}")
    return kept, left


def _wanted(study: Study) -> list[dict[str, object]]:
    """List the tables of the missing algorithms: local, federated and bound, and controls of the federated ones."""
    known, given = catalog.algorithms(), {table.name for table in study.algorithm}
    missing = [{"name": name, **_often(name)} for name in BESIDE if name in known and name not in given]
    controls = []
    for table in [*(table.model_dump(mode="json", exclude_none=True) for table in study.algorithm), *missing]:
        for name in (f"{table['name']}_{kind}" for kind in CONTROLS):
            if name in known and name not in given:
                free = set(known[name].free()) | ({"preset"} if table.get("preset") in known[name].presets else set())
                controls.append({key: value for key, value in table.items() if key in free} | {"name": name})
    return missing + controls


def _often(name: str) -> dict[str, object]:
    """Return the settings that make a method send after every iteration; without a history, it has nothing to send before."""
    return {"every": 1} if "every" in catalog.algorithms()[name].free() else {}


def verdict(result: Result, gain: Gain) -> WorthReport:
    """Judge a run with the algorithms of `worth_study`; ArgumentError for a run without an algorithm to compare with."""
    traces = grouped(result.traces, lambda trace: trace.algorithm)
    roles, metric = _roles(result), result.metric()
    last = max(int(trace.step.max()) for trace in result.traces)
    places = np.array([math.ceil(last / 4), math.ceil(last / 2), last], dtype=np.float64)
    means = {label: _by_replicate(found, places) for label, found in traces.items()}
    locals_ = [label for label in means if roles[label] == "local"] or [label for label in means if roles[label] == "random"]
    if not locals_:
        remedy = f"call fedbo worth {quoted(result.directory / 'study.toml')}, which adds one"
        raise ArgumentError(f"{result.directory}: has no algorithm without messages to compare with; {remedy}")
    local = max(locals_, key=lambda label: float(_mean(means[label])[-1]))
    compared = max(1, sum(role == "federated" for role in roles.values()))
    sent = {row.algorithm: row.bytes_up for row in result.summary()}
    spent = {row.algorithm: row.epsilon[0] for row in optional_or("spending", ())(result)}
    rows = []
    for label in means:
        gains = _gaps(means[label], means[local], compared)
        mine = [means[control] for control in _controls(result, label) if control in means]
        hardest = max(mine, key=lambda found: float(_mean(found)[-1]), default=None)
        told = (None,) * len(places) if hardest is None else _gaps(means[label], hardest, compared)
        values = tuple(float(value) for value in metric.native(_mean(means[label])))
        worse = is_clearly_worse(means[label], [means[other] for other in locals_], compared)
        costs = {"bytes": sent[label], "epsilon": spent.get(label, 0.0)}
        rows.append(Worth(label, roles[label], values, gains=gains, told=told, worse=worse, **costs))
    # With limits or several objectives, traces and the common point of the first objective are different quantities.
    comparable = is_plain(result.manifest, 0)
    enough = _enough(traces[local], gain.common, last) if comparable else None
    words = _words(rows, gain, local, (enough, last), metric) if comparable else _words_on_messages(rows, local)
    return WorthReport(str(result.directory), tuple(rows), gain, local, enough=enough, words=tuple(words))


def _roles(result: Result) -> dict[str, Role]:
    sends = {row.algorithm: row.bytes_up > 0.0 for row in result.summary()}
    found: dict[str, Role] = {}
    for table in result.study.algorithm:
        control = any(table.name.endswith(f"_{kind}") for kind in (*CONTROLS, "uniform"))
        bound = table.name == "pooled" or bool(table.centralised)
        alone: Role = "random" if table.name == "random" else "local"
        told: Role = "federated" if sends.get(table.title) else alone
        found[table.title] = "bound" if bound else "control" if control else told
    return found


def _controls(result: Result, label: str) -> list[str]:
    """List the labels of the controls of an algorithm."""
    (mine,) = [table.name for table in result.study.algorithm if table.title == label]
    return [table.title for table in result.study.algorithm if table.name in {f"{mine}_{kind}" for kind in CONTROLS}]


def _by_replicate(found: Sequence[IncumbentTrace], places: Array) -> dict[int, Array]:
    return replicate_means(found, "iteration", places, early=True)


def _mean(found: dict[int, Array]) -> Array:
    return np.asarray(np.mean(list(found.values()), axis=0))


def _gaps(found: dict[int, Array], other: dict[int, Array], compared: int) -> tuple[Difference | None, ...]:
    """Return the paired gains at each place, with intervals for `compared` comparisons at once (Bonferroni)."""
    shared = sorted(set(found) & set(other))
    gaps = np.array([found[replicate] - other[replicate] for replicate in shared])
    if len(shared) < 2:
        return (None,) * len(next(iter(found.values())))
    mean, error = mean_and_error(gaps)
    half = float(scipy.special.stdtrit(len(shared) - 1, 1.0 - 0.025 / compared)) * error
    return tuple(Difference(float(m), float(m - h), float(m + h)) for m, h in zip(mean, half, strict=True))


def is_clearly_worse(found: dict[int, Array], others: Sequence[dict[int, Array]], compared: int) -> bool:
    """Check whether an algorithm is clearly worse than each other one at the last place.

    The best other one is chosen by the numbers that it is compared by, so an interval against it alone errs too often.
    """
    last = [_gaps(found, other, compared)[-1] for other in others]
    return all(gap is not None and gap.high < 0.0 for gap in last)


def _enough(found: Sequence[IncumbentTrace], level: float, last: int) -> int | None:
    """Find the first iteration at which the mean over targets and replicates is at least a level."""
    mean = _mean(_by_replicate(found, np.arange(last + 1.0)))
    reached = np.flatnonzero(mean >= level)
    return int(reached[0]) if len(reached) else None


def _words(rows: Sequence[Worth], gain: Gain, local: str, enough: tuple[int | None, int], metric: Metric) -> list[str]:
    """Return sentences on whether federation can help, whether it did, and by which message."""
    said, federated = _words_on_messages(rows, local), [row for row in rows if row.role == "federated"]
    if _single(rows):
        return said
    best, reached, last = _best_message(federated), *enough
    way = f"{gain.share:.0%} of the way from a random point to the agents' own optima"
    level = f"the best common point ({float(metric.native(gain.common)):.4g}, {way})"
    said_of_level = f"After {reached} iterations alone, an agent ({local}) is as good as {level}."
    if reached is None:
        words = f"In {last} iterations alone, an agent ({local}) does not reach {level}."
        said_of_level = f"{words} The common optimum is worth communicating."
    return [*said[: len(said) - len(best)], said_of_level, *_expected(gain), *best]


def _expected(gain: Gain) -> list[str]:
    """Return the rule of thumb for agents as alike as these, measured in `benchmarks/results/pays.md`."""
    if math.isnan(gain.alike):
        return []
    found = "messages are not shown to help"
    if gain.alike >= UNLIKE:
        found = "fed_prior helps where agents have earlier evaluations"
    if gain.alike >= ALIKE:
        found = "fed_prior and share_best help, most where agents have earlier evaluations"
    return [f"Rule of thumb for agents with a rank correlation of {gain.alike:.2f}: {found}."]


def _single(rows: Sequence[Worth]) -> bool:
    return all(each is None for row in rows for each in row.gains)


def _words_on_messages(rows: Sequence[Worth], local: str) -> list[str]:
    """Return sentences on whether federation can help, whether it did, and by which message."""
    if _single(rows):
        return ["One replicate is not sufficient. Run at least two replicates, better ten."]
    federated = [row for row in rows if row.role == "federated"]
    said = [_can(next((row for row in rows if row.role == "bound"), None), local)]
    said.extend(_does(federated, local))
    return said + _best_message(federated)


def _can(bound: Worth | None, local: str) -> str:
    if bound is None:
        return "It is unknown whether federation can help: no upper bound fits this study."
    clear = _clear(bound.gains)
    one = f"one optimiser with all agents' observations ({bound.algorithm})"
    if clear is None:
        return f"The data do not show that federation can help: {one} is not clearly better than {local}."
    return f"Federation can help: {one} is better than {local} by {clear}."


def _does(federated: Sequence[Worth], local: str) -> list[str]:
    winners = [row for row in federated if _clear(row.gains) is not None]
    if not winners:
        losers = ", ".join(row.algorithm for row in federated if row.worse)
        worse = f" Clearly worse than each local method at the end: {losers}." if losers else ""
        return [f"The data do not show that it did: no federated method is clearly better than {local}.{worse}"]
    said = []
    for row in winners:
        told = _clear(row.told)
        control = (
            "it has no control in this study"
            if row.told[0] is None
            else "but not clearly better than its control, so the content of messages may not matter"
        )
        control = f"and better than its control by {told}, so the content of messages matters" if told is not None else control
        said.append(f"Federation helped with {row.algorithm}: better than {local} by {_clear(row.gains)}; {control}.")
    return said


def _clear(gains: Sequence[Difference | None]) -> str | None:
    """Return the places with a clear gain, None without any."""
    found = [f"{gain} at {place}" for gain, place in zip(gains, PLACES, strict=True) if gain is not None and gain.low > 0.0]
    return ", ".join(found) or None


def _best_message(federated: Sequence[Worth]) -> list[str]:
    """Name the method with the largest gain per byte, and per epsilon, by the gain at half."""
    kib, epsilon = ([row.bytes / 1024.0 for row in federated], [row.epsilon for row in federated])
    said = []
    for unit, prices in (("KiB sent by an agent", kib), ("unit of epsilon", epsilon)):
        gains = [row.gains[1] for row in federated]
        each = [g.mean / price if g and price > 0.0 else 0.0 for g, price in zip(gains, prices, strict=True)]
        place = int(np.argmax(each)) if each else 0
        if each and each[place] > 0.0 and (gain := gains[place]) is not None:
            sure = "" if gain.low > 0.0 else " (its interval contains 0)"
            said.append(f"Largest gain per {unit}: {federated[place].algorithm}, {each[place]:.3g} at half{sure}.")
    return said


def worth_table(found: WorthReport, result: Result) -> RenderableType:
    """Return the comparison, the possible gain, and the verdict on a run."""
    metric, own = result.metric(), own_metric(result)
    headings = (
        "algorithm",
        "role",
        *(f"at {place}" for place in PLACES),
        *(f"gain, {place} [95 %]" for place in PLACES[1:]),
        "sent/agent",
        "epsilon",
    )
    lines = [
        (
            row.algorithm,
            row.role,
            *(f"{value:.4g}" for value in row.values),
            *("–" if gain is None or row.algorithm == found.local else str(gain) for gain in row.gains[1:]),
            amount(row.bytes) if row.bytes else "–",
            f"{row.epsilon:.3g}" if row.epsilon else "–",
        )
        for row in found.rows
    ]
    gain = found.gain
    what = "value" if is_plain(result.manifest, 0) else f"{own.name}, without limits and other objectives,"
    native = [f"{float(own.native(value)):.4g}" for value in (gain.random, gain.common, gain.own)]
    alike = f"{gain.alike:.2f} ({gain.least:.2f} to {gain.most:.2f})"
    there = (
        f"Mean {what} of a random point: {native[0]}; of the best common point: {native[1]}; of the agents' own optima: "
        f"{native[2]}. Rank correlation "
        f"of two agents {alike}, over {gain.targets} agents and {gain.points} points."
    )
    legend = (
        f"gain: difference from {found.local}, positive is better; paired over replicates, "
        "with joint 95 % intervals over all federated methods."
    )
    return Group(
        table_of(f"best {metric.name}", headings, lines),
        Text(legend, style="dim"),
        Text(),
        Text(there),
        *map(Text, found.words),
    )
