"""A sweep over good values: what it replaces need not be good, and what lists hold is found by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fedbo.study.document import locate, with_value
from fedbo.study.study import StudyError, load_study

STUDY: dict[str, Any] = {
    "study": {"name": "swept"},
    "objective": {"name": "quadratic", "agents": 6},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "dp_fts_de", "share": 0.5}, {"name": "ts"}],
    "exchange": {"mode": "barrier"},
    "fault": [{"kind": "loss", "probability": 0.1}],
    "group": [{"name": "slow", "agents": [1]}],
    "cluster": {"worker": [{"name": "spot"}, {"name": "own", "count": 2}]},
}
# a value that is refused, and two that are good
REPLACED = [
    ("exchange.mode", "immediate", ["barrier", "deadline"]),
    ("exchange.mode", "no such mode", ["barrier", "deadline"]),
    ("algorithm.dp_fts_de.share", 3.0, [1.0, 0.5]),
    ("algorithm.ts.name", "no such algorithm", ["ts", "random"]),
    ("objective.agents", 0, [4, 5]),
    ("budget.iterations", -1, [2, 3]),
    ("fault.loss.probability", 7.0, [0.1, 0.2]),
    ("fault.loss.kind", "no such fault", ["loss", "corruption"]),
    ("group.slow.agents", [77], [[0], [1, 2]]),
    ("cluster.worker.spot.count", 0, [1, 2]),
    ("privacy.epsilon_max", -1.0, [2.0, 4.0]),
]


def put(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = with_value(document, locate(document, key), value)
    return found


@pytest.mark.parametrize(("key", "bad", "good"), REPLACED, ids=lambda value: str(value))
def test_a_value_that_a_sweep_replaces_need_not_be_good(key: str, bad: Any, good: list[Any]) -> None:
    document = {
        **STUDY,
        "fault": [{"kind": "loss", "label": "loss"}],
        "algorithm": [STUDY["algorithm"][0], {"name": "ts", "label": "ts"}],
    }
    wrong = put(document, key, bad)
    with pytest.raises(StudyError):
        load_study(wrong)
    cells = load_study({**wrong, "sweep": {key: good}}).cells()
    assert [cell.values[key] for cell in cells] == good
    for cell, value in zip(cells, good, strict=True):
        assert cell.study.document() == load_study(put(document, key, value)).document()
    with pytest.raises(StudyError, match="sweep"):
        load_study({**wrong, "sweep": {key: [good[0], bad]}})
    with pytest.raises(StudyError):
        load_study({**wrong, "sweep": {"study.seed": [1, 2]}})


def test_the_default_mode_has_rounds_where_an_algorithm_needs_them() -> None:
    bare = {key: STUDY[key] for key in ("study", "objective", "budget")}
    for algorithm, mode in (
        ({"name": "dp_fts_de"}, "barrier"),
        ({"name": "dp_fed_prior"}, "barrier"),
        ({"name": "fts", "every": 0}, "barrier"),
        ({"name": "dp_fts_de", "share": 1.0}, "immediate"),
        ({"name": "fts"}, "immediate"),
    ):
        study = load_study({**bare, "algorithm": [{"name": "ts"}, algorithm]})
        assert study.exchange.mode == mode, algorithm
        assert load_study(study.document()).document() == study.document()
    swept = load_study(
        {**bare, "algorithm": [{"name": "dp_fts_de", "share": 1.0}], "sweep": {"algorithm.dp_fts_de.share": [1.0, 0.5]}}
    )
    assert [cell.study.exchange.mode for cell in swept.cells()] == ["barrier", "barrier"]
    with pytest.raises(
        StudyError, match=r"\[exchange\] mode = 'immediate': has no rounds .* set mode = \"barrier\", or share = 1"
    ):
        load_study({**bare, "algorithm": [{"name": "dp_fts_de"}], "exchange": {"mode": "immediate"}})


def test_classes_of_workers_are_found_by_name() -> None:
    study = load_study(STUDY, ["cluster.worker.spot.count=3", "cluster.worker.own.speed=2.0"])
    assert study.cluster is not None and [one.count for one in study.cluster.worker] == [3, 2]
    assert study.cluster.worker[1].speed == 2.0
    with pytest.raises(
        StudyError, match=r"cluster\.worker\.spt\.count: must start with the name of a worker and a dot; names: spot, own"
    ):
        load_study(STUDY, ["cluster.worker.spt.count=3"])
    with pytest.raises(StudyError, match="did you mean 'count'"):
        load_study(STUDY, ["cluster.worker.spot.cont=3"])


# a list of a sweep with a wrong key in a table at some depth, and what names its place
WRONG_KEYS = [
    ("exchange", [{"mode": "deadline", "after": 3.0}], "entry 1, after = 3.0: no such key; did you mean 'late'?"),
    ("exchange", [{"mode": "barrier"}, {"mode": "deadline", "after": 3.0}], "entry 2, after = 3.0: no such key"),
    ("timing.evaluation", [{"model": "lognormal"}, {"model": "lognormal", "sigm": 2}], "entry 2, sigm = 2: no such key"),
    ("timing", [{"latency": {"model": "constant", "men": 1.0}}], "entry 1, latency.men = 1.0: no such key"),
    ("agents.history", [{"observation": 3}], "entry 1, observation = 3: no such key; did you mean 'observations'?"),
    ("exchange", [{"mode": "barrier", "late": "wait"}], "entry 1, late = 'wait': no such key; available: mode"),
]


@pytest.mark.parametrize(("key", "listed", "told"), WRONG_KEYS)
def test_a_wrong_key_in_an_entry_of_a_sweep_is_named_with_the_entry(key: str, listed: list[Any], told: str) -> None:
    document = {**STUDY, "sweep": {key: listed}}
    document = {name: table for name, table in document.items() if name not in ("cluster", "exchange")}
    with pytest.raises(StudyError, match=re.escape(f'[sweep] "{key}": {told}')):
        load_study(document)
