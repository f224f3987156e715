"""What the pages name is there: links and anchors, files, the catalogue, the keys of a study, attributes of the package."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pages
import pytest

from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.coordinator.exchange import MODES
from fedbo.objectives.catalog import federations
from fedbo.settings.plugins import GROUPS
from fedbo.study.agents.tables import HistoryTable
from fedbo.study.listing import TABLES, Item, groups
from fedbo.study.settings import names_of
from fedbo.study.study import Study
from tests import test_house

METHODS = [name for name in pages.NAMES if name.startswith("docs/algorithms/")]
ROOMS = "actors|algorithms|benchmarks|coordinator|examples|fedbo|interface|objectives|surrogates|tests"


@pytest.mark.parametrize("name", [*pages.NAMES, *pages.RECORDS])
def test_every_link_leads_somewhere(name: str) -> None:
    here = pages.ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", pages.prose(name)):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        found = here if not path else (here.parent / path).resolve()
        assert found.exists(), f"{name}: no {target}"
        if anchor:
            assert anchor in pages.anchors(str(found.relative_to(pages.ROOT))), f"{name}: no {target}"


@pytest.mark.parametrize("name", pages.NAMES)
def test_every_file_of_the_repository_that_is_named_exists(name: str) -> None:
    for code in pages.inline(name) + [block.text for block in pages.blocks() if block.page == name]:
        for path in re.findall(rf"(?<![\w/.-])((?:{ROOMS})/[\w./-]*\w)", code):
            assert (pages.ROOT / path).exists(), f"{name}: no {path}"


@pytest.mark.parametrize("name", pages.NAMES)
def test_every_attribute_of_the_package_that_is_named_exists(name: str) -> None:
    for code in pages.inline(name):
        for dotted in re.findall(r"(?<![\w.'/-])fedbo((?:\.[A-Za-z_]\w*)+)", code):
            if dotted not in (".toml", ".git") and dotted[1:] not in GROUPS:
                _resolve(dotted[1:].split("."), f"{name}: `{code}`")


def _resolve(steps: list[str], where: str) -> None:
    found, module = importlib.import_module("fedbo"), "fedbo"
    for step in steps:
        module = f"{module}.{step}"
        if hasattr(found, step):
            found = getattr(found, step)
            continue
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            pytest.fail(f"{where}: there is no {module}")


def _listed(section: str, cell: str) -> set[str]:
    """Give the names in code of the row of [section] in docs/studies.md whose first cell is this."""
    for grid in _grids(section):
        for row in grid.rows:
            if row[0] == f"`{cell}`":
                return set(re.findall(r"`(\w+)`", row[-1]))
    pytest.fail(f"docs/studies.md has no row of `{cell}` in [{section}]")


def _grids(section: str) -> list[pages.Grid]:
    pattern = rf"## `\[+{re.escape(section)}\]+`"
    return [grid for grid in pages.grids("docs/studies.md") if re.match(pattern, grid.section)]


def _section(section: str) -> str:
    return next(text for _, text in pages.sections("docs/studies.md") if re.match(rf"## `\[+{re.escape(section)}\]+`", text))


def test_the_objectives_and_algorithms_of_the_page_on_studies_are_those_of_the_catalogue() -> None:
    assert _listed("objective", "name") == set(federations())
    assert _listed("algorithm", "name") == set(algorithms())


def test_the_timing_availability_exchange_and_faults_of_the_page_on_studies_are_those_of_the_catalogue() -> None:
    found = groups()
    named = {
        "timing": {name for grid in _grids("timing") if grid.rows[0][0] == "model" for name in _codes(grid)},
        "availability": set(re.findall(r"^- `(\w+)`:", _section("availability"), re.MULTILINE)),
        "exchange": set(re.findall(r"^- `(\w+)`:", _section("exchange").partition("`staleness` weighs")[0], re.MULTILINE)),
        "faults": {name for grid in _grids("fault") if grid.rows[0] == ("kind", "what happens") for name in _codes(grid)},
    }
    for group, names in named.items():
        assert names == {item.name for item in found[group]}, group


def _codes(grid: pages.Grid) -> list[str]:
    return [name for row in grid.rows[1:] for name in re.findall(r"`(\w+)`", row[0])]


@pytest.mark.parametrize(("page", "names"), [("algorithms/index", algorithms), ("objectives", federations)])
def test_everything_in_the_catalogue_is_named_on_its_page(page: str, names: Callable[[], Mapping[str, object]]) -> None:
    assert set(names()) <= set(pages.inline(f"docs/{page}.md"))


def test_the_table_of_what_messages_reveal_is_what_methods_declare() -> None:
    (grid,) = [grid for grid in pages.grids("docs/algorithms/index.md") if grid.rows[0][0] == "`reveals`"]
    declared = {name: revealed_by(found.make()) for name, found in algorithms().items()}
    expected = [
        (f"`{word}`", ", ".join(f"`{name}`" for name in sorted(declared) if declared[name] is word)) for word in Reveals
    ]
    assert [(row[0], row[2]) for row in grid.rows[1:]] == expected


def _page_of(algorithm: str) -> str:
    """Give the page that the table of all methods links in the row of an algorithm."""
    grid = next(grid for grid in pages.grids("docs/algorithms/index.md") if grid.rows[0][-1] == "page")
    row = next(row for row in grid.rows if f"`{algorithm}`" in row[0])
    linked = re.search(r"\((\w+\.md)", row[3])
    assert linked is not None, f"no page of {algorithm}"
    return f"docs/algorithms/{linked[1]}"


def test_the_table_of_all_methods_names_their_presets_and_each_is_told_of_on_the_page_that_it_links() -> None:
    grid = next(grid for grid in pages.grids("docs/algorithms/index.md") if grid.rows[0][-1] == "page")
    for row in grid.rows[1:]:
        for name in re.findall(r"`(\w+)`", row[0]):
            assert set(re.findall(r"`(\w+)`", row[2])) == set(algorithms()[name].presets), name
            assert name in pages.inline(_page_of(name)), name


@pytest.mark.parametrize("item", groups()["objectives"] + groups()["algorithms"], ids=lambda item: item.name)
def test_every_setting_of_an_objective_or_algorithm_is_in_the_documentation(item: Item) -> None:
    told = ["docs/objectives.md"] if item in groups()["objectives"] else METHODS
    codes = {word for page in told for code in pages.inline(page) for word in re.findall(r"\w+", code)}
    assert set(item.settings) <= codes


def test_the_presets_of_the_page_on_studies_are_those_of_the_catalogue() -> None:
    row = next(row for grid in _grids("algorithm") for row in grid.rows if row[0] == "`preset`")
    told: dict[str, set[str]] = {}
    rest = set(algorithms())
    for preset, names in re.findall(r"(?:`(\w+)` of|none of) ((?:`\w+`(?:, | and )?)+);", row[-1]):
        for name in re.findall(r"`(\w+)`", names):
            told[name] = {preset} - {""}
            rest.remove(name)
    assert "`faithful` of all others" in row[-1]
    told |= {name: {"faithful"} for name in rest}
    assert told == {name: set(entry.presets) for name, entry in algorithms().items()}


def test_the_federations_that_are_the_same_in_every_replicate_are_those_that_are_named() -> None:
    needing = {"python_function", "tabulated", "typed_function"}  # cannot be built without a function or a table; all say no
    fixed = needing | {
        name for name, federation in federations().items() if name not in needing and not federation().random_per_replicate
    }
    sentence = re.search(r"Only (.*?) have\s+the\s+same objectives", _section("agents.history"), re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == fixed


def _schema() -> dict[str, set[str]]:
    """Give the keys of every table of a study with fixed keys, and of all that can stand in the others."""
    listed = groups()
    keys: dict[str, set[str]] = {"exchange": {"mode"}, "fault": {"kind", "label"}, "objective": {"noise"}}
    for name, field in Study.model_fields.items():
        declared = getattr(field.annotation, "model_fields", None)
        if declared is None:
            declared = getattr(getattr(field.annotation, "__args__", (None,))[0], "model_fields", {})
        keys.setdefault(name, set()).update(declared)
    for table, group in (("timing", "timing"), ("availability", "availability"), ("exchange", "exchange"), ("fault", "faults")):
        keys[table] |= {setting for item in listed[group] for setting in item.settings}
    for dotted, declared in TABLES.items():
        keys[dotted.partition(".")[0]] |= set(names_of(declared))
    keys["agents.history"] = set(HistoryTable.model_fields)
    keys["group"] = keys["group"] - {"from_"} | {"from"}
    keys["agents"] -= {"history"}
    return {table: names for table, names in keys.items() if names and table != "sweep"}


@pytest.mark.parametrize("table", sorted(_schema()))
def test_the_page_on_studies_has_every_key_of_a_table_and_no_other(table: str) -> None:
    named: set[str] = set()
    for grid in _grids(table):
        for column, title in enumerate(grid.rows[0]):
            if title in ("key", "setting"):
                named |= {name for row in grid.rows[1:] for name in re.findall(r"`(\w+)`", row[column])}
    said = set(re.findall(r"`(\w+)`", _section(table)))  # `between`, `kind`, `label` and `agents` are told in a sentence
    known = _schema()[table]
    assert named <= known, f"docs/studies.md tells of keys that [{table}] does not have: {sorted(named - known)}"
    assert known <= named | said, f"docs/studies.md is silent on keys of [{table}]: {sorted(known - named - said)}"


def test_the_modes_of_which_a_key_is_told_have_it() -> None:
    grid = next(grid for grid in _grids("exchange") if grid.rows[0][:2] == ("mode", "setting"))
    for row in grid.rows[1:]:
        having = {mode for mode, declared in MODES.items() if row[1].strip("`") in names_of(declared)}
        assert having == set(re.findall(r"`(\w+)`", row[0])), row[1]


def test_the_page_on_architecture_names_the_files_that_import_ray() -> None:
    sentence = next(text for _, text in pages.sections("docs/architecture.md") if text.startswith("### Who imports Ray"))
    assert set(re.findall(r"`([\w/]+\.py)`", sentence)) == test_house.RAY_SHELLS


@pytest.mark.parametrize("name", [str(path.relative_to(pages.ROOT)) for path in sorted((pages.ROOT / "docs").rglob("*.png"))])
def test_every_image_is_shown(name: str) -> None:
    shown = [Path(target).name for page in pages.NAMES for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", pages.text_of(page))]
    assert Path(name).name in shown
