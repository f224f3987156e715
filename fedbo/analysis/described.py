"""A run in a few words: its representation in an interpreter and a notebook, its failures, its refused messages.

`best_points` are the incumbent of each agent or algorithm, or with several objectives its front: the feasible evaluations that
no other one dominates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from fedbo.actors.storage.evaluations import reason_of
from fedbo.analysis.finished_run import FinishedRun, configurations, counted_tables, own_metric
from fedbo.analysis.grouping import column_of, grouped
from fedbo.analysis.indicators import Hypervolume, Indicator, column_name, indicators_in
from fedbo.analysis.traces import IncumbentTrace
from fedbo.objectives.goals import goals_in
from fedbo.objectives.typed_spaces.declared_space import in_words
from fedbo.settings.errors import FedboError
from fedbo.settings.shown import shown
from fedbo.surrogates.fronts import non_dominated


def best_points(run: FinishedRun, each: Literal["algorithm", "agent"]) -> list[dict[str, Any]]:
    """Return the best point of each algorithm in each cell, or of each agent and replicate, in the form of `Result.best`."""
    if any(isinstance(indicator, Hypervolume) for indicator in indicators_in(run.manifest)):
        return _fronts(run, each)
    chosen: dict[tuple[Any, ...], IncumbentTrace] = {}
    for trace in run.traces:
        key: tuple[Any, ...] = (trace.cell, trace.algorithm)
        key += (trace.replicate, trace.agent) if each == "agent" else ()
        if trace.row[-1] >= 0 and (key not in chosen or trace.best[-1] > chosen[key].best[-1]):
            chosen[key] = trace
    return [_record(run, run.observations.slice(int(trace.row[-1]), 1).to_pylist()[0]) for trace in chosen.values()]


def _fronts(run: FinishedRun, each: str) -> list[dict[str, Any]]:
    """Return the records of the fronts, each front from its best first objective on.

    A point that an agent evaluated again with the same outcome is listed once.
    """
    observations, indicators = counted_tables(run)[0], indicators_in(run.manifest)
    value = column_of(observations, "value").astype(np.float64)
    failed = ~np.asarray(observations["error"].is_null()) | ~np.isfinite(value)
    failed |= column_of(observations, "phase") == "history"
    names = ("cell", "algorithm", "replicate", "agent")
    keys = list(zip(*(observations[name].to_pylist() for name in names), strict=True))
    found = list[dict[str, Any]]()
    for key, places in grouped(range(len(keys)), lambda place: keys[place][: 4 if each == "agent" else 2]).items():
        indicator, rows = indicators[key[0]], np.array(list(places))
        found += _front(run, indicator, observations.take(rows), failed[rows])
    return found


def _front(run: FinishedRun, indicator: Indicator, observations: Any, failed: Any) -> list[dict[str, Any]]:
    score = indicator.points(observations, failed).score
    kept = np.flatnonzero(non_dominated(score))
    rows = observations.take(kept[np.argsort(-score[kept, 0], kind="stable")]).to_pylist()
    once = {(row["replicate"], row["agent"], *row["x"], row["score"]): row for row in reversed(rows)}
    return [_record(run, row) for row in rows if once[row["replicate"], row["agent"], *row["x"], row["score"]] is row]


def _record(run: FinishedRun, row: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluation in the form of `Result.best`; `metrics` are those of the study, if it names any."""
    cell, goals = row["cell"], goals_in(run.manifest)
    found = {key: row[key] for key in ("cell", "algorithm", "replicate", "agent", "step")}
    found["value"] = float(own_metric(run, cell).native(row["score"]))
    if goals:
        found["metrics"] = {name: row[column_name(name)] for name in goals[cell].common.names}
    return {**found, "configuration": configurations(run, cell).declared(row["x"])}


_MOST = 12  # algorithms and cells that are listed
_NO_FAULT = ("duplicate", "given_up")  # reasons of a copy, and of a message that never arrived


def words_of(result: FinishedRun) -> str:
    """Return one line about a run, and one for the best point of each algorithm in each cell."""
    lines = [f"<Result {_head(result)}", *(" ".join(row) for row in _rows(result))]
    return shown("\n  ".join(lines)) + ">"


def html_of(result: FinishedRun) -> str:
    """Return the same as HTML, with the best points as a table."""
    rows = "".join(f"<tr>{''.join(f'<td>{escape(shown(cell))}</td>' for cell in row)}</tr>" for row in _rows(result))
    return f"<p>{escape(shown(_head(result)))}</p><table>{rows}</table>"


def _head(result: FinishedRun) -> str:
    manifest = result.manifest
    facts = f"'{manifest['name']}' ({manifest['status']}) in '{result.address or result.directory}'"
    try:
        failed, _ = failures(result)
        return f"{facts}: {len(result.observations)} evaluations{f', {failed} failed' if failed else ''}"
    except FedboError as error:  # a representation must not fail because a table is damaged
        return f"{facts}: {error}"


def _rows(result: FinishedRun) -> Iterator[tuple[str, ...]]:
    try:
        best = best_points(result, "algorithm")
    except FedboError:
        return
    titles = result.study.titles()
    for found in best[:_MOST]:
        metric = own_metric(result, found["cell"])
        where = f" ({titles[found['cell']]})" if len(titles) > 1 else ""
        others = {name: number for name, number in found.get("metrics", {}).items() if name != metric.name}
        value = f"best {metric.name} {found['value']:.6g}" + "".join(f", {name} {each:.6g}" for name, each in others.items())
        yield f"{found['algorithm']}{where}:", value, f"at agent {found['agent']}:", in_words(found["configuration"])
    if len(best) > _MOST:
        yield (f"and {len(best) - _MOST} more",)


def failures(result: FinishedRun) -> tuple[int, str]:
    """Return the number of failed evaluations, and one line on where and why the first one failed, or an empty text."""
    errors = result.observations["error"].to_pylist()
    failed = [row for row, error in enumerate(errors) if error is not None and not error.startswith("forgotten")]
    if not failed:
        return 0, ""
    first = result.observations.slice(failed[0], 1).select(["cell", "agent", "x", "error"]).to_pylist()[0]
    where = in_words(configurations(result, first["cell"]).at(first["x"]))
    return len(failed), f"agent {first['agent']} at {where}: {reason_of(first['error'])}"


def refusals(result: FinishedRun) -> list[str]:
    """Return a line for each algorithm of which the coordinator refused at least half of the messages, with the reason."""
    events = result.events
    rows = events.filter(pc.field("kind") == "rejected").select(["algorithm", "reason", "message"]).to_pylist()
    refused = [row for row in rows if row["reason"] not in _NO_FAULT]
    if not refused:
        return []
    arrived = events.filter(pc.field("kind") == "arrived")["algorithm"]
    counts = {item["values"]: item["counts"] for item in pc.value_counts(arrived).to_pylist()}
    lines = []
    for label, count in Counter(row["algorithm"] for row in refused).items():
        if count < (taken := counts.get(label, 0)):
            continue
        reasons = Counter(row["message"] or row["reason"].replace("_", " ") for row in refused if row["algorithm"] == label)
        how_many = f"{count} of {count + taken}" if taken else f"all {count}"
        lines.append(
            f"{how_many} messages of '{label}' were refused: {reasons.most_common(1)[0][0]}; fedbo show --trouble counts them"
        )
    return lines
