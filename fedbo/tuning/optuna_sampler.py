"""A sampler for Optuna whose suggestions come from an agent, so that studies at several sites learn from each other.

Needs Optuna: pip install optuna.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.objectives.typed_spaces.declared_space import flattened
from fedbo.settings.arguments import Mode, instance
from fedbo.settings.errors import ArgumentError, warn_caller
from fedbo.tuning.ask_tell import Agent, tell_or_fail
from fedbo.tuning.message_folder import Meeting
from fedbo.tuning.metrics import check_directions, told_of_trial
from fedbo.tuning.optuna_export import distributions
from fedbo.tuning.terms import Terms, check_agent

ASKED = "fedbo:asked"  # the attribute of a trial that says which agent's folder gave it, and by which token


class OptunaSampler(BaseSampler):
    """Suggests the parameters of `space` by an agent, which is stored in `folder` and resumes when it is opened again.

    `space` has the forms that `fedbo.tune` accepts: a dictionary of Optuna's distributions, or a ConfigSpace with conditions,
    whose active parameters are suggested. The study's direction overrides `terms.mode`. With `terms.metrics` the study has
    their objectives in the same order. A trial states a limited metric by `trial.set_constraint`, or as an attribute of its
    name (`fedbo.tuning.metrics`); a trial without it is not feasible. From a pruned trial the agent learns
    the last reported value, from a failed one nothing. It also learns from other finished trials of the study. If
    `terms.agents` is above 1, trials of the other agents are the exception: their observations arrive as messages. Parameters
    outside the space are drawn by `independent`, by default at random. It is thread-safe; one process may use it at a time.
    """

    def __init__(
        self,
        folder: str | Path,
        space: Any,
        terms: Terms = Terms(),  # noqa: B008
        number: int = 0,
        meeting: Meeting | None = None,
        independent: BaseSampler | None = None,
    ) -> None:
        check_agent(folder, terms, number, meeting)
        if independent is not None:
            instance("independent", independent, BaseSampler, "pass one of optuna.samplers")
        self._folder, self._space, self._terms, self._number = Path(folder).resolve(), space, terms, number
        self._meeting, self._independent = meeting, independent or RandomSampler(terms.seed)
        self._distributions, self._goals = distributions(space), terms.goals
        self._agent: Agent | None = None
        self._seen: set[tuple[str, int]] = set()
        self._alone = threading.RLock()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the distributions of the space."""
        return self._distributions

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Ask the agent for a configuration, after it has learned from all finished trials."""
        with self._alone:
            agent = self._opened(study)
            for other in study.get_trials(deepcopy=False):
                if other.state.is_finished() and (study.study_name, other.number) not in self._seen:
                    self._learn(agent, study, other, other.state, other.values)
            (one,) = agent.ask()
            study._storage.set_trial_system_attr(trial._trial_id, ASKED, [str(self._folder), one.token])
        return {name: value for name, value in flattened(one.configuration).items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Sample a parameter outside the space."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Report the value of a trial to the agent."""
        with self._alone:
            self._learn(self._opened(study), study, trial, state, values)

    def reseed_rng(self) -> None:
        """Reseed the sampler of parameters outside the space."""
        self._independent.reseed_rng()

    def close(self) -> None:
        """Close the agent's folder, so that another process can open it."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _opened(self, study: Study) -> Agent:
        check_directions(study, None, self._goals)
        mode: Mode = "min" if study.directions[0] == StudyDirection.MINIMIZE else "max"
        if self._agent is None:
            terms = replace(self._terms, mode=mode, repeats=True)  # Optuna says when a study ends
            self._agent = Agent(self._folder, self._space, terms, self._number, self._meeting)
        if self._agent.terms.mode != mode:
            raise ArgumentError(f"study '{study.study_name}': changed its direction; use a new sampler for it")
        return self._agent

    def _learn(self, agent: Agent, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Report a trial's value by its token if its configuration was asked for; add the value otherwise."""
        self._seen.add((study.study_name, trial.number))
        seen = values if state in (TrialState.COMPLETE, TrialState.PRUNED) and values else None  # its last, if pruned
        value = told_of_trial(trial, seen, self._goals)
        params = {name: each for name, each in trial.params.items() if name in self._distributions}
        folder, token = trial.system_attrs.get(ASKED, (None, ""))
        if folder == str(self._folder):
            asked = flattened(agent.given(token).configuration)
            if all(params[name] == each for name, each in asked.items() if name in params):
                tell_or_fail(agent, token, value, f"trial {trial.number}")
                return
            agent.withdraw(token)
        elif folder is not None and self._terms.agents > 1:
            return
        if value is not None:
            try:
                agent.add(params, value, f"{study.study_name}/{trial.number}")
            except ValueError as error:
                warn_caller(f"trial {trial.number} was ignored: {error}", UserWarning)
