"""The search estimator of scikit-learn: its own checks, and results as those of `RandomizedSearchCV`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, RandomizedSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import fedbo
from fedbo import FedboSearchCV

X, Y = load_iris(return_X_y=True)
AS_SCIKIT_LEARN = {  # what its own RandomizedSearchCV does not pass either
    "check_supervised_y_2d": "DataConversionWarning not caught",
    "check_requires_y_none": "Doesn't fail gracefully",
}
PIPELINE = Pipeline([("pca", PCA()), ("ridge", Ridge())])


@pytest.mark.parametrize(
    ("estimator", "space"),
    [
        (Ridge(), {"alpha": [0.1, 1.0]}),
        pytest.param(LogisticRegression(), {"C": [0.1, 1.0]}, marks=pytest.mark.long),
        pytest.param(PIPELINE, {"ridge__alpha": [0.1, 1.0]}, marks=pytest.mark.long),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of what the checks do on purpose, and of those that need other libraries
def test_it_passes_the_checks_of_scikit_learn(estimator: Any, space: dict[str, Any]) -> None:
    made = FedboSearchCV(estimator, space, cv=2, n_iter=2, error_score="raise", random_state=0)
    found = check_estimator(made, expected_failed_checks=AS_SCIKIT_LEARN)
    assert sum(each["status"] == "passed" for each in found) > 45


def test_it_has_the_arguments_and_results_of_a_randomized_search() -> None:
    space = {"C": stats.loguniform(1e-3, 1e3), "gamma": fedbo.log(1e-4, 10.0), "kernel": ["rbf", "sigmoid"]}
    ours = FedboSearchCV(SVC(), space, n_iter=12, cv=3, random_state=1, return_train_score=True).fit(X, Y)
    theirs = RandomizedSearchCV(
        SVC(), {**space, "gamma": [0.1, 1.0]}, n_iter=12, cv=3, random_state=1, return_train_score=True
    ).fit(X, Y)
    assert ours.get_params().keys() == theirs.get_params().keys()
    assert ours.cv_results_.keys() == theirs.cv_results_.keys() and len(ours.cv_results_["params"]) == 12
    assert ours.best_score_ == max(ours.cv_results_["mean_test_score"]) > 0.95
    assert ours.best_estimator_.get_params()["C"] == ours.best_params_["C"]
    again = pickle.loads(pickle.dumps(ours))
    assert np.array_equal(again.predict(X), ours.predict(X)) and again.score(X, Y) == ours.score(X, Y)
    repeated = clone(ours).fit(X, Y)
    assert repeated.cv_results_["params"] == ours.cv_results_["params"]
    with joblib.parallel_config("threading"):  # processes would take seconds to start
        at_once = clone(ours).set_params(n_jobs=6).fit(X, Y)
    assert at_once.cv_results_["params"] != ours.cv_results_["params"] and len(at_once.cv_results_["params"]) == 12


def test_later_candidates_follow_from_earlier_scores() -> None:
    x, y = make_regression(60, 20, noise=40.0, random_state=0)
    alphas = {"alpha": stats.loguniform(1e-5, 1e5)}
    found = FedboSearchCV(Ridge(), alphas, n_iter=16, cv=3, random_state=0).fit(x, y).cv_results_["mean_test_score"]
    assert np.median(found[6:]) > np.quantile(found[:6], 0.8)


def test_steps_of_pipelines_estimators_as_choices_and_several_dictionaries_are_searched() -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("model", SVC())])
    branches = [
        {"model": [SVC()], "model__C": stats.uniform(0.1, 10.0), "scale": [StandardScaler(), MinMaxScaler(), "passthrough"]},
        {"model": [KNeighborsClassifier()], "model__n_neighbors": stats.randint(1, 9), "model__leaf_size": stats.poisson(30)},
    ]
    search = FedboSearchCV(pipeline, branches, n_iter=12, cv=2, random_state=3).fit(X, Y)
    kinds = {type(params["model"]) for params in search.cv_results_["params"]}
    assert kinds == {SVC, KNeighborsClassifier}
    for params in search.cv_results_["params"]:
        if isinstance(params["model"], SVC):
            assert 0.1 <= params["model__C"] <= 10.1 and len(params) == 3
        else:
            assert type(params["model__n_neighbors"]) is int and 1 <= params["model__n_neighbors"] <= 8
            assert 10 < params["model__leaf_size"] < 60
    assert search.score(X, Y) > 0.9


def test_choices_may_be_a_range_or_a_column_and_what_is_no_dictionary_is_refused() -> None:
    column = pytest.importorskip("pandas").Series([2, 5], index=[7, 8])
    space = {"max_depth": range(1, 4), "min_samples_leaf": column}
    search = FedboSearchCV(DecisionTreeClassifier(random_state=0), space, n_iter=6, cv=2, random_state=0).fit(X, Y)
    tried = {tuple(params.values()) for params in search.cv_results_["params"]}
    assert tried == {(depth, leaf) for depth in (1, 2, 3) for leaf in (2, 5)}
    with pytest.raises(fedbo.errors.ArgumentError, match="must be a dictionary, or a list of dictionaries"):
        FedboSearchCV(SVC(), [("C", 1.0)]).fit(X, Y)


def test_groups_several_metrics_and_rules_of_refitting_work() -> None:
    groups = np.arange(len(Y)) % 5
    given: dict[str, Any] = {"n_iter": 5, "cv": GroupKFold(3), "random_state": 0, "scoring": ["accuracy", "f1_macro"]}
    space = {"max_depth": (1, 9), "min_samples_leaf": (1, 30)}
    search = FedboSearchCV(DecisionTreeClassifier(random_state=0), space, refit="f1_macro", **given).fit(X, Y, groups=groups)
    assert search.best_score_ == max(search.cv_results_["mean_test_f1_macro"])
    last = FedboSearchCV(
        DecisionTreeClassifier(random_state=0), space, refit=lambda results: len(results["params"]) - 1, **given
    )
    assert last.fit(X, Y, groups=groups).best_index_ == 4
    none = FedboSearchCV(DecisionTreeClassifier(random_state=0), space, refit=False, **given).fit(X, Y, groups=groups)
    assert not hasattr(none, "best_estimator_") and "mean_test_accuracy" in none.cv_results_


class Moody(Ridge):  # type: ignore[misc]
    """A regression that cannot be fitted with a large alpha."""

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit, or raise."""
        if self.alpha > 5.0:
            raise RuntimeError("too much")
        return super().fit(x, y, sample_weight)


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_candidates_whose_fits_fail_are_left_out_with_a_warning_or_end_the_search() -> None:
    x, y = make_regression(30, 5, noise=3.0, random_state=0)
    space = {"alpha": [9.0, *np.linspace(0.1, 1.0, 3), 7.0, 8.0]}
    given: dict[str, Any] = {"n_iter": 6, "cv": 2, "random_state": 1}
    with pytest.warns(FitFailedWarning, match="left out of cv_results_|fits failed"):
        search = FedboSearchCV(Moody(), space, **given).fit(x, y)
    assert {params["alpha"] for params in search.cv_results_["params"]} >= {0.1, 0.55, 1.0}
    with pytest.raises(RuntimeError, match="too much"):
        FedboSearchCV(Moody(), space, error_score="raise", **given).fit(x, y)
    with pytest.raises(ValueError, match="fits failed"):
        FedboSearchCV(Moody(), {"alpha": (6.0, 9.0)}, **given).fit(x, y)
    with pytest.raises(fedbo.errors.ArgumentError, match=r"space\['alpha'\] = \(3.0, 1.0\): low must be less than high"):
        FedboSearchCV(Moody(), {"alpha": (3.0, 1.0)}, **given).fit(x, y)


def test_a_search_at_a_site_takes_part_in_a_meeting(tmp_path: Path) -> None:
    class SiteSearchCV(FedboSearchCV):
        def open_agent(self, space: Any) -> fedbo.Agent:
            terms = fedbo.Terms("fts", agents=2, seed=1)
            return fedbo.Agent(tmp_path / "agent", space, terms, meeting=fedbo.Meeting(tmp_path / "meeting"))

    search = SiteSearchCV(SVC(), {"C": fedbo.log(1e-2, 1e2)}, n_iter=5, cv=2).fit(X, Y)
    assert len(search.cv_results_["params"]) == 5 and list((tmp_path / "meeting").glob("*.message"))
