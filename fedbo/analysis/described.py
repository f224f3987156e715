"""A run in a few words: its representation in an interpreter and a notebook, its failures, its refused messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

import pyarrow.compute as pc

from fedbo.actors.storage.evaluations import reason_of
from fedbo.analysis.best_points import best_points
from fedbo.analysis.finished_run import FinishedRun, configurations, own_metric
from fedbo.objectives.typed_spaces.declared_space import in_words
from fedbo.settings.errors import FedboError
from fedbo.settings.shown import shown

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
