"""Every Python block of the pages: what it calls takes what it is given, and what needs neither Ray nor minutes runs.

The blocks of a page run one after the other, as a reader would type them, in a folder of its own. Blocks
with `<!-- not run: REASON -->` above them are compiled and checked against the package's signatures only.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pages
import pytest

import fedbo

SHOWN = pages.blocks("python")
# What a reader has and a test has not, or what would take long: each must stand on the page as it stands here.
CHANGED: dict[str, dict[str, str]] = {
    "docs/tuning.md": {'"/shared/meeting"': '"meeting"', "n_trials=50, n_jobs=4": "n_trials=4"},
}
BEFORE = {
    "docs/what-if.md": """
import fedbo
fedbo.run({"study": {"name": "first", "seed": 1, "replicates": 2}, "objective": {"name": "branin", "agents": 3},
           "budget": {"iterations": 14}, "algorithm": [{"name": "random"}], "exchange": {"mode": "barrier"},
           "timing": {"evaluation": {"model": "exponential", "mean": 1.0}}}, out="runs/first")
""",
    "docs/tuning.md": """
import fedbo
__import__("pathlib").Path("old.csv").write_text("rate,layers,kind,accuracy\\n0.01,2,a,0.9\\n")
def accuracy(config, agent):
    return 0.9
def objective(trial):
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return trial.suggest_float("rate", 1e-5, 1e-1, log=True) + trial.suggest_int("layers", 1, 6) + (kind == "a")
space = {"rate": fedbo.log(1e-5, 1e-1), "layers": (1, 6), "kind": ["a", "b"]}
""",
}


class Signatures(ast.NodeVisitor):
    """Follows names that stand for the package's things, and binds the arguments of calls to their signatures."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known, self.calls = known, 0

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "fedbo":
                self.known[alias.asname or "fedbo"] = import_module(alias.name if alias.asname else "fedbo")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and node.module.split(".")[0] == "fedbo":
            for alias in node.names:
                self.known[alias.asname or alias.name] = getattr(import_module(node.module), alias.name)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Name):
            self.known[node.targets[0].id] = self._what(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called = self._thing(node.func)
        if called is None or any(isinstance(each, ast.Starred) for each in node.args):
            return
        names = {word.arg: None for word in node.keywords if word.arg is not None}
        self.calls += 1
        inspect.signature(called).bind(*self._itself(node.func), *node.args, **names)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        self._thing(node)

    def _thing(self, node: ast.expr) -> Any:
        """Give what a name or an attribute stands for in the package, None where it is none of it; AttributeError."""
        if isinstance(node, ast.Name):
            found = self.known.get(node.id)
            return found if inspect.isclass(found) or inspect.isfunction(found) or isinstance(found, ModuleType) else None
        if isinstance(node, ast.Attribute):
            owner = self._what(node.value) if not self._is_instance(node.value) else self.known[node.value.id].kind  # type: ignore[attr-defined]
            if owner is None or isinstance(owner, Instance):
                return None
            if inspect.isclass(owner) and not hasattr(owner, node.attr) and _is_set(owner, node.attr):
                return None
            found = getattr(owner, node.attr)
            return found if callable(found) or isinstance(found, ModuleType) else None
        return None

    def _what(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call):
            called = self._thing(node.func)
            if inspect.isclass(called):
                return Instance(called)
            told = _returned(called) if called is not None else None
            return Instance(told) if inspect.isclass(told) and told.__module__.startswith("fedbo") else None
        return self._thing(node)

    def _is_instance(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and isinstance(self.known.get(node.id), Instance)

    def _itself(self, node: ast.expr) -> list[None]:
        """Give what stands for `self` in a call of a method."""
        return [None] if isinstance(node, ast.Attribute) and self._is_instance(node.value) else []


class Instance:
    """Stands for an instance of a class."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind


def _is_set(owner: type[Any], name: str) -> bool:
    """Say whether instances get an attribute that the class has not, from it or from a class above it."""
    own = [kind for kind in owner.__mro__ if kind.__module__.startswith("fedbo")] or [owner]
    return any(name in vars(kind).get("__annotations__", {}) or f"self.{name}" in inspect.getsource(kind) for kind in own)


def _returned(called: Any) -> Any:
    told = getattr(called, "__annotations__", {}).get("return")
    return getattr(fedbo, told, None) if isinstance(told, str) and told.isidentifier() else told


@pytest.mark.parametrize("page", sorted({block.page for block in SHOWN}))
def test_what_the_blocks_of_a_page_call_takes_what_they_give(page: str) -> None:
    known: dict[str, Any] = {}
    for block in SHOWN:
        if block.page == page:
            tree = ast.parse(block.text, filename=str(block))
            try:
                Signatures(known).visit(tree)
            except (TypeError, AttributeError) as error:
                pytest.fail(f"{block}: {error}")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import fedbo\nfedbo.rum('x')", "no attribute 'rum'"),
        ("import fedbo\nfedbo.run('x', override=[])", "override"),
        ("import fedbo\nr = fedbo.Result.open('x')\nr.plot(knd='x')", "knd"),
        (
            "import fedbo\nr = fedbo.Result.open('x')\nr.plot(kind='x', path=1, cell=3).a\nr.summery()",
            "summery",
        ),
        ("from fedbo.callbacks import MLfow", "MLfow"),
    ],
)
def test_a_call_that_cannot_be_is_found(code: str, words: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=words):
        Signatures({}).visit(ast.parse(code))


def _runs(block: pages.Block) -> bool:
    """Say whether a block is run here: an `example` has a test of its own, where what it gives belongs."""
    return not block.marked("not run") and not block.marked("example")


def _script(page: str) -> str:
    parts = [BEFORE.get(page, "")]
    for block in SHOWN:
        if block.page != page or not _runs(block):
            continue
        first, _, rest = block.text.partition("\n")
        if first.startswith("# ") and first.endswith(".py"):
            parts.append(f"__import__('pathlib').Path({first[2:]!r}).write_text({block.text!r})\nimport {first[2:-3]}\n")
        else:
            parts.append(block.text.replace("from __future__ import annotations\n", ""))
    code = "\n\n".join(parts)
    for before, after in CHANGED.get(page, {}).items():
        assert before in code, f"{page} has no {before} any more"
        code = code.replace(before, after)
    return f"from __future__ import annotations\n{code}"


PAGES = sorted(
    {block.page for block in SHOWN if _runs(block) and "/tutorials/" not in block.page}
)  # they have a test of their own


# Each takes some seconds; what these show has tests of its own besides.
LATER = {f"docs/{name}.md" for name in ("coming_from", "plugins", "reference/python", "report", "tuning", "what-if")}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.long] * (page in LATER)) for page in PAGES])
def test_the_blocks_of_a_page_run_one_after_the_other(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before, main = set(sys.modules), ModuleType("__main__")  # where functions that are named by their places are looked for
    monkeypatch.setitem(sys.modules, "__main__", main)
    try:
        exec(compile(_script(page), page, "exec"), vars(main))
    finally:
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_few_blocks_are_not_run() -> None:
    left_out = [str(block) for block in SHOWN if block.marked("not run")]
    assert len(left_out) <= 14, left_out


def test_the_reference_says_what_each_argument_of_tune_is_for() -> None:
    named = {word for code in re.findall(r"`([^`]+)`", inspect.getdoc(fedbo.tune) or "") for word in re.findall(r"\w+", code)}
    assert {*inspect.signature(fedbo.tune).parameters} <= named
