"""Modules under their earlier names: the same modules, with a warning."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import pytest

import fedbo
from fedbo.moved import MOVED, RENAMED


@pytest.mark.parametrize("earlier", [*sorted(MOVED), "fedbo.results.result", "fedbo.world.fitting"])
def test_an_earlier_name_gives_the_module_with_a_warning(earlier: str) -> None:
    for name in [name for name in sys.modules if name == earlier or earlier.startswith(f"{name}.") and name != "fedbo"]:
        sys.modules.pop(name)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        exec(compile(f"import {earlier}", "theirs.py", "exec"), {})
    (warning,) = [one for one in found if str(one.message).startswith(f"{earlier} is deprecated")]
    assert warning.category is DeprecationWarning and warning.filename == "theirs.py"
    module, place = sys.modules[earlier], str(warning.message).rpartition(" ")[2]
    assert module is import_module(place) and module.__spec__ is not None and module.__spec__.name == place


@pytest.mark.parametrize("earlier", sorted(RENAMED))
def test_an_earlier_name_of_an_error_gives_the_error_with_a_warning(earlier: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"fedbo.{earlier} is deprecated; use fedbo.{RENAMED[earlier]}"):
        assert getattr(fedbo, earlier) is getattr(fedbo, RENAMED[earlier])
