"""What the messages of a study's algorithms reveal."""

from __future__ import annotations

from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.study.study import Study


def revealed(study: Study) -> dict[str, Reveals]:
    """Return what each algorithm declares, by label; the worst of all cells of a sweep."""
    found: dict[str, Reveals] = {}
    for cell in study.cells():
        for table in cell.study.algorithm:
            declared = revealed_by(table.make())
            if table.title not in found or declared.exceeds(found[table.title]):
                found[table.title] = declared
    return found
