"""What the pages name is there: links and anchors, files, the catalogue, the keys of a study, attributes of the package."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pages
import pytest

from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.settings.plugins import GROUPS
from tests import test_house

ROOMS = "actors|algorithms|benchmarks|coordinator|examples|fedbo|objectives|surrogates|tests"


@pytest.mark.parametrize("name", [*pages.NAMES, *pages.RECORDS, *pages.PLUGINS])
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


def test_every_method_is_named_on_the_page_that_the_index_links() -> None:
    (grid,) = [grid for grid in pages.grids("docs/algorithms/index.md") if grid.rows[0][-1] == "page"]
    placed = {
        name: f"docs/algorithms/{linked[1]}"
        for row in grid.rows[1:]
        if (linked := re.search(r"\((\w+\.md)", row[-1]))
        for name in re.findall(r"`(\w+)`", row[0])
    }
    assert set(placed) == set(algorithms())
    for name, page in placed.items():
        assert name in pages.inline(page), f"{page} does not name {name}"


def test_the_words_of_what_messages_reveal_have_examples() -> None:
    (grid,) = [grid for grid in pages.grids("docs/algorithms/index.md") if grid.rows[0][0] == "`reveals`"]
    assert [row[0].strip("`") for row in grid.rows[1:]] == [*Reveals]
    for row in grid.rows[1:]:
        for name in re.findall(r"`(\w+)`", row[-1]):
            assert revealed_by(algorithms()[name].make()) == row[0].strip("`"), name


def test_the_page_on_architecture_lists_the_files_of_the_kernel() -> None:
    texts = [text for _, text in pages.sections("docs/architecture.md")]
    section = next(text for text in texts if text.startswith("## The kernel in one afternoon"))
    listed = re.findall(r"^\| `(\w+\.py)` \|", section, re.MULTILINE)
    files = {path.name for path in (pages.ROOT / "fedbo/coordinator/kernel").glob("*.py")} - {"__init__.py"}
    assert len(listed) == len(files) and set(listed) == files


def test_the_page_on_architecture_names_the_files_that_import_ray() -> None:
    sentence = next(text for _, text in pages.sections("docs/architecture.md") if text.startswith("### Who imports Ray"))
    assert set(re.findall(r"`([\w/]+\.py)`", sentence)) == test_house.RAY_SHELLS


@pytest.mark.parametrize("name", [str(path.relative_to(pages.ROOT)) for path in sorted((pages.ROOT / "docs").rglob("*.png"))])
def test_every_image_is_shown(name: str) -> None:
    shown = [Path(target).name for page in pages.NAMES for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", pages.text_of(page))]
    assert Path(name).name in shown
