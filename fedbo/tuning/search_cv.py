"""A search estimator of scikit-learn that asks an agent, to use in place of `RandomizedSearchCV`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.stats import rv_discrete
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import RandomizedSearchCV
from sklearn.utils import check_random_state

from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.arguments import wrong
from fedbo.settings.errors import warn_caller
from fedbo.tuning.arguments import numbered
from fedbo.tuning.ask_tell import Agent
from fedbo.tuning.terms import Terms

_TAIL = 0.001  # the part of a distribution without an end that is left out there


class FedboSearchCV(RandomizedSearchCV):  # type: ignore[misc]
    """A `RandomizedSearchCV` whose candidates follow from the scores of earlier ones, with the same arguments and results.

    `param_distributions` may have entries of `fedbo.tune` too, such as `(0.1, 10.0, "log")`, beside lists of any values and
    frozen distributions of SciPy. About a third of the candidates, at most ten, are random. With more jobs than folds, several
    candidates are decided at once. With several metrics that of `refit` is searched, else the first. A candidate all of whose
    fits fail is left out of `cv_results_`, with a warning, unless `error_score` is "raise".
    """

    def open_agent(self, space: str) -> Agent:
        """Open the agent that is asked: one of `gp_ei` in memory. A subclass for a site opens one of a meeting."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        return Agent(None, space, Terms("gp_ei", initial=min(10, 1 + self.n_iter // 3), seed=seed))

    def _run_search(self, evaluate_candidates: Callable[[list[dict[str, Any]]], Mapping[str, Any]]) -> None:
        """Evaluate the candidates that an agent suggests, and tell it their mean scores."""
        given = self.param_distributions
        branches = [given] if isinstance(given, Mapping) else given
        if not all(isinstance(branch, Mapping) for branch in branches):
            raise wrong("param_distributions", given, "must be a dictionary, or a list of dictionaries")
        at_once = max(1, effective_n_jobs(self.n_jobs) // self.n_splits_)
        with self.open_agent(_written(branches)) as agent:
            left, count, scores = self.n_iter, max(agent.terms.initial, at_once), np.array([])
            while asked := agent.ask(min(left, count)) if left else []:
                left, count, known = left - len(asked), at_once, len(scores)
                candidates = [_candidate(branches, one.configuration) for one in asked]
                try:
                    results = evaluate_candidates(candidates)
                except ValueError as error:
                    if self.error_score == "raise" or not known or "fits failed" not in str(error):
                        raise
                    warn_caller(f"{candidates} left out of cv_results_: {error}", FitFailedWarning)
                    new = np.full(len(asked), nan)
                else:
                    first = next(name for name in results if name.startswith("mean_test_"))
                    scores = results.get(f"mean_test_{self.refit}", results[first])
                    new = scores[known:]
                for one, score in zip(asked, new.tolist(), strict=True):
                    agent.tell(one.token, score)


def _written(branches: Sequence[Mapping[str, Any]]) -> str:
    """Return the space of an agent, in which a choice of the branch comes before the parameters of several."""
    if len(branches) == 1:
        return written_space({name: _declared(each) for name, each in branches[0].items()})
    names = {f"{place}: {name}": _declared(each) for place, branch in enumerate(branches) for name, each in branch.items()}
    space = json.loads(written_space({"branch": numbered([{}] * len(branches)), **names}))
    space["hyperparameters"].sort(key=lambda each: each["name"] != "branch")  # parents first
    space["conditions"] = [{"type": "EQ", "child": name, "parent": "branch", "value": name.partition(":")[0]} for name in names]
    return json.dumps(space)


def _candidate(branches: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator for a configuration of an agent."""
    before = f"{found['branch']}: " if len(branches) > 1 else ""
    branch = branches[int(found["branch"]) if before else 0]
    return {name: _value(each, found[before + name]) for name, each in branch.items()}


def _declared(each: Any) -> Any:
    """Return the entry of an agent's space for that of a search."""
    if hasattr(each, "ppf"):
        low, high = each.support()
        if isinstance(each.dist, rv_discrete) and isfinite(high - low):
            return (int(low), int(high)) if low < high else int(low)
        return (0.0 if isfinite(low) else _TAIL, 1.0 if isfinite(high) else 1.0 - _TAIL)
    return numbered(list(each)) if _is_listed(each) else each


def _value(each: Any, code: Any) -> Any:
    """Return a value of a search for that of an agent's space."""
    if hasattr(each, "ppf"):
        is_whole = isinstance(each.dist, rv_discrete)
        return code if is_whole and isinstance(code, int) else int(each.ppf(code)) if is_whole else float(each.ppf(code))
    return list(each)[int(code)] if _is_listed(each) else code


def _is_listed(each: Any) -> bool:
    """Return whether these are choices: a list, an array, a `range` or a column, but no range of `fedbo.tune`."""
    return hasattr(each, "__len__") and not isinstance(each, str | tuple | Mapping)
