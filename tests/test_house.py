"""The house itself: which room may import which, that no package is forgotten, and that a new file is found by itself."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP = "top"  # the modules right in fedbo/
LINKS = {"actors", "coordinator", "objectives"}  # at the top of the repository, into fedbo/; nothing is imported through them
# The rooms, each above all that it may import: there is no arrow upwards.
CORE = {"settings", "objectives", "surrogates", "algorithms", "actors", "coordinator"}
# For rooms that can go: all of the main package that is no shell of the command line.
ABOVE = CORE | {"study", "analysis", "execution", "figures", "commands", "callbacks", "call_arguments", "functions"}
MAY_IMPORT: dict[str, set[str]] = {
    "settings": set(),
    "surrogates": set(),
    "objectives": {"settings"},
    "algorithms": {"settings", "surrogates"},
    "actors": {"settings", "algorithms", "objectives"},
    "coordinator": {"settings", "actors", "algorithms", "surrogates"},
    "fast": CORE,
    "study": CORE,
    "analysis": CORE | {"study"},
    "execution": CORE | {"study", "analysis"},
    "figures": CORE | {"study", "analysis"},
    "commands": CORE | {"study", "analysis", "execution", "figures", "callbacks"},
    "figures/page": CORE | {"study", "analysis", "commands", "call_arguments"},
    "privacy": ABOVE,
    "sites": ABOVE | {"privacy"},
    "stopping": ABOVE,
    "tuning": ABOVE | {"sites", "stopping"},
    "optuna": CORE | {"analysis", "execution", "study", "tuning"},
    "workers": ABOVE,
    "submit": ABOVE,
    "lab": ABOVE,
    "testing": ABOVE | {TOP},
    TOP: CORE | {"study", "analysis", "execution", "figures", "sites", "tuning", "lab", "commands"},
}
# Within a room: what each of its folders may import from the others. "." is the top of the room, or all modules there; any
# other word is a folder, or one module at the top. A folder always may import from itself.
WITHIN: dict[str, dict[str, str]] = {
    "settings": {".": ""},
    "objectives": {
        "datasets": "base",
        "models": "base space",
        "derived": "base outcome space models",
        "tables": "base space",
        "typed_spaces": "base space",
        "applications": "base outcome space datasets models typed_spaces",
        "classifiers": "base space datasets models",
        "coupled": "base space",
        "synthetic": "base outcome space models",
        "tasks": "base outcome space datasets typed_spaces",
        ".": "datasets models derived typed_spaces",
    },
    "surrogates": {"compiled": "", ".": "compiled"},
    "algorithms": {
        "components": "base catalog reveals streams gp ts",
        "admm": "components base catalog reveals streams",
        "bandits": "components base catalog reveals streams",
        "collaborative": "components base catalog reveals streams gp",
        "learned_prior": "components base catalog reveals streams gp",
        "private": "collaborative learned_prior components base catalog reveals streams ts",
        ".": "components",
    },
    "actors": {
        "storage": "",
        "evaluation": "storage agent_state late_ray task",
        ".": "storage evaluation",
    },
    "coordinator": {
        "environment": "",
        "logged": "",
        "kernel": "endless environment errors logged selection staleness",
        "idle": "environment kernel logged",
        ".": "environment kernel logged",
        "runtime": ". environment kernel logged",
    },
    "fast": {".": ""},
    "study": {"agents": ". environment", "environment": ". agents", ".": "agents environment"},
    "analysis": {"records": "", ".": "records"},
    "execution": {".": ""},
    "figures": {"kinds": ".", "reports": "", "page": ". reports", ".": ""},
    "privacy": {".": ""},
    "sites": {".": ""},
    "stopping": {".": ""},
    "submit": {".": ""},
    "tuning": {".": ""},
    "optuna": {".": ""},
    "workers": {".": ""},
    "testing": {".": ""},
    "lab": {
        "fork": "",
        "why": "fork",
        "twins": "",
        "benchmarking": "",
        "worth": "",
        ".": "",
    },
    "commands": {"export": ".", "watch": ".", ".": ""},
    TOP: {".": ""},
}


def _files(root: Path) -> list[Path]:
    return [path for path in sorted((root / "fedbo").rglob("*.py")) if "examples" not in path.relative_to(root).parts]


RAY_SHELLS = {
    "fedbo/workers/ray_pool.py",
    "fedbo/actors/late_ray.py",
    "fedbo/actors/nodes.py",
    "fedbo/actors/remote.py",
    "fedbo/actors/supervision.py",
    "fedbo/coordinator/runtime/actor.py",
    "fedbo/execution/cluster.py",
    "fedbo/execution/hosts.py",
    "fedbo/tuning/ray_scheduler.py",
    "fedbo/tuning/ray_searcher.py",
    "fedbo/execution/workers.py",
}


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Give what stands right below a node and can hold an import; expressions cannot, and are most of a tree."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        below = getattr(node, field, ())
        yield from below if isinstance(below, list) else ()


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file imports, those inside functions and for types too."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _imported_by(path: Path) -> list[str]:
    return _imports_in(path.read_text(encoding="utf-8"))


@cache
def _imports_in(text: str) -> list[str]:
    return list(_imports(_parsed(text)))


@cache
def _classes_in(text: str) -> list[tuple[str, int]]:
    """List the classes of a file, those in functions and classes too, with their lines."""
    found, nodes = list[tuple[str, int]](), list[ast.AST]([_parsed(text)])
    while nodes:
        node = nodes.pop()
        nodes.extend(_statements(node))
        if isinstance(node, ast.ClassDef):
            found.append((node.name, node.lineno))
    return sorted(found, key=lambda one: one[1])


@cache
def _place(root: Path, name: str) -> tuple[str, str, str]:
    """Return room, folder within it and module of a name that begins with `fedbo`."""
    parts = name.split(".")[1:]
    room = parts.pop(0) if parts and (root / "fedbo" / parts[0]).is_dir() else TOP
    place = root / "fedbo" / ("" if room == TOP else room)
    folder = parts.pop(0) if room != TOP and parts and (place / parts[0]).is_dir() else "."
    place = place / folder
    return room, folder, parts[0] if parts and (place / f"{parts[0]}.py").exists() else "__init__"


def _wrong(root: Path, path: Path, name: str) -> str:
    """Say what is wrong with an import; empty if nothing is."""
    room, *inner = path.relative_to(root / "fedbo").parts
    if not inner:
        room, inner = TOP, [room]
    folder = inner[0] if len(inner) > 1 else "."
    if name.startswith("."):
        return "is relative"
    if name.split(".")[0] in LINKS:
        return "would load a second copy"
    if name.split(".")[0] != "fedbo":
        return ""
    if room not in WITHIN:
        return f"{room}/ is not in the table of this test"
    other, theirs, module = _place(root, name)
    if other != room:
        allowed = MAY_IMPORT.get(f"{room}/{folder}", MAY_IMPORT[room])
        return "" if other in allowed or (other == TOP and module in allowed) else f"is not for {room}/"
    if folder not in WITHIN[room]:
        return f"{room}/{folder}/ is not in the table of this test"
    allowed = set(WITHIN[room][folder].split())
    fine = theirs == folder or theirs in allowed or (theirs == "." and module in allowed)
    return "" if fine else f"is not for {room}/{folder}/"


def _graph(root: Path) -> dict[str, set[str]]:
    """Map each module to those that it imports anywhere, also inside functions and for types."""
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path in _files(root)}
    named = {name.removesuffix(".__init__"): path for name, path in files.items()}
    edges = {}
    for name, path in named.items():
        imported = (one if one in named else one.rpartition(".")[0] for one in _imported_by(path))
        edges[name] = {one for one in imported if one in named and one != name}
    return edges


def circle(root: Path) -> list[str]:
    """List modules of which each imports the one before; empty if none import each other."""
    try:
        TopologicalSorter(_graph(root)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def wrong_arrows(root: Path) -> list[str]:
    """List all imports that the tables above do not allow."""
    found = []
    for path in _files(root):
        for name in _imported_by(path):
            if wrong := _wrong(root, path, name):
                found.append(f"{path.relative_to(root)}: {name} {wrong}")
    return found


def bare(root: Path) -> list[str]:
    """List the folders that are no packages."""
    folders = {path.parent for path in _files(root)}
    return [f"{folder.relative_to(root)}/ has no __init__.py" for folder in folders if not (folder / "__init__.py").exists()]


def test_no_room_imports_what_stands_above_it() -> None:
    assert wrong_arrows(ROOT) == []


KERNEL_FILES = 20
# What the kernel leaves to others, which implement its ports.
NOT_IN_KERNEL = ("privacy", "workers", "stopping", "fast")


def test_the_kernel_is_small_and_knows_nothing_of_what_implements_its_ports() -> None:
    files = sorted((ROOT / "fedbo" / "coordinator" / "kernel").glob("*.py"))
    assert 0 < len(files) <= KERNEL_FILES
    imported = {name for path in files for name in _imported_by(path)}
    assert [name for name in sorted(imported) if name.startswith(tuple(f"fedbo.{room}" for room in NOT_IN_KERNEL))] == []


def test_no_files_import_each_other() -> None:
    assert circle(ROOT) == []


def test_one_command_compiles_all_routines() -> None:
    """Routines are compiled where their module is imported, so the command imports all of these, and none inside a function."""
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8") for path in _files(ROOT)}
    todo, seen = ["fedbo.execution.compiling", "fedbo.fast.window_kernel"], set[str]()  # the second where its room is there
    while todo:
        if (name := todo.pop()) in seen or name not in named:
            continue
        seen.add(name)
        for node in _parsed(named[name]).body:
            if isinstance(node, ast.Import):
                todo.extend(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                todo.extend([str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)])
    routines = {name for name, text in named.items() if "\n@compiled(" in text}
    assert len(routines) > 5 and routines <= seen, routines - seen


# Class names that must stand for two things, each with the reason: none.
SHARED: dict[str, str] = {}


def doubled(root: Path) -> dict[str, list[str]]:
    """List the class names that more than one class has, and where; a leading underscore is no difference."""
    places: dict[str, list[str]] = {}
    for path in _files(root):
        for name, line in _classes_in(path.read_text(encoding="utf-8")):
            places.setdefault(name.lstrip("_"), []).append(f"{path.relative_to(root)}:{line}")
    return {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED}


def test_a_class_name_means_one_thing() -> None:
    assert doubled(ROOT) == {}


MOST_BY_POSITION = 3  # fields of a record that may be taken apart, or made of an unpacked sequence
MOST_ARGUMENTS = 5  # that a record is made of without their names
# Files that may, each with the reason.
BY_POSITION = {
    "fedbo/actors/storage/record_types.py": "makes any named tuple of a checkpoint without a call of its class",
    "fedbo/algorithms/bandits/trees/box_tree.py": "a node is a plain tuple, of which a tree has a hundred thousand",
    "fedbo/coordinator/logged/kinds.py": "makes lines of the event log, five for each step, without a call of their class",
    "fedbo/fast/windows.py": "the rows of its columns are plain lists and tuples",
    "fedbo/algorithms/streams.py": "the counter of Philox is four words",
}
COMPILED = ("fedbo/surrogates/compiled/", "fedbo/fast/window_kernel.py")  # numba passes tuples of arrays between functions


@cache
def _records(root: Path) -> frozenset[str]:
    """Name the named tuple classes and dataclasses with more fields than `MOST_BY_POSITION`."""
    found = set()
    for path in _files(root):
        for node in _nodes(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.ClassDef) and _is_record(node):
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                count = sum("ClassVar" not in ast.unparse(field.annotation) for field in fields)
                found |= {node.name} if count > MOST_BY_POSITION else set()
    return frozenset(found)


def _is_record(node: ast.ClassDef) -> bool:
    above = [*node.bases, *node.decorator_list]
    return any(isinstance(name, ast.Name) and name.id in ("NamedTuple", "dataclass") for one in above for name in ast.walk(one))


@cache
def _nodes(text: str) -> tuple[ast.AST, ...]:
    """Return the nodes of a file that the rules about records look at: a fifth of all."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.Attribute, ast.Call, ast.Assign, ast.For, ast.comprehension)
    return tuple(node for node in ast.walk(_parsed(text)) if isinstance(node, kinds))


@cache
def _makers(root: Path) -> frozenset[str]:
    """Name the records, and the functions that return one wherever a function has this name."""
    returned: dict[str, set[str]] = {}
    for path in _files(root):
        for node in _nodes(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                returned.setdefault(node.name, set()).add(ast.unparse(node.returns))
    return _records(root) | {name for name, kinds in returned.items() if kinds <= _records(root)}


def _called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""


def _taken_apart(node: ast.AST) -> Iterator[ast.AST]:
    """Give what an assignment or a loop takes apart into more names than `MOST_BY_POSITION`."""
    pairs: list[tuple[ast.AST, ast.AST]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, (ast.For, ast.comprehension)):
        pairs = [(node.target, node.iter)]
    return (value for target, value in pairs if isinstance(target, ast.Tuple) and len(target.elts) > MOST_BY_POSITION)


def by_position(root: Path) -> list[str]:
    """List where records are taken apart or made by position; what has a name counts as a record when it is taken apart."""
    found = []
    for path in _files(root):
        place = path.relative_to(root).as_posix()
        for node in () if place in BY_POSITION else _nodes(path.read_text(encoding="utf-8")):
            if wrong := _by_position(root, place, node):
                found.append(f"{place}:{getattr(node, 'lineno', '?')} {wrong}")
    return found


def _by_position(root: Path, place: str, node: ast.AST) -> str:
    """Say what is wrong with an expression, an assignment or a loop; empty if nothing is."""
    if isinstance(node, ast.Attribute) and node.attr in ("__new__", "_make"):
        return "makes a tuple without its class" if ast.unparse(node.value) in {"tuple", *_records(root)} else ""
    if isinstance(node, ast.Call):
        unpacks = any(isinstance(part, ast.Starred) for part in node.args)
        unnamed = unpacks or (len(node.args) > MOST_ARGUMENTS and not place.startswith(COMPILED))
        return f"makes {_called(node)} by position" if unnamed and _called(node) in _records(root) else ""
    held = (ast.Name, ast.Attribute, ast.Subscript)
    apart = [] if place.startswith(COMPILED) else [*_taken_apart(node)]
    wrong = any(isinstance(value, held) or _called(value) in _makers(root) for value in apart)
    return "takes a record apart by position" if wrong else ""


def test_records_are_read_and_made_by_field() -> None:
    assert by_position(ROOT) == []
    used = {place for place in BY_POSITION if (ROOT / place).exists()}
    assert used == set(BY_POSITION), "a file of this table is gone"


def test_what_is_taken_apart_or_made_by_position_is_seen(tmp_path: Path) -> None:
    (tmp_path / "fedbo").mkdir()
    (tmp_path / "fedbo" / "planted.py").write_text(
        "from typing import NamedTuple\n"
        "class Long(NamedTuple):\n    a: int\n    b: int\n    c: int\n    d: int = 0\n"
        "class Short(NamedTuple):\n    a: int\n    b: int\n"
        "def long() -> Long:\n    return Long(a=1, b=2, c=3)\n"
        "record = long()\n"
        "a, b, c, d = record\n"
        "a, b, c, _ = long()\n"
        "made = Long(*record)\n"
        "made = tuple.__new__(Long, record)\n"
        "for a, b, c, d in made.rows:\n    pass\n"
        "a, b = Short(*(1, 2))\n"
        "a, b, c, d = zip(*[])\n"
        "made = Long(1, 2, 3, 4, 5, 6)\n",
        encoding="utf-8",
    )
    assert {line.split(" ")[0].split(":")[1] for line in by_position(tmp_path)} == {"13", "14", "15", "16", "17", "21"}


def test_only_the_shells_import_ray() -> None:
    late = "fedbo.actors.late_ray.ray"
    using = [path for path in _files(ROOT) if any(name.split(".")[0] == "ray" or name == late for name in _imported_by(path))]
    found = {path.relative_to(ROOT).as_posix() for path in using}
    assert found == RAY_SHELLS


def test_every_folder_is_a_package_of_this_tree_and_is_typed() -> None:
    import fedbo

    assert bare(ROOT) == [] and (ROOT / "fedbo" / "py.typed").exists()
    place = Path(str(fedbo.__file__)).resolve().parent
    assert place == ROOT / "fedbo" or "site-packages" in place.parts, "fedbo is that of another tree"
    folders = {path.name for path in (ROOT / "fedbo").iterdir() if path.is_dir()}
    assert not folders & {*fedbo.__all__}, "a folder of this name would hide a function"


def test_the_links_at_the_top_lead_into_the_package() -> None:
    for name in LINKS:
        assert (ROOT / name).is_symlink() and (ROOT / name).readlink() == Path("fedbo", name)


PLANTED = {
    "fedbo/study/planted.py": ("from fedbo.execution.runner import run_study\n", "is not for study/"),
    "fedbo/analysis/planted.py": ("from fedbo.figures.plot import draw\n", "is not for analysis/"),
    "fedbo/figures/planted.py": ("from fedbo import Result\n", "is not for figures/"),
    "fedbo/figures/reports/planted.py": ("from fedbo.figures.page.page import write\n", "is not for figures/reports/"),
    "fedbo/tuning/deeper/planted.py": ("import fedbo.cli\n", "is not for tuning/"),
    "fedbo/attic/planted.py": ("import fedbo.study.study\n", "is not in the table"),
    "fedbo/coordinator/environment/planted.py": (
        "def f():\n    import fedbo.coordinator.kernel.core\n",
        "is not for coordinator/environment/",
    ),
    "fedbo/privacy/planted.py": ("from fedbo.sites.keys import PublicKey\n", "is not for privacy/"),
    "fedbo/coordinator/planted.py": ("import fedbo.coordinator.runtime.actor\n", "is not for coordinator/."),
    "fedbo/actors/storage/planted.py": ("from fedbo.coordinator.kernel.core import Core\n", "is not for actors/"),
    "fedbo/algorithms/components/planted.py": ("from fedbo.algorithms.fts import FTS\n", "is not for algorithms/components/"),
    "fedbo/objectives/datasets/planted.py": ("from ..base import require\n", "is relative"),
    "fedbo/surrogates/planted.py": ("from objectives.base import require\n", "would load a second copy"),
}


def test_the_rules_see_what_is_planted_in_any_folder(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fedbo", tmp_path / "fedbo", ignore=shutil.ignore_patterns("__pycache__", "examples"))
    for name, (code, _) in PLANTED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, encoding="utf-8")
    found = wrong_arrows(tmp_path)
    for name, (_, wrong) in PLANTED.items():
        assert any(line.startswith(f"{name}:") and wrong in line for line in found), name
    assert {line.split(":")[0] for line in found} == set(PLANTED)
    assert "fedbo/attic/ has no __init__.py" in bare(tmp_path)
    (tmp_path / "fedbo" / "study" / "planted.py").write_text("def f():\n    import fedbo.study.limits\n", encoding="utf-8")
    (tmp_path / "fedbo" / "study" / "limits.py").write_text("import fedbo.study.planted\n", encoding="utf-8")
    assert {"fedbo.study.limits", "fedbo.study.planted"} <= {*circle(tmp_path)}
    (tmp_path / "fedbo" / "actors" / "storage" / "twice.py").write_text("class _Study: ...\n", encoding="utf-8")
    assert list(doubled(tmp_path)) == ["Study"]


def test_help_does_not_wait_for_heavy_libraries() -> None:
    code = "import sys, fedbo, fedbo.cli; print([m for m in ('ray', 'sklearn', 'matplotlib', 'scipy') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_new_algorithm_is_one_new_file_that_nothing_else_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedbo.algorithms
    from fedbo.algorithms.catalog import algorithms

    (tmp_path / "coin.py").write_text(
        "from fedbo.algorithms.catalog import Entry\n"
        "from fedbo.algorithms.random import Random\n"
        "ALGORITHMS = {'coin': Entry(Random)}\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(fedbo.algorithms, "__path__", [*fedbo.algorithms.__path__, str(tmp_path)])
    algorithms.cache_clear()
    try:
        assert "coin" in algorithms()
    finally:
        algorithms.cache_clear()
        sys.modules.pop("fedbo.algorithms.coin", None)


def test_every_example_is_a_valid_study() -> None:
    from fedbo.algorithms.catalog import catalogue
    from fedbo.objectives.datasets.data import DataMissingError
    from fedbo.settings.errors import in_plugin
    from fedbo.study.document import read
    from fedbo.study.study import load_study

    studies = [path for path in sorted((ROOT / "examples").rglob("*.toml")) if "paper" not in read(path)]
    assert len(studies) >= 3
    for path in studies:
        names = [table["name"] for table in read(path)["algorithm"]]
        if any(in_plugin("algorithm", name) and name not in catalogue() for name in names):
            continue  # the tests of the plug-in load it
        try:
            load_study(path, trust=True)  # which are ours
        except DataMissingError:
            pytest.skip(f"{path.name} needs a data set that is not here: set FEDBO_DATA to the folder that has it")
