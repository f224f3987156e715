"""Words that public functions take as arguments, for type checkers and for the functions that check them."""

from __future__ import annotations

from typing import Literal

Mode = Literal["min", "max"]
SearchKind = Literal["history", "importance", "slices", "parallel"]
FigureKind = Literal[
    Literal["overview", "curves", "regret", "timeline", "trouble", "privacy", "optima", "fronts", "feasible", "sweep"],
    SearchKind,
]
Each = Literal["algorithm", "agent", "all"]
