"""A reproduction as one HTML page that needs nothing else: figures, numbers, statements, and how to do it again."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.execution.directory import versions
from fedbo.papers.reproduction import FigureOutcome, Reproduction, seconds_of
from fedbo.papers.statements import Against, Finding
from fedbo.reports.tables import plain
from fedbo.results.summary import Difference

PAGE, FACTS = "index.html", "summary.json"

_STYLE = """
:root { --ink: #262b33; --faint: #6b7280; --line: #dfe2e8; --good: #00734f; --bad: #b3400a; --open: #5b5b5b; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; color: var(--ink); background: #fff;
  font: 15px/1.55 "DejaVu Sans", "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p { margin: .5rem 0; }
.faint, caption, footer { color: var(--faint); font-size: .87rem; }
blockquote { margin: .6rem 0; padding: .1rem 0 .1rem .9rem; border-left: 3px solid var(--line); }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .87rem; }
caption { text-align: left; caption-side: bottom; padding-top: .35rem; }
th, td { text-align: left; padding: .28rem .9rem .28rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { font-weight: 600; white-space: nowrap; }
.holds { color: var(--good); } .does-not-hold { color: var(--bad); } .cannot-be-said { color: var(--open); }
pre { background: #f5f6f8; padding: .6rem .8rem; white-space: pre-wrap; font-size: .8rem; border-radius: 4px; }
a { color: #0b5a96; }
"""

_READING = (
    "Intervals are 95 % Student intervals over replicates, in each of which the targets are averaged; differences are paired, "
    "for all algorithms have the same initial points and histories. A statement holds, or does not, where its interval leaves "
    "no doubt; else it cannot be said. With many statements, remember that one interval in twenty misses. Published numbers "
    "are taken as they are printed, as if they had no error of their own."
)


def write_page(made: Reproduction) -> Path:
    """Write the page, and the same facts as JSON, whole or not at all; give the page's path."""
    atomic.write_text(made.wish.out / FACTS, json.dumps(facts(made), indent=2, ensure_ascii=False) + "\n")
    atomic.write_text(made.wish.out / PAGE, page(made))
    return made.wish.out / PAGE


def facts(made: Reproduction) -> dict[str, Any]:
    """Give what came out as plain data."""
    return {
        "paper": made.manifest.paper.title,
        "size": "quick" if made.wish.quick else "full",
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
            for row in outcome.numbers
        ],
        "published": [
            {"algorithm": row.algorithm, "at": row.at, "published": row.published, "ours": _ends(row.ours),
             "difference": _ends(row.gap), "reason": row.reason or None}
            for row in outcome.against
        ],
        "statements": [{"says": one.says, "verdict": one.verdict, "measured": one.measured} for one in outcome.findings],
    }  # fmt: skip


def _ends(found: Difference | None) -> Any:
    return None if found is None else plain([found.mean, found.low, found.high])


def page(made: Reproduction) -> str:
    """Write the whole page."""
    paper, size = made.manifest.paper, "quick" if made.wish.quick else "full"
    took = sum(seconds_of(outcome) for outcome in made.outcomes)
    parts = [
        f"<h1>{escape(paper.title)}</h1>",
        f"<p class=faint>{escape(paper.source)}</p>",
        f"<p>Reproduced by fedbo in {size} size; its runs took {_minutes(took)}.</p>",
        _quick_remark() if made.wish.quick else "",
        *(f"<p>{escape(remark)}</p>" for remark in paper.remarks),
        _overview(made),
        f"<p class=faint>{_READING}</p>",
        *(_section(made, outcome) for outcome in made.outcomes),
        _again(made),
    ]
    title = escape(paper.title)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n'


def _quick_remark() -> str:
    return (
        "<p><strong>This is a quick run</strong>: fewer targets, initialisations, iterations or functions than in the paper, "
        "as the commands below say for each figure. It shows that all works and what the figures look like; most statements "
        "need the full size to be decided.</p>"
    )


def _overview(made: Reproduction) -> str:
    """List all statements with their verdicts, and what was left out."""
    rows = list[str]()
    for outcome in made.outcomes:
        link = f'<a href="#{outcome.figure.id}">{_whole(_short(outcome.figure.title))}</a>'
        if outcome.missing:
            rows.append(f"<tr><td>{link}</td><td>{escape(outcome.missing)}</td><td>left out</td></tr>")
        for number, finding in enumerate(outcome.findings):
            rows.append(f"<tr><td>{'' if number else link}</td><td>{escape(finding.says)}</td><td>{_badge(finding)}</td></tr>")
    for figure in made.pending:
        rows.append(f"<tr><td>{escape(_short(figure.title))}</td><td class=faint>not run yet</td><td></td></tr>")
    head = "<tr><th>figure</th><th>statement</th><th>verdict</th></tr>"
    return f"<div class=scroll><table>{head}{''.join(rows)}</table></div>"


def _short(title: str) -> str:
    return title.split(":")[0]


def _badge(finding: Finding) -> str:
    return f'<span class="verdict {finding.verdict.replace(" ", "-")}">{finding.verdict}</span>'


def _section(made: Reproduction, outcome: FigureOutcome) -> str:
    figure = outcome.figure
    parts = [f'<h2 id="{figure.id}">{escape(figure.title)}</h2>']
    if figure.statement:
        parts.append(f"<blockquote><p>The paper: {escape(figure.statement)}</p></blockquote>")
    if figure.remark:
        parts.append(f"<p>{escape(figure.remark)}</p>")
    if outcome.missing or outcome.image is None:
        return "\n".join([*parts, f"<p><strong>Left out:</strong> {escape(outcome.missing)}.</p>", _commands(made, outcome)])
    picture = base64.b64encode(outcome.image.read_bytes()).decode()
    parts.append(f'<figure><img alt="{escape(figure.title)}" src="data:image/png;base64,{picture}"></figure>')
    parts += [_statements(outcome.findings), _numbers(outcome), _published(outcome.against), _size(outcome)]
    return "\n".join([*parts, _commands(made, outcome)])


def _statements(findings: Sequence[Finding]) -> str:
    lines = [(escape(one.says), _badge(one), escape(one.measured)) for one in findings]
    return _table(("statement", "verdict", "measured [95 %]"), lines, words=3)


def _numbers(outcome: FigureOutcome) -> str:
    """Write the table of final values, with those columns that have anything in them."""
    rows, shown = outcome.numbers, outcome.shown
    if not rows or shown is None:
        return ""
    name = "simple regret" if outcome.figure.regret else f"best {shown.metric.name}"
    columns: dict[str, list[str]] = {
        "algorithm": [_whole(row.algorithm) for row in rows],
        "numbers in a message": [f"{row.floats:,}" if row.floats else "" for row in rows],
        "federated queries": [f"{row.federated:.3g}" if row.floats else "" for row in rows],
        f"{name} after t = {shown.study.budget.decisions} [95 %]": [interval(row.final) for row in rows],
        f"minus {escape(shown.study.labels[0])} [95 %]": [_gap(row.gap) for row in rows],
    }
    kept = {heading: column for heading, column in columns.items() if any(column)}
    agents = len(shown.figure.agents or shown.study.targets)
    repeats = shown.study.study.replicates
    caption = f"{agents} target{'s' * (agents > 1)}, {repeats} replicate{'s' * (repeats > 1)}"
    caption += "; federated queries of a target in a run, or a control's in their place" * ("federated queries" in kept)
    return _table(tuple(kept), list(zip(*kept.values(), strict=True)), caption=caption)


def _whole(label: str) -> str:
    """Write a label that is not to be broken."""
    return escape(label).replace(" ", "&nbsp;")


def _gap(gap: Difference | None) -> str:
    return "" if gap is None else str(gap) if gap.low or gap.high else "0 in every replicate"


def _published(rows: Sequence[Against]) -> str:
    def place(row: Against) -> str:
        return {"end": "end", "mean": "mean over t"}.get(str(row.at), f"t = {row.at}")

    if rows and not any(row.gap for row in rows):
        reasons = "; ".join(dict.fromkeys(row.reason for row in rows))
        return f"<p>The {len(rows)} published numbers have no counterpart in these runs ({escape(reasons)}).</p>"
    lines = [
        (_whole(row.algorithm), place(row), f"{row.published:.4g}", interval(row.ours) if row.ours else escape(row.reason),
         str(row.gap) if row.gap and math.isfinite(row.gap.low) else "–")
        for row in rows
    ]  # fmt: skip
    return _table(("algorithm", "at", "published", "ours [95 %]", "difference [95 %]"), lines, words=2)


def _size(outcome: FigureOutcome) -> str:
    shown = outcome.shown
    if shown is None:
        return ""
    what = "decisions" if shown.result is None else "runs"
    words = f"{what} took {_minutes(seconds_of(outcome))}"
    if shown.result is not None and shown.result.manifest["versions"] != versions():
        words += f"; made with {_versions(shown.result.manifest['versions'])}"
    return f"<p class=faint>{escape(words[0].upper() + words[1:])}.</p>"


def _commands(made: Reproduction, outcome: FigureOutcome) -> str:
    figure, wish = outcome.figure, made.wish
    study = shlex.quote(_place(wish.paper.parent / figure.study))
    sets = "".join(f" --set {shlex.quote(override)}" for override in figure.quick) if wish.quick else ""
    again = f"fedbo reproduce {wish.paper.stem}{' --quick' * wish.quick} --only {figure.id}"
    lines = [f"fedbo run {study}{sets}"] if figure.kind != "decision_time" else []
    return f"<pre>{escape(chr(10).join([*lines, again]))}</pre>"


def _place(path: Path) -> str:
    """Write a path without the folders of this machine."""
    return path.as_posix() if not path.is_absolute() else f"{path.parent.name}/{path.name}"


def _again(made: Reproduction) -> str:
    whole = f"fedbo reproduce {made.wish.paper.stem}{' --quick' * made.wish.quick}"
    return f"<footer><h2>All of it again</h2><pre>{escape(whole)}</pre><p>{escape(_versions(versions()))}.</p></footer>"


def _versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]], words: int = 1, caption: str = "") -> str:
    """Write a table; after the first `words` columns come numbers. Empty without lines."""
    if not lines:
        return ""

    def row(tag: str, items: Iterable[str]) -> str:
        cells = (f"<{tag}{' class=number' * (place >= words)}>{item}</{tag}>" for place, item in enumerate(items))
        return f"<tr>{''.join(cells)}</tr>"

    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(row("td", line) for line in lines)
    return f"<div class=scroll><table>{below}{row('th', headings)}{body}</table></div>"


def interval(found: Difference) -> str:
    """Write a mean with the ends of its interval, where it has one, to two figures of its half width."""
    reach = found.high - found.mean
    if not math.isfinite(reach):
        return f"{found.mean:.4g}"
    digits = min(6, max(0, 1 - math.floor(math.log10(reach)))) if reach > 0 else 4
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
