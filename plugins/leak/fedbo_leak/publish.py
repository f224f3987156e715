"""Write what is published of the table of all methods, from its cells.

    python -m fedbo_leak.publish FOLDER

FOLDER is that of `python -m fedbo_leak.table --out FOLDER`. This writes the table into README.md, its figure, and the words
that `fedbo list` shows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from fedbo_leak.listed import MEASURED
from fedbo_leak.table import FEDERATIONS, Cell, draw, kept, lines_of, measured_words

PLUGIN = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- the table begins -->", "<!-- the table ends -->"


def sentence(found: Sequence[Cell]) -> str:
    """Say how much was measured, and what is missing."""
    seeds = sorted({cell.method.runs for cell in found})
    names = [*dict.fromkeys(cell.method.algorithm for cell in found)]
    there = {(cell.federation, cell.method.algorithm) for cell in found}
    whole = [one for one in FEDERATIONS if all((one, name) in there for name in names)]
    words = f"{len(names)} methods in {len(whole)} federations ({', '.join(f'`{one}`' for one in whole) or 'none'})"
    words += f", {' or '.join(map(str, seeds))} seeds each, ten decisions"
    parts = {one: sum((one, name) in there for name in names) for one in FEDERATIONS if one not in whole}
    lacking = ", ".join(f"{count} of them in `{one}`" for one, count in parts.items() if count)
    return f"{words}{f'; {lacking}' if lacking else ''} (`python -m fedbo_leak.table --out FOLDER`):"


def publish(found: Sequence[Cell], to: Path) -> None:
    """Write the table into the page of a folder, and its figure beside it."""
    page = to / "README.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [BEGIN, "", sentence(found), "", *lines_of(found), "", END]
    page.write_text(before + "\n".join(lines) + after, encoding="utf-8")
    draw(found, to / "leakage.png")


def words_of(found: Sequence[Cell]) -> str:
    """Return the file of the words that `fedbo list` shows, with the command that measured them."""
    document = {"command": "python -m fedbo_leak.table --out FOLDER", "cells": len(found), "methods": measured_words(found)}
    return json.dumps(document, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish the cells of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    found = [*kept(parser.parse_args(arguments).folder / "cells.jsonl").values()]
    publish(found, PLUGIN)
    MEASURED.write_text(words_of(found), encoding="utf-8")


if __name__ == "__main__":
    main()
