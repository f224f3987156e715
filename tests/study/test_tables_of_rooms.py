"""Tables that rooms declare: without the room, one that asks for nothing is none, and any other is refused with a remedy."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from fedbo.settings.rooms import study_tables
from fedbo.study.base import OfRoom, Table
from fedbo.study.document import StudyError
from fedbo.study.study import load_study
from fedbo.study.study_tables import StudyTables


class Lacking(Table):
    attic: Annotated[Any, OfRoom("attic")] = OfRoom("attic").default


@pytest.mark.parametrize("given", [{}, {"attic": {}}, {"attic": {"dusty": False}}, {"attic": None}])
def test_a_table_that_asks_for_nothing_needs_no_room(given: dict[str, Any]) -> None:
    assert Lacking.model_validate(given).attic is None


@pytest.mark.parametrize("given", [{"dusty": True}, [{"dusty": False}], 1])
def test_a_table_without_its_room_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError, match="needs a part of fedbo that is not installed here; remove the table"):
        Lacking.model_validate({"attic": given})


def test_the_study_knows_the_key_of_each_table_that_a_room_declares() -> None:
    assert {*study_tables()} <= {*StudyTables.model_fields}


@pytest.mark.parametrize("name", ["dp_fts", "dp_share_best"])
def test_a_private_method_is_refused_without_the_room_of_privacy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = {
        "study": {"name": "private"},
        "objective": {"name": "quadratic", "agents": 4},
        "budget": {"iterations": 3},
        "algorithm": [{"name": name}],
    }
    load_study(study)
    monkeypatch.setattr("fedbo.study.check.study_tables", lambda: {})
    with pytest.raises(StudyError, match=r"\[\[algorithm\]\] 1 name = .*: sends private messages, which needs a part of fedbo"):
        load_study(study)
