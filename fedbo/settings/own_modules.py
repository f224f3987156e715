"""Modules of users: executed from their source, executed again once a file has changed, and hashed as they were executed.

This holds for the files that a study names, and for what they import from their own folder or package. Installed libraries and
`__main__` stay as Python imported them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
import sysconfig
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_SOURCE = "__fedbo_source__"  # in a module: the bytes of its file that were executed
_STARTED = time.time() - 1.0  # as far as a file's time may be coarse
_files: set[str] = set()  # that are executed from their source
_names: dict[str, None] = {}  # of modules that have or had such a source, in order: a process may have thousands of others


class _Loader(SourceFileLoader):
    """Executes a file as it is now: Python's caches do not distinguish two versions of the same second and length."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the file in a module."""
        source = vars(module)[_SOURCE] = self.get_data(self.path)
        _names[module.__name__] = None
        exec(compile(source, self.path, "exec", dont_inherit=True), vars(module))


class _Finder:
    """Finds the modules that are executed from their source."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of such a module; None for any other."""
        found = PathFinder.find_spec(name, path, target)
        if found is None or found.origin not in _files:
            return None
        inner = found.submodule_search_locations
        return spec_from_file_location(name, found.origin, loader=_Loader(name, found.origin), submodule_search_locations=inner)


def import_own(name: str) -> ModuleType:
    """Import a module that a study or an entry point names."""
    module = sys.modules.get(name)
    if module is not None and _SOURCE in vars(module):
        return module
    importlib.invalidate_caches()
    spec = find_spec(name) if module is None else None
    file = _own(getattr(module, "__file__", None) if spec is None else spec.origin)
    if file is not None and name != "__main__":
        _note(file)
    return importlib.import_module(name)


def renew() -> None:
    """Forget the modules whose file, or that of a module that they import, has changed; the next import executes them again."""
    noted = [(Path(str(module.__file__)), module) for module in _executed()]
    changed = {file for file, module in noted if _read(file) != vars(module)[_SOURCE]}
    for module in [module for file, module in noted if changed and changed & _sources(file).keys()]:
        _forget(module)


def _forget(module: ModuleType) -> None:
    for name in [name for name, each in [*sys.modules.items()] if each is module]:
        package, _, short = name.rpartition(".")
        del sys.modules[name]
        if package in sys.modules and vars(sys.modules[package]).get(short) is module:
            delattr(sys.modules[package], short)  # or "from package import module" would find it there


def _executed() -> list[ModuleType]:
    found = map(sys.modules.get, [*_names])
    return [each for each in found if isinstance(each, ModuleType) and _SOURCE in vars(each)]


def is_earlier(function: object) -> bool:
    """Return whether a function is of an earlier version of a module, which has been read again or will be."""
    known, name = getattr(function, "__globals__", {}), getattr(function, "__qualname__", "<")
    present = sys.modules.get(known.get("__name__", ""))
    return _SOURCE in known and name.isidentifier() and (present is None or known is not vars(present))


def digest_of(name: str, file: Path | None) -> str | None:
    """Return the SHA-256 of a module as it was executed, with the modules of its folder that it imports; None without a file.

    A module that was not executed, at `file`, counts as it is now. Without modules beside it, this is the hash of the file.
    """
    module = sys.modules.get(name)
    found = file or getattr(module, "__file__", None)
    if name == "__main__" or found is None:
        return None
    sources = _sources(own) if (own := _own(found)) is not None else {Path(found): _read(Path(found))}
    hashes = [hashlib.sha256(source).hexdigest() for source in sources.values() if source is not None]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest() if hashes else None


def _note(file: Path) -> None:
    """Let a file and those that it imports be executed from their source; forget a module that Python compiled from another."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0, _Finder)
    sources = _sources(file)
    _files.update(map(str, sources))
    ends = tuple(path.name for path in sources)
    for name, module in [*sys.modules.items()]:
        place = str(vars(module).get("__file__")) if isinstance(module, ModuleType) else ""
        if not place.endswith(ends) or (path := Path(place)) not in sources or _SOURCE in vars(module) or name == "__main__":
            continue
        same = _as_compiled(module, path, sources[path])
        vars(module)[_SOURCE] = sources[path] if same else b""  # its functions are of an earlier version: `is_earlier`
        _names[name] = None
        if not same:
            _forget(module)


def _as_compiled(module: ModuleType, file: Path, source: bytes | None) -> bool:
    """Return whether Python compiled a module from this source: a file older than this process, or the source of its cache."""
    try:
        if file.stat().st_mtime < _STARTED:
            return True
        cached = SourcelessFileLoader(module.__name__, str(vars(module).get("__cached__"))).get_code(module.__name__)
        return bool(cached == compile(source or b"", str(file), "exec", dont_inherit=True))
    except (OSError, ValueError, EOFError, ImportError, SyntaxError):
        return False


def _own(file: str | Path | None) -> Path | None:
    """Return the absolute path of a user's module; None for those of Python, of libraries and of fedbo."""
    if file is None or not str(file).endswith(".py"):
        return None
    path = Path(file).absolute()
    libraries = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    library = "site-packages" in path.parts or "dist-packages" in path.parts or str(path).startswith(libraries)
    return None if library or path.is_relative_to(Path(__file__).parents[1]) else path


def _sources(file: Path) -> dict[Path, bytes | None]:
    """Return a file and, sorted, those that it imports from its folder or package, however far: as executed, or as they are."""
    executed = {Path(str(each.__file__)): vars(each)[_SOURCE] for each in _executed()}
    found: dict[Path, bytes | None] = {}
    left = [file]
    while left:
        path = left.pop()
        if path not in found:
            found[path] = executed[path] if path in executed else _read(path)
            left += _imported(path, found[path] or b"")
    return {file: found.pop(file), **dict(sorted(found.items()))}


@lru_cache(maxsize=256)
def _imported(file: Path, source: bytes) -> tuple[Path, ...]:
    """Return the files that a file imports from its folder or package."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found = set[Path]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        level, module = getattr(node, "level", 0), getattr(node, "module", None)
        folder = file.parents[level - 1] if level else root
        for alias in node.names:
            parts = [*(module.split(".") if module else ()), *alias.name.split(".")]
            for length in range(1, len(parts) + 1):
                place = folder.joinpath(*parts[:length])
                found |= {path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file()}
    return tuple(sorted(path for each in found if (path := _own(each)) is not None and path != file))


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
