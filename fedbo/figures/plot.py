"""Figures of a run: drawn with matplotlib's objects, without a display and without any state outside the figure."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args
from warnings import catch_warnings, filterwarnings

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.analysis.comparison import TargetValue, target_of
from fedbo.analysis.finished_run import ResultError, check_label
from fedbo.analysis.regret import plays_bandits, regret_traces
from fedbo.analysis.result import Choices, Result
from fedbo.figures.cells import is_swept
from fedbo.figures.curves import curve_panels, regret_panels
from fedbo.figures.fronts import feasible_panels, front_panels
from fedbo.figures.layout import FigurePanel, Look, PlotError, Sheet, arrange, draw_into
from fedbo.figures.style import save, styled
from fedbo.figures.timeline import timeline_panels
from fedbo.settings.arguments import FigureKind, SearchKind
from fedbo.settings.errors import unknown
from fedbo.settings.rooms import optional, optional_or
from fedbo.settings.trust import UntrustedError

KINDS = get_args(FigureKind)
ENDINGS = (".png", ".pdf", ".svg")
_OF_ALL_CELLS = ("sweep", "privacy")
# The kinds that a room draws, with the name under which it offers the function that returns their panels.
_OF_ROOMS = {"trouble": "disruption_panels", "optima": "optima_panels", "sweep": "sweep_panels", "privacy": "privacy_panels"}
_OF_ROOMS |= dict.fromkeys(get_args(SearchKind), "search_panels")


@dataclass(frozen=True, slots=True)
class View:
    """A figure to draw, and its options.

    - `kind`: by default the `overview`, or the `sweep` if there is one; `cell`: its cell.
    - `regret`: draw it instead of values, for curves.
    - `algorithm`: the algorithm of a timeline, trouble or sweep; by default the first federated one, or the one with a swept
      setting.
    - `level`: the target value in a sweep.
    - `algorithms`: the only ones shown, by default all, or for `importance`, `slices` and `parallel` the main one.
    - `replicate`: the only one that counts; `panels`: the only ones drawn.
    - `look`: the size, the font, and whether there are titles.
    """

    kind: str | None = None
    cell: int | None = None
    regret: bool = False
    algorithm: str | None = None
    level: float | None = None
    algorithms: Sequence[str] | None = None
    replicate: int | None = None
    panels: Sequence[str] | None = None
    look: Look = field(default_factory=Look)

    @classmethod
    def of(cls, kind: str | None, cell: int | None, choices: Choices) -> View:
        """Return the view for the arguments of `Result.plot`."""
        sizes = {one.name for one in fields(Look)}
        known = [*Choices.__annotations__, "path", "kind", "cell", "ax"]
        if wrong := [name for name in choices if name not in known]:
            raise PlotError(f"plot(): {unknown('argument', wrong[0], known)}")
        look = Look(**{name: value for name, value in choices.items() if name in sizes})  # type: ignore[arg-type]
        rest: dict[str, Any] = {name: value for name, value in choices.items() if name not in sizes}
        return cls(kind, cell, look=look, **rest)

    @property
    def name(self) -> str:
        """Return a name for its file that includes its options."""
        words = [self.kind or "figure", *([str(self.cell)] if self.cell else []), *([self.algorithm] if self.algorithm else [])]
        words += [*(self.algorithms or ()), *([f"replicate-{self.replicate}"] if self.replicate is not None else [])]
        words += [*(self.panels or ()), *(["regret"] if self.regret else [])]
        return "-".join("".join(letter if letter.isalnum() else "_" for letter in word) for word in words)


def draw_result(
    result: Result, path: str | Path | None, kind: str | None, cell: int | None, ax: Axes | None, choices: Choices
) -> Path | Axes:
    """Draw a figure into a file, or one panel into axes, as `Result.plot` says."""
    view = View.of(kind, cell, choices)
    if ax is not None:
        if path is not None:
            raise ResultError("path and ax cannot be combined; set one of them")
        return draw_on(result, ax, view)
    if path is None and result.address is not None:
        raise ResultError(f"'{result.address}': cannot be written to; set a local path with --out")
    return draw(result, None if path is None else Path(path), view)


def draw(result: Result, path: Path | None, view: View) -> Path:
    """Draw a figure of a run into a file and return its path; PlotError if there is no such figure.

    Without a path, or if it is a folder, the file is named after the figure; without an ending it is a PNG.
    """
    view = settled(result, view)
    return write(figure_of(result, view), path or result.directory, view.name, view.look)


def write(figure: Figure, path: Path, name: str, look: Look) -> Path:
    """Write a figure to a path, or into a folder under a name; return its path."""
    path = path / f"{name}.png" if os.path.isdir(path) else path if path.suffix else path.with_name(f"{path.name}.png")
    if path.suffix not in ENDINGS:
        raise PlotError(f"'{path}': must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    with styled(look.style()), catch_warnings():
        filterwarnings("error", message="constrained_layout not applied")
        try:
            save(figure, path, look.dpi)
        except UserWarning:
            raise PlotError(f"'{path}': the panels do not fit; make the figure larger, or the font smaller") from None
        except OSError as error:
            raise PlotError(f"'{path}': cannot be written ({error.strerror}); choose another file") from None
    return path


def figure_of(result: Result, view: View) -> Figure:
    """Return the figure itself, for further changes; PlotError if there is no such figure."""
    view = settled(result, view)
    view.look.check()
    with styled(view.look.style()):
        return arrange(_sheet(result, view), view.look)


def draw_on(result: Result, axes: Axes, view: View) -> Axes:
    """Draw one panel into axes, and return them; PlotError if there is no such figure, or it has several panels."""
    if not isinstance(axes, Axes):
        raise PlotError(f"ax = {axes!r}: must be one Axes of matplotlib")
    if view.look.dark:
        raise PlotError("dark: axes of your own keep the style of their figure; draw a file, or leave dark out")
    view = settled(result, view)
    sheet = _sheet(result, view if view.panels else replace(view, panels=None))
    sheet = replace(sheet, panels=sheet.panels if view.panels else sheet.panels[:1])
    if len(sheet.panels) > 1:
        raise PlotError(f"ax: requires one panel, got {len(sheet.panels)}; set one in panels")
    return draw_into(axes, sheet, view.look.title)


def settled(result: Result, view: View) -> View:
    """Set the default kind and cell of a view; PlotError if there is no such figure."""
    cells = sorted({trace.cell for trace in result.traces})
    side_by_side = len(cells) > 1 and view.cell is None and optional(_OF_ROOMS["sweep"]) is not None
    kind = view.kind if view.kind is not None else "sweep" if side_by_side else "overview"
    _check(result, replace(view, kind=kind), cells)
    open_cell = view.cell is None and kind not in _OF_ALL_CELLS
    return replace(view, kind=kind, cell=cells[0] if open_cell else view.cell)


def _check(result: Result, view: View, cells: Sequence[int]) -> None:
    if view.kind not in KINDS:
        raise PlotError(f"no figure '{view.kind}'; available: {', '.join(KINDS)}")
    if not cells or view.cell not in (*cells, None):
        raise PlotError(f"no observations in cell {view.cell or 0}; available cells: {', '.join(map(str, cells)) or 'none'}")
    if view.kind == "sweep" and len(cells) < 2:
        raise PlotError("no figure 'sweep' of this run: it has one cell; draw the curves, or run a sweep")
    panel = "epsilon" in (view.panels or ()) and view.kind != "privacy"
    if (panel or view.kind == "privacy") and not _is_private(result, view):
        where = "" if view.cell is None or len(cells) == 1 else f" of cell {view.cell}"
        what, instead = ("no panel 'epsilon'", "other panels") if panel else ("no figure 'privacy'", "the curves")
        raise PlotError(f"{what}{where}: it has no private algorithm; draw {instead}")
    single = ("overview", "timeline", "trouble", "sweep")
    many = tuple(kind for kind in KINDS if kind not in ("timeline", "sweep"))
    for given, option, kinds in (
        (view.regret, "regret", ("overview", "curves", "sweep")),
        (view.algorithm is not None, "algorithm", single),
        (view.algorithms is not None, "algorithms", many),
        (view.level is not None, "level", ("sweep",)),
    ):
        if given and view.kind not in kinds:
            other = {"algorithm": "algorithms", "algorithms": "algorithm"}.get(option)
            instead = f"set '{other}'" if other and view.kind in (*single, *many) else f"use it with: {', '.join(kinds)}"
            raise PlotError(f"figure '{view.kind}' does not support '{option}'; {instead}")


def _is_private(result: Result, view: View) -> bool:
    """Return whether a shown algorithm adds noise."""
    return any(
        row.noise and (view.cell is None or row.cell == view.cell) and row.algorithm in (view.algorithms or (row.algorithm,))
        for row in optional_or("spending", ())(result)
    )


def part_of(result: Result, algorithms: Sequence[str] | None, replicate: int | None) -> Result:
    """Return a result with only some algorithms and one replicate: the other rows of its tables are removed."""
    for label in algorithms or ():
        check_label(result, label)
    there = sorted({trace.replicate for trace in result.traces})
    if replicate is not None and replicate not in there:
        raise PlotError(f"no replicate {replicate}; available: {', '.join(map(str, there))}")
    if algorithms is None and replicate is None:
        return result
    part = Result(result.directory, result.study, result.manifest)
    for name in ("observations", "histories", "events", "privacy", "spent"):
        table = getattr(result, name)
        if algorithms is not None:
            table = table.filter(pc.is_in(table["algorithm"], value_set=pa.array(list(algorithms), pa.string())))
        if replicate is not None:
            table = table.filter(pc.equal(table["replicate"], replicate))
        setattr(part, name, table)
    if not len(part.traces):
        raise PlotError(f"no runs of {', '.join(algorithms or ())}; choose other algorithms")
    return part


def _sheet(result: Result, view: View) -> Sheet:
    """Collect the content of the figure."""
    assert view.kind is not None
    result = part_of(result, view.algorithms, view.replicate)
    panels, legend = _panels(result, view)
    return Sheet(wanted_panels(panels, view), legend, result.study.study.name, facts_of(result, view))


def wanted_panels(panels: Sequence[FigurePanel], view: View) -> list[FigurePanel]:
    """Return the panels of a view, by default those that are shown; PlotError if there is no such panel."""
    names = [panel.name for panel in panels]
    wanted = view.panels if view.panels is not None else [panel.name for panel in panels if panel.shown]
    if strange := [name for name in wanted if name not in names]:
        raise PlotError(f"figure '{view.kind}' has no panel '{strange[0]}'; available: {', '.join(names)}")
    if not wanted:
        raise PlotError(f"figure '{view.kind}': panels must not be empty; available: {', '.join(names)}")
    return [panels[names.index(name)] for name in wanted]


def _panels(result: Result, view: View) -> tuple[list[FigurePanel], list[Artist]]:
    """Return the panels of a kind of figure, and their common legend entries."""
    target, cells = target_in(result, view), sorted({trace.cell for trace in result.traces})
    cell = view.cell if view.cell is not None else cells[0]
    makers: dict[str, Callable[[], tuple[list[FigurePanel], list[Artist]]]] = {
        "curves": lambda: curve_panels(result, cell, view.regret),
        "regret": lambda: regret_panels(result, cell),
        "timeline": lambda: (timeline_panels(result, cell, target.algorithm), []),
        "trouble": lambda: _of_room("trouble")(result, cell, target.algorithm),
        "privacy": lambda: _of_room("privacy")(result, cells if view.cell is None else [view.cell]),
        "optima": lambda: _of_room("optima")(result, cell),
        "fronts": lambda: front_panels(result, cell),
        "feasible": lambda: feasible_panels(result, cell),
        "sweep": lambda: _of_room("sweep")(result, target),
    }
    if view.kind in get_args(SearchKind):
        one_method = view.kind != "history" and view.algorithms is None
        part = part_of(result, [target.algorithm], None) if one_method else result
        return _of_room(str(view.kind))(part, cell, view.kind)
    if view.kind != "overview":
        return makers[view.kind or ""]()
    curves, legend = makers["regret" if shows_regret(result, view) else "curves"]()
    return [*curves, *makers["timeline"]()[0][:1]], legend


def _of_room(kind: str) -> Callable[..., tuple[list[FigurePanel], list[Artist]]]:
    if (found := optional(_OF_ROOMS[kind])) is None:
        raise PlotError(f"figure '{kind}': needs a part of fedbo that is not installed here; draw another one")
    return found


def shows_regret(result: Result, view: View) -> bool:
    """Return whether an overview shows the regret of bandits instead of best values: if it is known."""
    if view.regret or not plays_bandits(result):
        return False
    try:
        return bool(regret_traces(result))
    except (ResultError, UntrustedError):
        return False


def target_in(result: Result, view: View) -> TargetValue:
    """Return the algorithm of the figure; if the study was cut short, one with runs."""
    target = target_of(result, view.algorithm, view.level, view.regret)
    everywhere = view.kind == "sweep"
    there = {trace.algorithm for trace in result.traces if everywhere or view.cell is None or trace.cell == view.cell}
    if target.algorithm in there:
        return target
    if view.algorithm is not None:
        where = "" if everywhere else f" in cell {view.cell}"
        raise PlotError(f"no runs of '{target.algorithm}'{where}; available: {', '.join(sorted(there))}")
    return replace(target, algorithm=max(there, key=result.study.labels.index))


def facts_of(result: Result, view: View) -> list[str]:
    """List the facts about the study for the head of a figure."""
    header, study = result.study.study, result.study
    agents = len({trace.agent for trace in result.traces if view.cell in (trace.cell, None)})
    values = f"{len(study.titles())} cells: {' × '.join(study.sweep)}" if view.cell is None else study.titles()[view.cell]
    count = header.replicates if view.replicate is None else 1
    after = "" if study.budget.pulls or is_swept(study, "agents.initial") else f" after {study.agents.initial} initial points"
    fixed = {  # of a swept key the study has only the default; the cell's name has its value
        "budget": f"{study.budget.in_words}{after}",
        "exchange.mode": f"{study.exchange.mode} exchange",
    }
    facts = [
        f"{agents} agents",
        f"{count} replicate{'s' * (count > 1)}" if view.replicate is None else f"replicate {view.replicate}",
        *(words for key, words in fixed.items() if not is_swept(study, key)),
        f"seed {header.seed}",
        *([values] if values and len(study.titles()) > 1 else []),
        *([result.manifest["status"]] if result.manifest["status"] != "complete" else []),
    ]
    return facts
