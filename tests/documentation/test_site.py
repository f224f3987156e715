"""The site and the release: every page has a place, the reference has all that is public, and versions agree."""

from __future__ import annotations

import fnmatch
import re
import runpy
import subprocess
import tomllib

import pages
import pytest
import yaml

import fedbo

PROJECT = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONF = runpy.run_path(str(pages.ROOT / "docs" / "conf.py"))


@pytest.mark.parametrize("name", [name for name in pages.NAMES if name != "README.md"])
def test_every_page_has_a_place_in_the_table_of_contents(name: str) -> None:
    listed = [pattern for section in CONF["CONTENTS"].values() for pattern in section]
    assert any(fnmatch.fnmatch(name.removesuffix(".md"), pattern) for pattern in listed)


def test_every_place_in_the_table_of_contents_is_a_page() -> None:
    names = [name.removesuffix(".md") for name in (*pages.NAMES, *pages.RECORDS, *pages.PLUGINS, "CHANGELOG.md")]
    for section in CONF["CONTENTS"].values():
        for pattern in section:
            assert fnmatch.filter(names, pattern), pattern


@pytest.mark.parametrize("name", [*pages.NAMES, *pages.RECORDS, "CHANGELOG.md"])
def test_no_heading_skips_a_level(name: str) -> None:
    levels = [len(found) for found in re.findall(r"^(#+) ", pages.prose(name), re.MULTILINE)]
    assert levels[0] == 1, "Sphinx takes the title from the first heading"
    assert all(below <= above + 1 for above, below in zip(levels, levels[1:], strict=False)), levels


def test_the_reference_has_all_that_is_public_and_nothing_that_is_not_there() -> None:
    named = re.findall(r"^\.\. auto\w+:: ([\w.]+)", pages.text_of("docs/reference.md"), re.MULTILINE)
    told = re.findall(r"^### `fedbo\.([\w.]+)`$", pages.text_of("docs/reference/python.md"), re.MULTILINE)
    assert {*told} >= {*fedbo.__all__} - {"errors"}
    for name in named:
        module, _, thing = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[thing]), thing), name


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((pages.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_image_is_the_one_that_the_job_on_kubernetes_names() -> None:
    image = f"REGISTRY/{PROJECT['name']}:{PROJECT['version']}"
    assert image in (pages.ROOT / "docs" / "cluster" / "rayjob.yaml").read_text(encoding="utf-8")
    lines = (pages.ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert image in lines.splitlines()[0]
    for copied in re.findall(r"^COPY (?!--from)(\S+)", lines, re.MULTILINE):
        assert (pages.ROOT / copied).exists()


def test_the_script_of_a_release_is_one_and_the_changelog_begins_with_this_version() -> None:
    subprocess.run(["bash", "-n", str(pages.ROOT / ".ci" / "release")], check=True)
    first = re.search(r"^## (\S+)", (pages.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None and first[1] == PROJECT["version"]
