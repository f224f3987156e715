"""A run in a few words: the representation of a `Result` in an interpreter and a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fedbo.analysis.finished_run import FinishedRun
from fedbo.objectives.typed_spaces.nesting import in_words
from fedbo.settings.errors import FedboError
from fedbo.settings.shown import shown

_MOST = 12  # algorithms and cells that are listed


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
        failed, _ = result.failures()
        return f"{facts}: {len(result.observations)} evaluations{f', {failed} failed' if failed else ''}"
    except FedboError as error:  # what shows a run must not fail where its tables are damaged
        return f"{facts}: {error}"


def _rows(result: FinishedRun) -> Iterator[tuple[str, ...]]:
    try:
        best = result.best()
    except FedboError:
        return
    titles = result.study.titles()
    for found in best[:_MOST]:
        metric = result.own_metric(found["cell"])
        where = f" ({titles[found['cell']]})" if len(titles) > 1 else ""
        others = {name: number for name, number in found.get("metrics", {}).items() if name != metric.name}
        value = f"best {metric.name} {found['value']:.6g}" + "".join(f", {name} {each:.6g}" for name, each in others.items())
        yield f"{found['algorithm']}{where}:", value, f"at agent {found['agent']}:", in_words(found["configuration"])
    if len(best) > _MOST:
        yield (f"and {len(best) - _MOST} more",)
