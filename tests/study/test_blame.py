"""Which setting an error belongs to: the error's `path` leads to it, never its words."""

from __future__ import annotations

import pickle
import tomllib

import pytest
from right_study import RIGHT, added

from fedbo.algorithms.base import Problem
from fedbo.algorithms.random import Random
from fedbo.objectives.functions import Quadratic
from fedbo.settings.errors import SettingError, invalid, unknown_choice
from fedbo.study.document import StudyError
from fedbo.study.study import load_study


class Reworded(SettingError):
    """A setting's error with a message that neither begins with its name nor ends with what came."""

    def __str__(self) -> str:
        return "not 7, please: agents of this kind can ask for a few points at a time"


class Mute(ValueError):
    """An error without a key."""


def told(text: str) -> str:
    """Load a wrong study and give what is said of it."""
    with pytest.raises(StudyError) as caught:
        load_study(tomllib.loads(text))
    return str(caught.value)


def refuse(monkeypatch: pytest.MonkeyPatch, kind: type[object], error: Exception, method: str = "__post_init__") -> None:
    """Let a class refuse its settings."""

    def refusing(self: object, *_: Problem) -> None:
        raise error

    monkeypatch.setattr(kind, method, refusing)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Reworded("queries", "must be few", 7, "or all"), "[[algorithm]] 1 queries = 7: must be few; or all"),
        (unknown_choice("queries", "7", ("1", "2")), "[[algorithm]] 1 queries = 7: no queries '7'; available: 1, 2"),
        (SettingError("batch", "must be 1", 2), "[[algorithm]] 1: batch must be 1, not 2, the default; set batch"),
        (Mute("queries must be few, not 7"), "[[algorithm]] 1: queries must be few, not 7"),
        (Mute("queries = 7 is invalid: few"), "[[algorithm]] 1: queries = 7 is invalid: few"),
        (Mute("no queries '7'"), "[[algorithm]] 1: no queries '7'"),
    ],
    ids=["reworded", "choice", "not given", "name first", "refused", "no such"],
)
def test_an_error_is_put_where_its_path_leads_and_without_one_at_its_table(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, Random, error)
    assert told(added("queries = 7")) == f"study: {line}"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Reworded("queries", "must be few"), "[[algorithm]] 1 queries = 7: must be few"),
        (SettingError("name", "needs a friend"), "[[algorithm]] 1 name = 'random': needs a friend"),
        (Mute("queries must be few, not 7"), "[[algorithm]] 1: queries must be few, not 7"),
        (Mute(""), "[[algorithm]] 1: "),
    ],
    ids=["reworded", "its name", "name first", "nothing said"],
)
def test_so_is_one_that_shows_when_messages_are_declared(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, Random, error, "upload")
    assert told(added("queries = 7")) == f"study: {line}"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (invalid("agents", 4, "take 5"), "[objective] agents = 4: is invalid; take 5"),
        (invalid("spread", 1.0, "take 0"), "[objective] spread: is invalid; take 0"),
        (Mute("agents = 4 is invalid: take 5"), "[objective]: agents = 4 is invalid: take 5"),
    ],
    ids=["given", "not given", "without a key"],
)
def test_so_is_one_of_a_federation(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, Quadratic, error)
    assert told(RIGHT) == f"study: {line}"


def test_errors_of_settings_come_out_of_another_process_as_they_went_in() -> None:
    errors = (
        SettingError("k", "must be at least 1", 0, "1 is all"),
        unknown_choice("late", "dorp", ("drop", "carry")),
        invalid("agents", 0, "take at least 1"),
    )
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.path, again.remedy) == (type(error), str(error), error.path, error.remedy)
    assert [str(error) for error in errors] == [
        "k must be at least 1, not 0; 1 is all",
        "no late 'dorp'; did you mean 'drop'? available: carry, drop",
        "agents = 0 is invalid: take at least 1",
    ]
