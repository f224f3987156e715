"""Names that modules of a package declare: which modules are imported for them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fedbo.settings.declared import DeclaredNames
from fedbo.settings.plugins import PluginError


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeclaredNames[int]:
    package = tmp_path / "declaring"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "coin.py").write_text("NAMES = {'coin': 1, 'coin_noise': 2}\n")
    (package / "others.py").write_text("NAMES = {'dice': 4, 'coins': 3}\n")
    (package / "nothing.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("declaring", "declaring.coin", "declaring.others", "declaring.nothing"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return DeclaredNames(("declaring",), "NAMES")


def test_a_name_that_begins_like_its_module_needs_no_other(names: DeclaredNames[int]) -> None:
    assert (names["coin"], names["coin_noise"]) == (1, 2)
    assert "declaring.others" not in sys.modules


def test_any_other_name_is_found_in_whatever_module_it_is(names: DeclaredNames[int]) -> None:
    assert (names["coins"], names["dice"]) == (3, 4)
    assert "cards" not in names


def test_names_are_listed_in_alphabetical_order(names: DeclaredNames[int]) -> None:
    assert (list(names), len(names)) == (["coin", "coin_noise", "coins", "dice"], 4)


def test_a_module_that_cannot_be_imported_takes_only_its_own_names_with_it(names: DeclaredNames[int], tmp_path: Path) -> None:
    (tmp_path / "declaring" / "half.py").write_text("NAMES = {'half'")
    (tmp_path / "declaring" / "twice.py").write_text("NAMES = {'dice': 6}")
    assert list(names) == ["coin", "coin_noise", "coins", "dice"] and names["dice"] == 4
    half, twice = names.broken()
    assert re.match(r"declaring\.half cannot be imported: SyntaxError: .*; mend or remove its file$", half)
    assert twice == "declaring.twice declares 'dice', which declaring.others declares too; rename one of them"
    with pytest.raises(PluginError, match="declaring.half cannot be imported"):
        names["half"]
    assert "cards" not in names
