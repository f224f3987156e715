"""The page of a reproduction: one self-contained HTML file with figures, numbers, statements and commands."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedbo.actors.storage import atomic
from fedbo.analysis.summary import Difference
from fedbo.execution.directory import versions
from fedbo.figures.reports.tables import plain
from fedbo_papers.reproduction import FigureOutcome, Reproduction, ReproductionRequest, seconds_of

PAGE, FACTS = "index.html", "summary.json"


def write_page(made: Reproduction) -> Path:
    """Write the page, and the same facts as JSON, atomically; return the page's path."""
    atomic.write_text(made.request.out / FACTS, json.dumps(facts(made), indent=2, ensure_ascii=False) + "\n")
    atomic.write_text(made.request.out / PAGE, page(made))
    return made.request.out / PAGE


def facts(made: Reproduction) -> dict[str, Any]:
    """Return the results as plain data."""
    return {
        "paper": made.manifest.paper.title,
        "size": "quick" if made.request.quick else "full",
        "figures": [_facts(outcome) for outcome in made.outcomes],
        "pending": [figure.id for figure in made.pending],
    }


def _facts(outcome: FigureOutcome) -> dict[str, Any]:
    return {
        "id": outcome.figure.id,
        "study": outcome.figure.study,
        "missing": outcome.missing or None,
        "failed": outcome.failed,
        "results": outcome.folder or None,
        "seconds": round(seconds_of(outcome), 1),
        "numbers": [
            {"algorithm": row.algorithm, "floats": row.floats, "federated": row.federated, "final": _ends(row.final),
             "minus_first": _ends(row.gap)}
            for row in outcome.algorithms
        ],
        "published": [
            {"algorithm": row.algorithm, "at": row.at, "published": row.published, "ours": _ends(row.ours),
             "difference": _ends(row.gap), "reason": row.reason or None}
            for row in outcome.published
        ],
        "statements": [{"says": one.says, "verdict": one.verdict, "measured": one.measured} for one in outcome.statements],
    }  # fmt: skip


def _ends(found: Difference | None) -> Any:
    return None if found is None else plain([found.mean, found.low, found.high])


def page(made: Reproduction) -> str:
    """Write the whole page from its template."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, undefined=StrictUndefined
    )
    request = made.request
    environment.filters |= {
        "base64": lambda image: base64.b64encode(image.read_bytes()).decode(),
        "commands": partial(_commands, request),
        "duration": _duration,
        "effort": _effort,
        "final_values": _final_values,
        "published_values": _published_values,
    }
    return environment.get_template("page.html.jinja").render(
        paper=made.manifest.paper,
        quick=request.quick,
        seconds=sum(seconds_of(outcome) for outcome in made.outcomes),
        outcomes=made.outcomes,
        pending=made.pending,
        command=f"fedbo reproduce {request.paper.stem}{' --quick' * request.quick}",
        versions=_listed(versions()),
    )


class NumberTable(NamedTuple):
    """A table of the page; numbers follow the first `words` columns."""

    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words: int = 1
    caption: str = ""


def _final_values(outcome: FigureOutcome) -> NumberTable:
    """Return the table of final values, without empty columns."""
    rows, data = outcome.algorithms, outcome.data
    if not rows or data is None:
        return NumberTable()
    name = "simple regret" if outcome.figure.regret else f"best {data.metric.name}"
    columns: dict[str, list[str]] = {
        "algorithm": [row.algorithm for row in rows],
        "numbers in a message": [f"{row.floats:,}" if row.floats else "" for row in rows],
        "federated queries": [f"{row.federated:.3g}" if row.floats else "" for row in rows],
        f"{name} after t = {data.study.budget.decisions} [95 %]": [interval(row.final) for row in rows],
        f"minus {data.study.labels[0]} [95 %]": [_gap(row.gap) for row in rows],
    }
    kept = {heading: column for heading, column in columns.items() if any(column)}
    agents = len(data.figure.agents or data.study.targets)
    repeats = data.study.study.replicates
    caption = f"{agents} target{'s' * (agents > 1)}, {repeats} replicate{'s' * (repeats > 1)}"
    caption += "; federated queries are per target and run, or those of a control" * ("federated queries" in kept)
    return NumberTable(tuple(kept), list(zip(*kept.values(), strict=True)), caption=caption)


def _gap(gap: Difference | None) -> str:
    return "" if gap is None else str(gap) if gap.low or gap.high else "0 in every replicate"


def _published_values(outcome: FigureOutcome) -> NumberTable:
    """Return the table of published numbers and ours; without rows if none can be compared."""
    rows = [
        (row.algorithm, {"end": "end", "mean": "mean over t"}.get(str(row.at), f"t = {row.at}"), f"{row.published:.4g}",
         interval(row.ours) if row.ours else row.reason, str(row.gap) if row.gap and math.isfinite(row.gap.low) else "–")
        for row in outcome.published
    ]  # fmt: skip
    headings = ("algorithm", "at", "published", "ours [95 %]", "difference [95 %]")
    return NumberTable(headings, rows if any(row.gap for row in outcome.published) else (), words=2)


def _effort(outcome: FigureOutcome) -> str:
    """Return how long the runs or the decisions took, and their versions if these differ from today's."""
    result = None if outcome.data is None else outcome.data.result
    words = f"{'Decisions' if result is None else 'Runs'} took {_duration(seconds_of(outcome))}"
    if result is not None and result.manifest["versions"] != versions():
        words += f"; the versions were {_listed(result.manifest['versions'])}"
    return f"{words}."


def _commands(request: ReproductionRequest, outcome: FigureOutcome) -> str:
    figure = outcome.figure
    path = request.paper.parent / figure.study
    study = shlex.quote(f"{path.parent.name}/{path.name}" if path.is_absolute() else path.as_posix())  # of no machine
    sets = "".join(f" --set {shlex.quote(override)}" for override in figure.quick) if request.quick else ""
    again = f"fedbo reproduce {request.paper.stem}{' --quick' * request.quick} --only {figure.id}"
    return "\n".join([*([f"fedbo run {study}{sets}"] if figure.kind != "decision_time" else []), again])


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def interval(found: Difference) -> str:
    """Format a mean with the ends of its interval, if it has one, to two significant digits of its half width."""
    half = found.high - found.mean
    if not math.isfinite(half):
        return f"{found.mean:.4g}"
    digits = min(6, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else 4
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
