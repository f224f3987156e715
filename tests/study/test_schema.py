"""The JSON Schema of study files: what is right is valid by it, and what is wrong in a single key is not."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from right_study import added
from test_wrong_studies import WRONG

from fedbo.cli import main
from fedbo.settings.errors import in_plugin
from fedbo.study.schema import schema
from tests.random_studies.studies import draw_study

jsonschema = pytest.importorskip("jsonschema")  # the extra `dev` has it by Ray
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SINGLE = ("no such key", "no such table", "must be a ", "must be one of", "must be true")  # of one key, whatever the others say


@pytest.fixture(scope="module")
def valid() -> Any:
    """Give what says whether a document is valid."""
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.long
def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def _examples() -> Iterator[Path]:
    for path in sorted(EXAMPLES.rglob("*.toml")):
        if "study" in tomllib.loads(path.read_text(encoding="utf-8")):
            yield path


@pytest.mark.parametrize("path", [*_examples()], ids=lambda path: path.stem)
def test_every_example_is_valid(valid: Any, path: Path) -> None:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    installed = [table for table in document["algorithm"] if not in_plugin("algorithm", table["name"])]
    assert [error.message for error in valid.iter_errors({**document, "algorithm": installed})] == []


def test_random_studies_and_their_resolved_forms_are_valid(valid: Any, tmp_path: Path) -> None:
    for seed in range(12):
        document, study = draw_study(seed, tmp_path)
        for each in (document, study.document()):
            assert [error.message for error in valid.iter_errors(each)] == [], seed


def _wrong() -> Iterator[Any]:
    for text, words in WRONG:
        remedy = words.partition(": ")[2]
        if remedy.startswith(SINGLE) and "finite" not in remedy and "[sweep]" not in words:
            yield pytest.param(text, id=words[:60])


@pytest.mark.parametrize("text", [*_wrong()])
def test_what_is_wrong_in_one_key_is_not_valid(valid: Any, text: str) -> None:
    assert not valid.is_valid(tomllib.loads(text))


def test_a_class_that_is_named_by_its_place_is_valid_with_any_settings(valid: Any) -> None:
    assert valid.is_valid(tomllib.loads(added('[[algorithm]]\nname = "my.module:Search"\ncolour = 3')))


def test_the_command_prints_it_as_json(valid: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(schema()))
    assert printed["$defs"]["TimingModel"]["anyOf"][0]["properties"]["model"] == {"const": "constant"}
