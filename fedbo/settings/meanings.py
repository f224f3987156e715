"""The meaning of a setting: the string below its field, from which reference pages and the JSON Schema are generated.

    @dataclass(frozen=True)
    class Search:
        queries: Annotated[int, Ge(1)] = 1
        "Points of a decision."

Python discards these strings, as it does comments. So they are read from the source, at their first use.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Texts = Mapping[str, str]  # by the name of a field; empty where a field has none of its own


def meanings(declared: Any) -> Texts:
    """Return the meaning of each field of a class, its bases' included, by name.

    A field without a string has that of its base, or that of the first field of this name in the same module, since settings
    such as `probability` mean the same in many classes.
    """
    found: dict[str, str] = {}
    for base in reversed(declared.__mro__):
        texts = _texts(base.__module__)
        for name, text in texts.get(base.__qualname__, {}).items():
            shared = (other[name] for other in texts.values() if other.get(name))
            if meaning := text or found.get(name) or next(shared, ""):
                found[name] = meaning
    return found


@cache
def _texts(module: str) -> Mapping[str, Texts]:
    """Return the fields of all classes of a module with the strings below them; empty where its source is missing."""
    file = getattr(sys.modules.get(module), "__file__", None)
    source = None if file is None else Path(file).with_name(f"{module.rpartition('.')[2]}.py")  # of a compiled module too
    if source is None or not source.is_file():
        return {}
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {node.name: dict(_fields(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            yield field.target.id, " ".join(str(text).split())
