"""Earlier names of modules and errors, which can still be imported for one version, with a `DeprecationWarning`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "fedbo.benchmarking": "fedbo.lab.benchmarking",
    "fedbo.estimates": "fedbo.analysis.estimates",
    "fedbo.evaluated": "fedbo.tuning.evaluated",
    "fedbo.optuna_sampler": "fedbo.tuning.optuna_sampler",
    "fedbo.page": "fedbo.figures.page",
    "fedbo.papers": "fedbo.lab.papers",
    "fedbo.plots": "fedbo.figures",
    "fedbo.ray_scheduler": "fedbo.tuning.ray_scheduler",
    "fedbo.ray_searcher": "fedbo.tuning.ray_searcher",
    "fedbo.records": "fedbo.analysis.records",
    "fedbo.reports": "fedbo.figures.reports",
    "fedbo.results": "fedbo.analysis",
    "fedbo.results.fork": "fedbo.lab.fork.result",
    "fedbo.statistics": "fedbo.analysis.statistics",
    "fedbo.tabulation": "fedbo.lab.tabulation",
    "fedbo.tuning.spaces": "fedbo.objectives.typed_spaces.spaces",
    "fedbo.world": "fedbo.lab.twins",
}
# Earlier names of errors, with the present ones.
RENAMED = {
    "Damaged": "DamagedError",
    "DataDamaged": "DataDamagedError",
    "DataMissing": "DataMissingError",
    "Immeasurable": "MeasurementError",
    "LibraryMissing": "LibraryMissingError",
    "OtherFormat": "FormatError",
    "Refused": "SettingError",
    "UnknownChoice": "SettingError",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds modules by their earlier names. It comes first, since the folder of a package would load a second copy."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of a module that has moved, None for any other."""
        return ModuleSpec(name, self, is_package=True) if _place(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its new name."""
        module = import_module(_place(spec.name))
        self._own = module.__spec__
        warnings.warn(f"{spec.name} is deprecated; import {_place(spec.name)}", DeprecationWarning, stacklevel=2)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own specification, which the import machinery replaced."""
        module.__spec__ = self._own


def _place(name: str) -> str:
    if not name.startswith("fedbo."):
        return ""
    for earlier in sorted(MOVED, key=len, reverse=True):
        if name == earlier or name.startswith(f"{earlier}."):
            return MOVED[earlier] + name.removeprefix(earlier)
    return ""


def install() -> None:
    """Enable imports of modules by their earlier names."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
