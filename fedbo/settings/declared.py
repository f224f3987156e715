"""The names that the modules of packages declare. Packages are listed at run time, so that a new name needs only a new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fedbo.settings.plugins import PluginError
from fedbo.settings.rooms import package_folders

T = TypeVar("T")


def declaring(package: str, variable: str) -> list[str]:
    """List a package, and all those below it, where a module has this variable. Nothing names them: each may be deleted."""
    root = Path(str(importlib.import_module(package).__file__)).parent
    return [
        ".".join((package, *folder.relative_to(root).parts))
        for folder, files in package_folders(root)
        if any(f"\n{variable}" in (folder / name).read_text(encoding="utf-8") for name in files if name.endswith(".py"))
    ]


class DeclaredNames(Mapping[str, T]):
    """The items of the dictionary `variable` in each module of some packages, sorted by name.

    A name is looked up first in modules whose names are a prefix of it, such as `fts_noise` in `fts`, then in those whose text
    has it in quotes. All other modules are imported only if it is not there, or for the list of all names. A module that cannot
    be imported affects only its own names.
    """

    def __init__(self, packages: Sequence[str], variable: str) -> None:
        self._packages, self._variable = packages, variable
        self._found: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _modules(self) -> dict[str, Path]:
        """Return the files of all modules."""
        folders = [(package, folder) for package in self._packages for folder in importlib.import_module(package).__path__]
        listed = [(package, Path(folder), each) for package, folder in folders for each in pkgutil.iter_modules([folder])]
        return {f"{package}.{each.name}": folder / f"{each.name}.py" for package, folder, each in listed if not each.ispkg}

    def _likely(self, name: str) -> Iterator[str]:
        """Yield the modules that may declare a name."""
        named = [module for module in self._modules if name.startswith(module.rpartition(".")[2])]
        yield from named
        for module, file in self._modules.items():
            if module not in named and file.is_file() and f'"{name}"' in file.read_text(encoding="utf-8"):
                yield module

    @cached_property
    def _all(self) -> dict[str, T]:
        return dict(sorted(self._imported[0].items()))

    @cached_property
    def _imported(self) -> tuple[dict[str, T], list[str]]:
        """Import all modules; return their declarations, and one line for each fault."""
        found, first, broken = dict[str, T](), dict[str, str](), list[str]()
        for module in self._modules:
            try:
                declared = self._declared(module)
            except PluginError as error:
                broken.append(str(error))
                continue
            for name, item in declared.items():
                if name in found:
                    broken.append(f"{module} declares '{name}', which {first[name]} declares too; rename one of them")
                first.setdefault(name, module)
                found.setdefault(name, item)
        return found, broken

    def broken(self) -> list[str]:
        """Return one line for each fault in the modules."""
        return self._imported[1]

    def _look_up(self, name: str) -> T:
        fault: PluginError | None = None
        for module in self._likely(name):
            try:
                found = self._declared(module)
            except PluginError as error:
                fault = error
                continue
            if name in found:
                return found[name]
        if name not in self._all and fault is not None:
            raise fault
        return self._all[name]

    def _declared(self, module: str) -> Mapping[str, T]:
        try:
            found: Mapping[str, T] = getattr(importlib.import_module(module), self._variable, {})
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise PluginError(f"{module} cannot be imported: {words}; mend or remove its file") from error
        return found
