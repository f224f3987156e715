"""Notebooks of the main tutorials, made of their Markdown: files become `%%writefile` cells, commands `%%bash` cells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "tutorials"
NAMES = ("first_study", "stragglers", "several_sites")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def notebook(markdown: str) -> str:
    """Return a tutorial as a notebook, without outputs."""
    cells, end = list[dict[str, Any]](), 0
    for block in _FENCE.finditer(markdown):
        code = _code(block[1], block[2])
        if code is not None:
            cells += [_cell("markdown", markdown[end : block.start()]), _cell("code", code)]
            end = block.end()
    cells.append(_cell("markdown", markdown[end:]))
    kept = [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(each for each in cells if each["source"])]
    return (
        json.dumps({"cells": kept, "metadata": _KERNEL, "nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False)
        + "\n"
    )


def _code(language: str, text: str) -> str | None:
    """Return the code of a cell; None for what is only shown, such as printed output."""
    named = re.match(r"# (\w+\.(?:toml|py))\n", text)
    if named:
        return f"%%writefile {named[1]}\n{text}"
    if language == "sh":  # a command that fails ends the cell with an error
        return f"%%bash -e\n{text}"
    return text if language == "python" else None


def _cell(kind: str, text: str) -> dict[str, Any]:
    extra = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, **extra, "source": text.strip().splitlines(keepends=True)}


def notebook_of(name: str) -> str:
    """Return the notebook of a tutorial of `NAMES`."""
    return notebook((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
