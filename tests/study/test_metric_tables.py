"""[[metric]] tables: what they ask of each agent, and each error with the field, the value and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from fedbo.objectives.goals import Goal, Limit
from fedbo.study.check_metrics import stopping_note
from fedbo.study.document import StudyError
from fedbo.study.problems import goals, own_goals
from fedbo.study.study import load_study

BNH = [
    {"name": "f1", "mode": "min", "reference": 140.0},
    {"name": "f2", "mode": "min", "reference": 50.0, "weight": 2.0},
    {"name": "g1", "at_most": 25.0},
    {"name": "g2", "at_least": 7.7},
]


def document(metric: Any = BNH, **tables: Any) -> dict[str, Any]:
    """Return a small study."""
    return {
        "study": {"name": "limits"},
        "objective": {"name": "bnh", "agents": 3},
        "budget": {"iterations": 2},
        "metric": [dict(table) for table in metric],
        "algorithm": [{"name": "random"}],
        **tables,
    }


def test_tables_become_goals_and_a_problem() -> None:
    """The problem knows the numbers of objectives and bounds, and the references as values to be maximised."""
    study = load_study(document())
    asked = goals(study)
    assert asked is not None
    assert asked.objectives == (Goal("f1", -1, 140.0), Goal("f2", -1, 50.0, 2.0))
    assert asked.limits == (Limit("g1", at_most=25.0), Limit("g2", at_least=7.7))
    known = study.problem()
    assert (known.objectives, known.constraints, known.references, known.weights) == (2, 2, (-140.0, -50.0), (1.0, 2.0))
    assert load_study(study.document()).document() == study.document()


def test_a_group_may_have_other_limits_and_weights() -> None:
    """They replace those of the study, for its agents only."""
    group = {"name": "strict", "agents": [2], "at_most": {"g1": 10.0}, "weights": {"f1": 5.0}}
    own = own_goals(load_study(document(group=[group])))
    assert list(own) == [2]
    assert own[2].limits == (Limit("g1", at_most=10.0), Limit("g2", at_least=7.7))
    assert own[2].weights == (5.0, 2.0)


def test_a_limit_alone_keeps_the_objective_of_the_federation() -> None:
    """Without a mode the value is the one objective."""
    asked = goals(load_study(document([{"name": "g1", "at_most": 25.0}])))
    assert asked is not None and asked.objectives == (Goal("f1", -1),) and not asked.several


def test_a_study_without_metrics_has_no_goals() -> None:
    """Its problem is that of before."""
    study = load_study(document(()))
    assert goals(study) is None and own_goals(study) == {}
    assert (study.problem().objectives, study.problem().constraints, study.problem().references) == (1, 0, ())


F1, F2, G1 = BNH[0], BNH[1], BNH[2]


@pytest.mark.parametrize(
    ("metric", "tables", "words"),
    [
        ([{"name": "g1"}], {}, "[[metric]] 1 name = 'g1': is neither an objective nor limited"),
        ([{"name": "g1", "at_most": 1.0, "at_least": 2.0}], {}, "[[metric]] 1 at_least = 2.0: contradicts at_most = 1"),
        ([{"name": "gg", "at_most": 1.0}], {}, "[[metric]] 1 name = 'gg': no metric 'gg'; available: f1, f2, g1, g2"),
        (
            [{"name": "memory", "at_most": 1.0}],
            {"objective": {"name": "quadratic", "agents": 3}},
            "[[metric]] 1 name = 'memory': no metric 'memory'; available: squared distance",
        ),
        ([G1, G1], {}, "[[metric]] 2 name = 'g1': has two tables; join them"),
        ([F2, F1], {}, "[[metric]] 1 name = 'f2': is not the metric of the values"),
        ([{"name": "f1", "mode": "max"}], {}, "[[metric]] 1 mode = 'max': is not that of the objective's values"),
        ([{"name": "f1", "mode": "min"}, F2], {}, "[[metric]] 1 reference: is missing"),
        (
            [{"name": "f1", "mode": "min", "reference": 1.0}],
            {},
            "[[metric]] 1 reference = 1.0: has no effect with one objective",
        ),
        ([{"name": "g1", "at_most": 1.0, "reference": 1.0}], {}, "[[metric]] 1 reference = 1.0: applies only to an objective"),
        ([F1, {**F2, "at_least": 60.0}], {}, "[[metric]] 2 reference = 50.0: is not reached by any feasible evaluation"),
        ([{**F1, "weight": 0.0}, F2], {}, "[[metric]] 1 weight = 0.0: must be above 0"),
        (
            BNH,
            {"algorithm": [{"name": "trust_best"}]},
            "[[algorithm]] 1 name = 'trust_best': learns one objective, and this study has 2",
        ),
        (
            BNH,
            {"algorithm": [{"name": "random", "centralised": True}]},
            "[[algorithm]] 1 centralised = true: evaluates the mean",
        ),
        ([G1], {"algorithm": [{"name": "fed_pne"}], "budget": {"pulls": 90}}, "evaluates points several times"),
        (BNH, {"budget": {"iterations": 2, "target": 3.0}}, "[budget] target = 3.0: is a value of one objective"),
        (
            BNH,
            {"evaluation": {"infeasible": "drop"}},
            "[evaluation] infeasible = 'drop': has no effect: every algorithm learns",
        ),
        ((), {"evaluation": {"infeasible": "drop"}}, "[evaluation] infeasible = 'drop': has no effect without limits"),
        (
            [G1],
            {"group": [{"name": "a", "agents": [0], "at_least": {"g1": 1.0}}]},
            "[[group]] 1 at_least.g1 = 1.0: no [[metric]]",
        ),
        (
            [{"name": "g1", "at_most": 3.0, "at_least": 1.0}],
            {"group": [{"name": "a", "agents": [0], "at_most": {"g1": 0.5}}]},
            "[[group]] 1 at_most.g1 = 0.5: contradicts at_least = 1",
        ),
        (
            [G1],
            {"group": [{"name": "a", "agents": [0], "weights": {"f1": 2.0}}]},
            "[[group]] 1 weights.f1 = 2.0: no [[metric]]",
        ),
        ((), {"group": [{"name": "a", "agents": [0], "at_most": {"g1": 2.0}}]}, "[[group]] 1 at_most: applies only to metrics"),
        ([G1], {"group": [{"name": "a", "share": 0.5, "by": "number", "at_most": {"g1": 2.0}}]}, "same in every replicate"),
    ],
)
def test_errors_name_the_field_the_value_and_the_remedy(metric: Any, tables: dict[str, Any], words: str) -> None:
    """Each is told before anything starts."""
    with pytest.raises(StudyError) as found:
        load_study(document(metric, **tables))
    assert words in str(found.value)


def test_at_most_four_objectives() -> None:
    """The fifth is refused at its place."""
    five = [{"name": f"f{place}", "mode": "min", "reference": 2.0} for place in range(1, 6)]
    objective = {"name": "dtlz2", "agents": 1, "objectives": 5}
    with pytest.raises(StudyError, match="objectives"):
        load_study(document(five, objective=objective))


def test_metrics_are_swept_and_overridden_by_their_names() -> None:
    """`metric.<name>.<key>` is a key of sweeps and of --set."""
    study = load_study(document([G1], sweep={"metric.g1.at_most": [1.0, 2.0]}), ["metric.g1.at_most=3"])
    assert study.metric[0].at_most == 3.0 or [cell.study.metric[0].at_most for cell in study.cells()] == [1.0, 2.0]


def test_early_stopping_says_that_it_judges_the_first_objective_alone() -> None:
    """Where there are limits or several objectives; else there is nothing to say."""
    curves = {"objective": {"name": "learning_curves", "agents": 2}, "stopping": {"kind": "asha"}}
    name = load_study(document((), **curves)).federation().metric.name
    note = stopping_note(load_study(document([{"name": name, "at_most": 0.5}], **curves)))
    assert note is not None and f"'{name}' alone" in note
    assert stopping_note(load_study(document((), **curves))) is None
    assert stopping_note(load_study(document([G1]))) is None
