"""The report of one or several runs: its parts, written as one file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.agent_fronts import goals_of
from fedbo.analysis.comparison import target_of
from fedbo.analysis.described import failures
from fedbo.analysis.result import Result
from fedbo.analysis.summary import SummaryRow, main_algorithm
from fedbo.analysis.timeline_bars import BAR_KINDS
from fedbo.call_arguments import named_in_python, results_of
from fedbo.figures.page.about import Failure, again, as_link, asked, chips, grouped_failures, titles
from fedbo.figures.page.moments_data import MOST, MomentsPart, Shown, moments_part
from fedbo.figures.page.panels import EXACT, PagePanel, curve_panels, feasible_panels, front_panels
from fedbo.figures.page.timeline_drawing import HATCHES, SHADES, Layer, TimelineDrawing, draw_timeline
from fedbo.figures.page.verdict import Verdict, verdict
from fedbo.figures.reports.disruptions import disruptions_table, tables_of
from fedbo.figures.reports.html import html_of
from fedbo.figures.style import INK, colour_at, dashes_at
from fedbo.settings.errors import FedboError
from fedbo.settings.rooms import loaded, optional_or, rooms
from fedbo.settings.shown import shown
from fedbo.settings.version import fedbo_version

REPORT = "report.html"
_HERE = Path(__file__).parent
_CELLS = 12  # cells of a sweep with figures of their own; all are in the tables
_SCRIPTS = ("page.js", "belief.js", "moments.js")  # one script in the page, whose parts know each other's names
_BARS = 12_000  # bars of all timelines: where there are more, only the main algorithm has one


@dataclass(frozen=True, slots=True)
class CellPart:
    """The part of the report about one cell, which moves through a `run`; the script finds numbers by the keys of figures."""

    key: str
    run: RunKey
    title: str
    quantity: str
    verdict: Verdict
    panels: Sequence[PagePanel]
    feasible: Sequence[PagePanel]
    fronts: Sequence[PagePanel]
    timelines: Sequence[tuple[str, TimelineDrawing]]
    moments: MomentsPart

    @property
    def switches(self) -> list[str]:
        """Return the keys of the groups of panels whose series can be hidden."""
        return [self.key, *([f"{self.key}-g"] if self.feasible else []), *([f"{self.key}-f"] if self.fronts else [])]


@dataclass(frozen=True, slots=True)
class RunPart:
    """The part of the report about one run, all as text or markup."""

    key: str
    title: str
    question: str
    warning: str
    chips: Sequence[str]
    replicates: int
    colours: Sequence[tuple[str, str, str]]
    summary: Markup
    cells: Sequence[CellPart]
    left_out: int
    trouble: Markup
    sections: Sequence[tuple[str, Markup]]
    failures: Sequence[Failure]
    failed: int
    observed: int
    withheld: bool
    privacy: Markup
    asked: Sequence[tuple[str, str]]
    study: str
    version: str
    again: str


class ReportError(FedboError, ValueError):
    """A report that cannot be written."""


@named_in_python()
def report(
    runs: Sequence[Result | str | Path],
    *,
    out: str | Path | None = None,
    agents: bool = False,
    beliefs: Sequence[int] | None = None,
    trust: bool = False,
) -> Path:
    """Write one HTML page about runs into `out`, by default report.html in the directory of a single run; return its path.

    `agents` shows values of single agents of a private study too; `beliefs` are the agents whose beliefs are drawn. Raises
    ReportError where the page cannot be written.
    """
    results = results_of(runs, trust)
    if out is None and len(results) != 1:
        raise ReportError("--out: is required for several runs; add --out report.html")
    return write_report(results, results[0].directory / REPORT if out is None else Path(out), agents, beliefs)


def write_report(results: Sequence[Result], path: Path, agents: bool = False, beliefs: Sequence[int] | None = None) -> Path:
    """Write the report of runs into a file, atomically, and return its path.

    For private studies it has values and errors of single agents only if `agents` is set. `beliefs` are the agents whose
    beliefs are drawn, None for a few.

    Raises:
        ReportError: the report cannot be written there.
    """
    check_report(path, [result.directory for result in results])
    _check_beliefs(results, agents, beliefs or ())
    written = render_page(results, agents, beliefs)
    try:
        atomic.write_text(path, written)
    except OSError as error:
        raise ReportError(f"'{path}': cannot be written ({error.strerror}); choose another file") from None
    return path


def check_report(path: Path, runs: Sequence[Path]) -> None:
    """Raise ReportError if a report of these runs cannot be written to a file."""
    if path.is_dir():
        raise ReportError(f"'{path}': is a folder; set a file, for example {path / REPORT}")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ReportError(f"'{path}': must end with .html; choose another name")
    if not path.absolute().parent.is_dir():
        raise ReportError(f"'{path}': the folder '{path.parent}' does not exist; create it, or choose another file")
    places = [run.resolve() for run in runs]
    if twice := next((run for run, place in zip(runs, places, strict=True) if places.count(place) > 1), None):
        raise ReportError(f"'{twice}': is passed twice; pass each run once")


def _is_private(result: Result) -> bool:
    return bool(optional_or("is_private", False)(result))


def _check_beliefs(results: Sequence[Result], agents: bool, beliefs: Sequence[int]) -> None:
    """Raise ReportError if a run has no such agent, or may not show what single agents believe."""
    for result in results if beliefs else ():
        known = {trace.agent for trace in result.traces}
        if strange := sorted(set(beliefs) - known):
            raise ReportError(f"--belief {strange[0]}: '{result.directory}' has no such agent; choose from {_ranges(known)}")
        if not agents and _is_private(result):
            raise ReportError(f"--belief: '{result.directory}' is private; add --agents to show values of single agents")


def _ranges(agents: Collection[int]) -> str:
    """Return numbers as a text, as a range if they are one."""
    low, high = min(agents, default=0), max(agents, default=0)
    return f"{low} to {high}" if len(agents) == high - low + 1 else ", ".join(map(str, sorted(agents)))


def render_page(
    results: Sequence[Result], agents: bool = False, beliefs: Sequence[int] | None = None, refresh: float | None = None
) -> str:
    """Return the report of runs as HTML; the same runs result in the same bytes.

    With `refresh` the page is asked for again after so many seconds, unless somebody is working with it.
    """
    if len(results) > 1 and beliefs is None:
        beliefs = ()  # of every run they would take long
    runs = [
        _run_part(result, f"r{number}", name, Shown(agents or not _is_private(result), beliefs, MOST // len(results)))
        for number, (result, name) in enumerate(zip(results, titles(results), strict=True))
    ]
    panels, timelines, moments = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for cell in (cell for run in runs for cell in run.cells):
        panels |= {panel.key: panel.data for panel in (*cell.panels, *cell.feasible, *cell.fronts)}
        timelines |= {key: drawing.data() for key, drawing in cell.timelines}
        if cell.moments.data is not None:
            moments[cell.timelines[0][0]] = cell.moments.data
    parts = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    written: str = _template().render(
        title=runs[0].title if len(runs) == 1 else f"{len(runs)} runs",
        runs=runs,
        exact=[(EXACT, INK, "2 2")],
        statistics=optional_or("statistics_section", Markup())(results),
        hatches=HATCHES,
        shades=SHADES,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        js=Markup(script),
        js_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),  # no other script runs
        data=_embedded({"panels": panels, "timelines": timelines, "moments": moments, "refresh": refresh}),
        refresh=refresh,
        version=fedbo_version(),
    )
    return shown(written)  # a study or a run may be of somebody else


@cache
def _template() -> Template:
    """Compile the template of the page, once in a process: this takes longer than most reports."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {"as_link": as_link, "paint": _paint}
    return environment.get_template("page.html.jinja")


def _embedded(value: Mapping[str, Any]) -> Markup:
    """Format plain data for a script element, with unsafe characters escaped."""
    # No text may end the element, as "</script" would; U+2028 and U+2029 end lines in older versions of JavaScript.
    written = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(written.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _paint(layer: Layer) -> Markup:
    if layer.pattern == "veil":
        return Markup('fill="{}" fill-opacity="0.2"').format(layer.colour)
    if layer.pattern:
        return Markup('fill="url(#{})" stroke="{}" stroke-width="0.6"').format(layer.pattern, layer.colour)
    edge = Markup(' stroke="#fff" stroke-width="0.6"') if layer.name in BAR_KINDS and layer.name != "waiting" else Markup()
    return Markup('fill="{}"{}').format(layer.colour, edge)


def _run_part(result: Result, key: str, title: str, told: Shown) -> RunPart:
    """Return the part of a run; its first cells with figures share the events that may be moved through."""
    there = sorted({trace.cell for trace in result.traces})
    shown = there[:_CELLS]
    told = told._replace(events=told.events // max(1, len(shown)))
    failed, _ = failures(result)
    rows = result.summary() if there else []
    main = main_algorithm(rows, result.study.labels)
    summary = tables_of(result, None, target_of(result, main)) if there else "No evaluation has finished."
    status = result.manifest["status"]
    cells = [_cell_part(result, rows, (cell, f"{key}-c{cell}"), told) for cell in shown]
    moving = {cell.run: cell.timelines[0][0] for cell in cells if cell.moments.data}
    declared = [section for room in rooms().values() for section in room.sections.items()]
    sections = [(heading, loaded(function)(result, moving)) for heading, function in declared]
    return RunPart(
        key=key,
        title=title,
        question=result.study.study.description or "",
        warning="" if status == "complete" else f"This study is not complete ({status}); the results may change.",
        chips=chips(result),
        replicates=result.study.study.replicates,
        colours=[(label, colour_at(place), dashes_at(place)) for place, label in enumerate(result.study.labels)],
        summary=html_of(summary),
        cells=cells,
        left_out=len(there) - len(shown),
        trouble=html_of(disruptions_table(result), full=False),
        sections=[(heading, part) for heading, part in sections if part],
        failures=grouped_failures(result) if told.agents else [],
        failed=failed,
        observed=len(result.observations),
        withheld=not told.agents,
        privacy=optional_or("privacy_section", Markup())(result),
        asked=asked(result),
        study=(result.directory / "study.toml").read_text(encoding="utf-8"),
        version=str(result.manifest.get("fedbo") or fedbo_version()),
        again=again(result),
    )


def _cell_part(result: Result, rows: Sequence[SummaryRow], place: tuple[int, str], told: Shown) -> CellPart:
    """Return the figures of a cell: the timeline of its main algorithm, or with one cell those of all algorithms."""
    cell, key = place
    here = [row for row in rows if row.cell == cell]
    main = main_algorithm(here, result.study.labels)
    timelines = [draw_timeline(result, cell, main)]
    if len(here) == len(rows) and timelines[0].size * len(here) <= _BARS:
        timelines += [draw_timeline(result, cell, row.algorithm) for row in here if row.algorithm != main]
    run = RunKey(cell, main, timelines[0].replicate)
    return CellPart(
        key=key,
        run=run,
        title=result.study.titles()[cell],
        quantity="Hypervolume" if (goals := goals_of(result, cell)) is not None and goals.several else "Best value",
        verdict=verdict(result, cell, rows),
        panels=curve_panels(result, cell, f"{key}-p"),
        feasible=feasible_panels(result, cell, f"{key}-q"),
        fronts=front_panels(result, cell, f"{key}-r") if told.agents else [],
        timelines=[(f"{key}-t{number}", one if told.agents else one.without_values()) for number, one in enumerate(timelines)],
        moments=moments_part(result, run, told),
    )
