"""The notebooks of the tutorials equal their Markdown, and run from an empty folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pages
import pytest
from generate_notebooks import NAMES, notebook, notebook_of

TUTORIALS = pages.ROOT / "docs" / "tutorials"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_equals_its_markdown(name: str) -> None:
    written = (TUTORIALS / f"{name}.ipynb").read_text(encoding="utf-8")
    assert written == notebook_of(name), f"{name}.ipynb is out of date; call make reference"


@pytest.mark.parametrize("name", NAMES)
def test_every_block_of_a_tutorial_is_a_cell_of_its_notebook(name: str) -> None:
    cells = ["".join(cell["source"]) for cell in json.loads(notebook_of(name))["cells"] if cell["cell_type"] == "code"]
    shown = [block.text for block in pages.blocks("python", "sh", "toml") if block.page == f"docs/tutorials/{name}.md"]
    assert len(cells) == len(shown) > 2
    assert all(text in cell for text, cell in zip(shown, cells, strict=True))


def test_files_are_written_and_output_is_only_shown() -> None:
    made = json.loads(notebook("# A\n\n```toml\n# a.toml\nx = 1\n```\n\n```text\nshown\n```\nEnd.\n"))["cells"]
    assert [cell["cell_type"] for cell in made] == ["markdown", "code", "markdown"]
    assert "".join(made[1]["source"]) == "%%writefile a.toml\n# a.toml\nx = 1"
    assert "shown" in "".join(made[2]["source"])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.ray] * (name == "several_sites")) for name in NAMES])
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    read = nbformat.reads(notebook_of(name), as_version=4)
    nbformat.validate(read)
    client = nbclient.NotebookClient(read, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert (tmp_path / "runs").is_dir()
