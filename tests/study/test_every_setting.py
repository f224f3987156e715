"""Every setting of a study has an effect, or is refused where it has none: each key of the schema is changed in small studies.

A change shows in the events, in the observations or in the ledger. What shows nowhere must be refused, or stand in `NO_EFFECT`
with the reason why it is accepted all the same.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedbo.actors.storage.rows import read_table
from fedbo.coordinator.runtime.actor import Coordinator
from fedbo.execution.jobs import runs
from fedbo.study.document import with_value
from fedbo.study.schema import schema
from fedbo.study.study import StudyError, load_study

Loc = tuple[str | int, ...]
BASE: dict[str, Any] = {
    "study": {"name": "small", "seed": 3},
    "objective": {"name": "quadratic", "agents": 4, "noise": 0.01, "differences": {}},
    "agents": {"initial": 2},
    "budget": {"iterations": 4},
    "timing": {},
    "network": {},
    "availability": {},
    "exchange": {},
    "evaluation": {},
    "privacy": {},
}
ALONE, TOGETHER = {"name": "random"}, {"name": "fts", "features": 10}
# what a table needs so that its keys can be changed at all, by the beginning of the path
NEEDED: dict[str, dict[str, Any]] = {
    "exchange.buffered": {"k": 2},
    "exchange.first_k": {"k": 2},
    "fault.0.crash": {"at": 1.5},
    "fault.0.hang": {"at": 1.5, "duration": 1.0},
    "fault.0.slow": {"at": 1.5, "duration": 1.0},
    "fault.0.partition": {"at": 1.5, "duration": 1.0},
    "fault.0.coordinator": {"at": 1.5, "duration": 1.0},
    "fault.0.preemption": {"at": 1.5, "duration": 1.0},
}
# changes that show nowhere and are accepted, and why
NO_EFFECT = {
    r"agents\.checkpoint": "what a crash loses: crashes can be switched off without it",
    r"network\.(retry|attempts)": "what a lost transmission costs: losses can be switched off without it",
    r"network\..*|timing\.latency.*": "the world of methods that send nothing is often that of the others, for a comparison",
    r"evaluation\.(retries|failure)": "what a failed evaluation costs: whether one fails is not known before",
    r"evaluation\.time_limit": "as above",
    r"exchange\..*\.selection\.who": "a share of 1 asks everybody",
    r"exchange\..*\.staleness\..*": "nothing is stale in the rounds of so short a study",
    r"exchange\.first_k\.oldest": "as above",
    r"exchange\..*": "as of the network: methods that send nothing are often a control",
    r"availability\.(bernoulli|daily|markov|trace)\..*": "chance: nobody was away in so short a study",
    r"availability\.leaving": "refused where agents are always there; else chance",
    r"fault\.0\..*": "chance, or a fault that ends in time: it is there, and may strike",
    r"cluster\.rule": "where nobody waits there is no order",
    r"cluster\.copies\..*": "chance: nothing was slow in so short a study",
}


def tables() -> Iterator[tuple[Loc, str, str, Any]]:
    """List each key of the schema: the table, how it is called there, the key and its own schema."""
    whole = schema()

    def resolved(part: Any) -> Any:
        while "$ref" in part:
            part = {**whole["$defs"][part["$ref"].rpartition("/")[2]], **{k: v for k, v in part.items() if k != "$ref"}}
        return part

    def walk(part: Any, loc: Loc, called: str) -> Iterator[tuple[Loc, str, str, Any]]:
        for option in map(resolved, part.get("anyOf", [part])):
            properties = option.get("properties", {})
            names = [value["const"] for value in map(resolved, properties.values()) if "const" in value]
            place = ".".join([called, *names])
            for key, value in properties.items():
                value = resolved(value)
                if any("properties" in resolved(one) for one in value.get("anyOf", [value])):
                    yield from walk(value, (*loc, key), f"{place}.{key}")
                elif "const" not in value:
                    yield loc, place, key, {**value, "options": [resolved(one) for one in value.get("anyOf", [value])]}

    for name in ("objective", "agents", "timing", "network", "availability", "exchange", "evaluation", "privacy", "cluster"):
        part = resolved(whole["properties"][name])
        if name == "objective":
            part = next(one for one in map(resolved, part["anyOf"]) if one["title"] == "quadratic")["properties"]["differences"]
            yield from walk(resolved(part), ("objective", "differences"), "objective.differences")
        else:
            yield from walk(part, (name,), name)
    yield from walk(resolved(whole["properties"]["fault"]["items"]), ("fault", 0), "fault.0")


def values(options: list[Any], default: Any) -> Iterator[Any]:
    """Choose other values for a key; none for files, lists and names of things that are not there."""
    for one in options:
        if "enum" in one:
            yield from (value for value in one["enum"] if value != default)
        elif one.get("type") == "boolean":
            yield not default
        elif one.get("type") == "integer":
            yield from ((default + 1, default + 2) if isinstance(default, int) else (1, 2))
        elif one.get("type") == "number":
            yield from ((default * 1.5 + 0.25, default * 0.5) if isinstance(default, int | float) else (0.5, 2.0))


def started(loc: Loc, called: str, algorithm: dict[str, Any]) -> dict[str, Any]:
    """Return a study that has the table of a key."""
    document: Any = {**BASE, "algorithm": [algorithm]}
    needed = next((table for start, table in NEEDED.items() if called.startswith(start)), {})
    named = called.split(".")[len([step for step in loc if isinstance(step, str)]) + (loc[0] == "fault") :]
    if loc[0] == "fault":
        document["fault"] = [{"kind": named[0], **needed}] if named else []
        if named == ["preemption"]:
            document["cluster"] = {"workers": 2}
    elif loc[0] == "cluster":
        document["cluster"] = {"workers": 2}
    elif called.split(".")[1:2] and loc[0] in ("exchange", "availability"):
        key = "mode" if loc[0] == "exchange" else "model"
        document[loc[0]] = {key: called.split(".")[1], **needed}
    elif named:
        document = with_value(document, (*loc, "model"), named[0])
    return dict(document)


@cache
def _result_of(text: str) -> tuple[str, ...]:
    study = load_study(eval(text))  # the text of a dictionary, so that it can be cached
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for run in runs(study, Path(folder)):
            Coordinator().run(run)
        for path in sorted(Path(folder).rglob("*.parquet")):
            found.append(f"{path.name} {read_table(path).to_pydict()!r}")
    return tuple(found)


def effect(document: dict[str, Any], changed: dict[str, Any]) -> str:
    try:
        before = _result_of(repr(document))
    except StudyError as error:
        return f"not tried: {error}"
    try:
        return "differs" if _result_of(repr(changed)) != before else "nothing"
    except StudyError:
        return "refused"


KEYS = [(loc, called, key, options["options"]) for loc, called, key, options in tables()]


def test_the_keys_of_every_table_are_found() -> None:
    found = {f"{called}.{key}" for _, called, key, _ in KEYS}
    for key in (
        *("objective.differences.length_scale", "network.link", "exchange.barrier.staleness.decay", "timing.decision.power"),
        *("exchange.barrier.selection.share", "evaluation.wait", "privacy.secure_aggregation.bits", "fault.0.lie.how"),
    ):
        assert key in found, sorted(found)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [ALONE, TOGETHER], ids=lambda table: table["name"])
@pytest.mark.parametrize(("loc", "called", "key", "options"), KEYS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_setting_has_an_effect_or_is_refused(
    loc: Loc, called: str, key: str, options: list[Any], algorithm: dict[str, Any]
) -> None:
    document = started(loc, called, algorithm)
    try:
        default: Any = load_study(document).document()
    except StudyError as error:
        pytest.skip(str(error))
    for step in loc:
        default = default[step] if isinstance(step, int) else default.get(step, {})
    tried = []
    for value in values(options, default.get(key)):
        found = effect(document, with_value(document, (*loc, key), value))
        if found in ("differs", "refused"):
            return
        tried.append((value, found))
    reasons = [reason for pattern, reason in NO_EFFECT.items() if re.fullmatch(pattern, f"{called}.{key}")]
    assert not tried or reasons, f"{called}.{key}: {tried}"


SENDING = {"algorithm": [ALONE, TOGETHER]}
# what is refused, at which place, and a study in which it has an effect
IDLE: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"fault": [{"kind": "lie"}]}, "[[fault]] 1 kind = 'lie'", SENDING),
    (
        {"privacy": {"secure_aggregation": {}}},
        "[privacy] secure_aggregation",
        {"algorithm": [ALONE, {"name": "fts_de"}], "exchange": {"mode": "barrier"}},
    ),
    (
        {"objective": {**BASE["objective"], "differences": {"length_scale": 0.4}}},
        "[objective] differences.length_scale = 0.4",
        {"objective": {**BASE["objective"], "differences": {"length_scale": 0.4, "likeness": 0.5}}},
    ),
    (
        {"exchange": {"selection": {"share": 0.5}}},
        "[exchange] selection.share = 0.5",
        {"exchange": {"selection": {"share": 0.5, "who": "poisson"}}},
    ),
    (
        {"exchange": {"staleness": {"decay": 0.9}}},
        "[exchange] staleness.decay = 0.9",
        {"exchange": {"staleness": {"decay": 0.9, "weight": "hinge"}}},
    ),
    (
        {"timing": {"decision": {"power": 2.0}}},
        "[timing] decision.power = 2.0",
        {"timing": {"decision": {"power": 2.0, "coefficient": 0.1}}},
    ),
    ({"evaluation": {"wait": "all"}}, "[evaluation] wait = 'all'", {"evaluation": {"wait": "all", "parallel": 2}}),
    (
        {"cluster": {"workers": 2, "rule": "priority"}},
        "[cluster] rule = 'priority'",
        {"cluster": {"workers": 2, "rule": "priority", "priorities": [1.0, 2.0, 3.0, 4.0]}},
    ),
    (
        {"availability": {"leaving": "lost"}},
        "[availability] leaving = 'lost'",
        {"availability": {"leaving": "lost", "model": "markov"}},
    ),
]


@pytest.mark.parametrize(("idle", "place", "more"), IDLE, ids=[place for _, place, _ in IDLE])
def test_a_setting_without_effect_is_refused_with_a_remedy(idle: dict[str, Any], place: str, more: dict[str, Any]) -> None:
    document = {**BASE, "algorithm": [ALONE], **idle}
    with pytest.raises(StudyError) as refused:
        load_study(document)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"study: {place}: has no effect: ") and "; " in line
    load_study(document, derived=True)
    load_study({**document, **more})
    if more == SENDING:  # in those cells of a sweep that send it has an effect
        load_study(
            {**document, "algorithm": [{"name": "fts", "label": "one"}], "sweep": {"algorithm.one.name": ["fts", "random"]}}
        )
    with pytest.raises(StudyError, match="has no effect"):
        load_study({**document, "sweep": {"study.seed": [1, 2]}})
