"""Small changes of the source of functions: operators, constants, conditions, values that are returned, and calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "fedbo/coordinator",
    "fedbo/actors",
    "fedbo/algorithms",
    "fedbo/fast",
    "fedbo/privacy",
    "fedbo/sites",
    "fedbo/stopping",
    "fedbo/workers",
)

COMPARED: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


class Mutant(NamedTuple):
    """One change: the file, the function at the top of it or of a class, the line, and which of the file's changes it is."""

    path: str
    function: str
    line: int
    number: int
    words: str


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Give the functions of a module and the methods of its classes."""

    def within(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                if not any("compiled" in ast.unparse(decorator) for decorator in node.decorator_list):
                    yield prefix + node.name, node  # a compiled one stays what it was compiled from
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{prefix}{node.name}.")

    return within(tree.body, "")


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Give what a node may be changed into, as words and the new node; it has the old one's place."""
    text = ast.unparse(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind in COMPARED[type(node.ops[0])]:
            yield "comparison", ast.Compare(node.left, [kind()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in CALCULATED:
        yield "arithmetic", ast.BinOp(node.left, CALCULATED[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in CALCULATED:
        yield "arithmetic", ast.AugAssign(node.target, CALCULATED[type(node.op)](), node.value)
    elif isinstance(node, ast.BoolOp):
        yield "boolean", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.If):
        yield "condition", ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.IfExp):
        yield "condition", ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and text != "return None":
        yield "return", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "removed call", ast.Pass()


class _Changer(ast.NodeTransformer):
    """Counts the possible changes of one function, and makes the one that is wanted."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted, self.found = wanted, list[tuple[int, str]]()

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)):  # words, and what is made but once
            return node
        new = node
        for words, change in _changes(node):
            if len(self.found) == self.wanted:
                new = ast.copy_location(change, node)
            first, second = (ast.unparse(one).splitlines()[0] for one in (node, change))
            self.found.append((getattr(node, "lineno", 0), f"{words}: {first}  ->  {second}"))
        if new is not node:
            return ast.fix_missing_locations(new)
        if isinstance(node, ast.FunctionDef):
            node.body = [self.visit(one) for one in node.body]
            return node
        return self.generic_visit(node)


def mutants(rooms: Iterable[str] = ROOMS) -> list[Mutant]:
    """List all changes of all functions of rooms."""
    found = []
    for path in (path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))):
        for name, node in _functions(ast.parse(path.read_text(encoding="utf-8"))):
            changer = _Changer()
            changer.visit(node)
            relative = path.relative_to(ROOT).as_posix()
            found += [Mutant(relative, name, line, number, words) for number, (line, words) in enumerate(changer.found)]
    return found


def changed(mutant: Mutant) -> ast.Module:
    """Give the changed module."""
    tree = ast.parse((ROOT / mutant.path).read_text(encoding="utf-8"))
    node = next(node for name, node in _functions(tree) if name == mutant.function)
    _Changer(mutant.number).visit(node)
    return tree
