"""A study that is right, as text, and ways of making it wrong in one place."""

from __future__ import annotations

RIGHT = """\
[study]
name = "right"

[objective]
name = "quadratic"
agents = 4

[budget]
iterations = 5

[[algorithm]]
name = "random"
"""

SEED, NAME, AGENTS, BUDGET = 'name = "right"', 'name = "quadratic"', "agents = 4", "iterations = 5"


def changed(old: str, new: str) -> str:
    """Replace one piece of the right study."""
    assert RIGHT.count(old) == 1
    return RIGHT.replace(old, new)


def added(text: str) -> str:
    """Append to the right study."""
    return f"{RIGHT}\n{text}\n"
