"""The manifest of a paper to reproduce: its figures, the study behind each, and its statements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from fedbo.analysis.comparison import At
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.base import Table
from fedbo.study.document import Document, Loc, StudyError, read
from fedbo.study.invalid import from_pydantic, line_of
from fedbo.study.study import Study

Kind = Literal["curves", "messages", "decision_time"]
Claim = Literal["better", "not_worse", "alike", "shorter", "faster", "steady", "grows"]

TIMED = ("faster", "steady", "grows")  # claims about measured decision times
SINGLE = ("steady", "grows")  # claims about one algorithm


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Labels = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(strict=False, min_length=1)]


class PaperTable(Table):
    """[paper]: its title, its source, and remarks on its figures."""

    title: Annotated[str, Field(min_length=1)]
    source: str = ""
    remarks: Annotated[tuple[str, ...], Field(strict=False)] = ()


class PublishedTable(Table):
    """A number of the paper: the value of an algorithm after `at` iterations, or its mean over all of them."""

    algorithm: str
    at: At
    value: float


class TestTable(Table):
    """[[figure.test]]: a statement in a measurable form, and in words in `says`.

    `of` and `than` are labels of algorithms; several are averaged. `than_in` is the figure of `than`, if it is another one.
    Values are compared after `at` iterations, at the "end", or by their "mean" over all iterations. `margin` is the smallest
    relevant difference, in native units; for claims about decision times it is a factor.
    """

    __test__ = False  # no test of pytest's

    says: Annotated[str, Field(min_length=1)]
    claim: Claim
    of: Labels
    than: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(strict=False)] = ()
    than_in: str | None = None
    at: At = "end"
    margin: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        alone = self.claim in SINGLE
        if bool(self.than) == alone:
            raise ValueError(f"claim = '{self.claim}' {'does not use' if alone else 'requires'} than")
        if self.than_in is not None and self.claim not in ("better", "not_worse", "alike"):
            raise ValueError(f"claim = '{self.claim}' does not use than_in; remove it")
        if alone and len(self.of) != 1:
            raise ValueError(f"claim = '{self.claim}' concerns one algorithm; set one label in of")
        if self.claim in TIMED and self.margin is not None and self.margin < 1:
            raise ValueError("margin of a claim about decision times is a factor; set 1 or more")
        if self.claim in ("not_worse", "alike") and not self.margin:
            raise ValueError(f"claim = '{self.claim}' requires margin, the smallest relevant difference; set it above 0")
        return self


class FigureTable(Table):
    """[[figure]]: the study behind it, its kind, the paper's statement about it, and its tests.

    `quick` are overrides of the study for a quick run. `agents` are the targets that count (default: all), `algorithms` the
    labels to draw, and `cell` is that of a sweep. `timed` adds decision times to curves. For messages, `series` joins labels to
    one line, and `levels` are labels that are drawn as a level because they send nothing.
    """

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    title: str
    study: str
    kind: Kind = "curves"
    statement: str = ""
    remark: str = ""
    quick: Annotated[tuple[str, ...], Field(strict=False)] = ()
    agents: Annotated[tuple[int, ...], Field(strict=False)] = ()
    algorithms: Annotated[tuple[str, ...], Field(strict=False)] = ()
    cell: Annotated[int, Field(ge=0)] = 0
    regret: bool = False
    timed: bool = False
    series: dict[str, Annotated[tuple[str, ...], Field(strict=False, min_length=1)]] = {}
    levels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    published: Annotated[tuple[PublishedTable, ...], Field(strict=False)] = ()
    test: Annotated[tuple[TestTable, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.series) != (self.kind == "messages"):
            raise ValueError("series must be set for kind = 'messages', and for no other kind")
        if self.timed and self.kind != "curves":
            raise ValueError("timed applies only to kind = 'curves'; remove it")
        if self.levels and self.kind != "messages":
            raise ValueError("levels apply only to kind = 'messages'; remove them")
        measured = self.timed or self.kind == "decision_time"
        for number, test in enumerate(self.test, 1):
            if test.claim in TIMED and not measured:
                raise ValueError(f"test {number}, claim = '{test.claim}': decision times are not measured; set timed = true")
            if test.claim not in TIMED and self.kind == "decision_time":
                raise ValueError(
                    f"test {number}, claim = '{test.claim}': this figure has only decision times; use faster or grows"
                )
        return self

    @property
    def labels(self) -> Iterator[tuple[str, str]]:
        """Yield each label in the table, with the key that contains it."""
        yield from (("algorithms", label) for label in self.algorithms)
        yield from (("levels", label) for label in self.levels)
        yield from ((f"series {name}", label) for name, labels in self.series.items() for label in labels)
        yield from (("published", each.algorithm) for each in self.published)
        for number, test in enumerate(self.test, 1):
            named = test.of + (test.than if test.than_in is None else ())
            yield from ((f"test {number}", label) for label in named)


class Manifest(Table):
    """A manifest: [paper] and its [[figure]]s."""

    paper: PaperTable
    figure: Annotated[tuple[FigureTable, ...], Field(strict=False)]


_KNOWN: Mapping[Loc, Sequence[str]] = {
    (): list(Manifest.model_fields),
    ("paper",): list(PaperTable.model_fields),
    ("figure",): list(FigureTable.model_fields),
    ("figure", "published"): list(PublishedTable.model_fields),
    ("figure", "test"): list(TestTable.model_fields),
}


def is_manifest(path: Path) -> bool:
    """Check whether a TOML file is a paper's manifest, and not a study."""
    try:
        return "paper" in read(path)
    except StudyError:
        return False


def find_paper(name: str, folder: Path) -> Path:
    """Return the path of a paper's manifest; StudyError with the remedy if there is none."""
    if not os.path.isdir(folder):
        remedy = "set the folder of the manifests with --papers"
        raise StudyError(f"{folder}: no such folder, so there is no paper '{name}'; {remedy}")
    papers = {path.stem: path for path in sorted(folder.glob("*.toml")) if is_manifest(path)}
    if name not in papers:
        raise StudyError(f"{folder}: {unknown('paper', name, papers)}")
    return papers[name]


def load_manifest(path: Path) -> Manifest:
    """Read a manifest; StudyError with one line for each fault."""
    document = read(path)
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        raise StudyError("\n".join(_line(path, fault, document) for fault in from_pydantic(error, _KNOWN).faults)) from None
    ids = [figure.id for figure in manifest.figure]
    faults = [] if ids else [f"{path}: [[figure]]: is missing; add one table for each figure"]
    faults += [
        f"{path}: [[figure]] id = '{one}': is used twice; choose another id"
        for one in sorted({i for i in ids if ids.count(i) > 1})
    ]
    for figure in manifest.figure:
        other = {test.than_in for test in figure.test if test.than_in is not None}
        faults += [f"{path}: figure {figure.id}, than_in: {unknown('figure', one, ids)}" for one in sorted(other - {*ids})]
    if faults:
        raise StudyError("\n".join(faults))
    return manifest


def chosen(manifest: Manifest, only: Sequence[str], path: Path) -> list[FigureTable]:
    """Return the figures with these ids, or all; StudyError if there is no such figure."""
    ids = [figure.id for figure in manifest.figure]
    if wrong := [one for one in only if one not in ids]:
        raise StudyError("\n".join(f"--only: {unknown('figure', one, ids)}; see {path}" for one in wrong))
    return [figure for figure in manifest.figure if not only or figure.id in only]


def suits(figure: FigureTable, study: Study, path: Path) -> list[str]:
    """List the requirements of a figure that its study does not meet, one line each."""
    lines = [f"{key}: {unknown('algorithm', label, study.labels)}" for key, label in figure.labels if label not in study.labels]
    wrong = sorted({*figure.agents} - {*study.targets})
    lines += [f"agents: agent {agent} is not a target of {figure.study}" for agent in wrong]
    cells = len(study.titles())
    if figure.cell >= cells:
        lines.append(f"cell = {figure.cell}: {figure.study} has {cells} cells; set a number from 0 to {cells - 1}")
    if figure.kind == "decision_time" and cells < 2:
        lines.append(
            f"kind = 'decision_time': {figure.study} has one cell; sweep the number of agents, for example objective.agents"
        )
    return [f"{path}: figure {figure.id}, {line}" for line in lines]


def _line(path: Path, fault: SettingError, document: Document) -> str:
    """Format a fault with its place; within a figure that is its id, if it has one."""
    loc = fault.path
    if len(loc) > 1 and loc[0] == "figure" and isinstance(loc[1], int):
        table = document["figure"][loc[1]]
        name = table.get("id", loc[1] + 1) if isinstance(table, dict) else loc[1] + 1
        rest = " ".join(str(step + 1) if isinstance(step, int) else step for step in loc[2:])
        return f"{path}: figure {name}{f', {rest}' if rest else ''}: {fault.remedy}"
    return f"{path}: {line_of(fault, document)}"
