"""Modules under their earlier names: the same modules, with a warning."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import pytest

import fedbo
from fedbo.moved import MOVED, RENAMED


def _moved(name: str) -> bool:
    return any(f"{name}.".startswith(f"{earlier}.") for earlier in MOVED)


@pytest.mark.parametrize("earlier", [*sorted(MOVED), "fedbo.results.result", "fedbo.world.fitting"])
def test_an_earlier_name_gives_the_module_with_a_warning(earlier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if _moved(name) and f"{earlier}.".startswith(f"{name}.")]:
        monkeypatch.delitem(
            sys.modules, name
        )  # a package that has not moved stays: a second copy of it would go on in its place
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
