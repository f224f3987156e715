"""What the modules of packages declare by name; the packages are listed at run time, so that a new name is a new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

T = TypeVar("T")


class DeclaredNames(Mapping[str, T]):
    """The items of the dictionary `variable` in each module of some packages, in alphabetical order of their names.

    A name is looked up first in the modules with whose names it begins, such as `fts_noise` in `fts`; all others are imported
    only where it is not there, and for a list of the names.
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
    def _modules(self) -> list[str]:
        paths = {package: importlib.import_module(package).__path__ for package in self._packages}
        listed = [each for package, path in paths.items() for each in pkgutil.iter_modules(path, f"{package}.")]
        return [each.name for each in listed if not each.ispkg]

    @cached_property
    def _all(self) -> dict[str, T]:
        found = {name: item for module in self._modules for name, item in self._declared(module).items()}
        return dict(sorted(found.items()))

    def _look_up(self, name: str) -> T:
        for module in self._modules:
            if name.startswith(module.rpartition(".")[2]) and name in (found := self._declared(module)):
                return found[name]
        return self._all[name]

    def _declared(self, module: str) -> Mapping[str, T]:
        found: Mapping[str, T] = getattr(importlib.import_module(module), self._variable, {})
        return found
