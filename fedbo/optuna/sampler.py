"""A sampler for Optuna, alone in a study of any storage, or of an agent that learns from other sites.

Needs Optuna: pip install optuna.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from threading import RLock
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.objectives.goals import MOST_OBJECTIVES
from fedbo.objectives.typed_spaces.declared_space import flattened
from fedbo.optuna.inferred_space import InferredSpace, distributions, union
from fedbo.settings import arguments
from fedbo.settings.arguments import Mode
from fedbo.settings.errors import ArgumentError, warn_caller
from fedbo.tuning.arguments import check_algorithm
from fedbo.tuning.ask_tell import Agent, tell_or_fail
from fedbo.tuning.metrics import check_directions, told_of_trial
from fedbo.tuning.terms import Terms

ASKED = "fedbo:asked"  # the attribute of a trial that says which agent's folder gave it, and by which token
_WITH_VALUES = (TrialState.COMPLETE, TrialState.PRUNED)


class Sampler(BaseSampler):
    """Suggests parameters by a model of a study's trials, whose objective may suggest different ones in each trial.

    The first `n_startup_trials` are drawn by `independent_sampler`, by default at random, and so is a parameter that no earlier
    trial has. Failed trials count among them, once half as many have values. The model is of all parameters of finished trials,
    and of which of them depend on others. It is made of the trials in the study's storage alone, so that processes which share
    the storage share it, and a stored study resumes. It learns the last reported value of a pruned trial, avoids failed ones,
    and knows the configurations that are running. It takes at most four objectives, and constraints of `trial.set_constraint`
    or `constraints_func`.

    With an `agent` the sampler suggests the parameters of its space, in whose terms `algorithm`, direction and metrics are; the
    agent learns from other sites. `seed` and `n_startup_trials` have no use then. It is thread-safe, and pickles.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        algorithm: str | Mapping[str, Any] = "gp_ei",
        n_startup_trials: int = 10,
        independent_sampler: BaseSampler | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        agent: Agent | None = None,
    ) -> None:
        if seed is not None:
            arguments.whole("seed", seed, 0)
        check_algorithm("algorithm", algorithm)
        arguments.whole("n_startup_trials", n_startup_trials, 0)
        if independent_sampler is not None:
            arguments.instance("independent_sampler", independent_sampler, BaseSampler, "pass one of optuna.samplers")
        if agent is not None:
            arguments.instance("agent", agent, Agent, "write fedbo.Agent('agents/1', space, terms)")
        self._algorithm, self._startup, self._constraints = algorithm, n_startup_trials, constraints_func
        self._seed = secrets.randbits(32) if seed is None else seed
        self._independent = independent_sampler or RandomSampler(seed)
        self._given, self._agent = agent is not None, agent
        self._space: InferredSpace | None = None
        self._made: Any = None  # what the present agent in memory was made for
        self._seen: set[tuple[str, int]] = set()
        self._tokens: dict[int, str] = {}  # by number of trials that the agent in memory holds for running
        self._alone = RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self._alone:
            return {name: value for name, value in self.__dict__.items() if name != "_alone"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _alone=RLock())

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the distributions of the agent's space, or those that finished trials have."""
        if self._given and self._agent is not None:
            return distributions(self._agent.space)
        return union(study.get_trials(deepcopy=False, states=_WITH_VALUES))

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Ask the agent for a configuration, after it has learned from all finished trials; nothing at the start."""
        with self._alone:
            agent = self._opened(study, search_space)
            if agent is None:
                return {}
            for other in study.get_trials(deepcopy=False):
                if other.state.is_finished() and (study.study_name, other.number) not in self._seen:
                    self._learn(agent, study, other, other.state, other.values)
                elif other.state == TrialState.RUNNING and other.number != trial.number:
                    self._await(agent, other)
            asked = agent.ask()
            if not asked:
                return {}
            (one,) = asked
            self._tokens[trial.number] = one.token
            if self._given:
                study._storage.set_trial_system_attr(trial._trial_id, ASKED, [str(agent.folder), one.token])
        found = flattened(one.configuration) if self._space is None else self._space.params(one.configuration)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Sample a parameter that the model does not know."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Keep the constraints of a trial, and report its value to an agent that was given."""
        if self._constraints is not None:
            _process_constraints_after_trial(self._constraints, study, trial, state)
            trial = study._storage.get_trial(trial._trial_id)
        if self._given:
            with self._alone:
                agent = self._opened(study, {})
                assert agent is not None
                self._learn(agent, study, trial, state, values)

    def reseed_rng(self) -> None:
        """Take another seed."""
        with self._alone:
            self._seed = secrets.randbits(32)
            self._independent.reseed_rng()

    def _opened(self, study: Study, search_space: dict[str, BaseDistribution]) -> Agent | None:
        """Return the agent for a study: the one that was given, or one in memory, anew where the space has changed."""
        if self._given and self._agent is not None:
            check_directions(study, self._agent.terms.mode, self._agent.terms.goals)
            return self._agent
        if len(study.directions) > MOST_OBJECTIVES:  # before trials are spent
            raise ArgumentError(f"study: has {len(study.directions)} objectives; use at most {MOST_OBJECTIVES}")
        trials = study.get_trials(deepcopy=False, states=_WITH_VALUES)
        good = [trial for trial in trials if trial.values and all(map(isfinite, trial.values))]
        ended = sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
        if not search_space or not good or ended < self._startup or 2 * len(trials) < self._startup:
            return None
        space = InferredSpace.of(trials, search_space)
        if space is None:
            return None
        metrics = _metrics(study, good, max(1, self._startup))
        made = (study.study_name, study._study_id, space, metrics, self._seed)
        if self._made != made:
            mode: Mode = "min" if study.directions[0] == StudyDirection.MINIMIZE else "max"
            terms = Terms(self._algorithm, mode=mode, initial=0, seed=self._seed, repeats=True, metrics=metrics)
            self._agent = Agent(None, space.written, terms)
            self._made, self._space = made, space
            self._seen.clear()
            self._tokens.clear()
        return self._agent

    def _learn(self, agent: Agent, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Report a trial's value by its token if its configuration was asked for; add the value otherwise."""
        self._seen.add((study.study_name, trial.number))
        seen = values if state in _WITH_VALUES and values else None  # its last, if pruned
        folder, token = trial.system_attrs.get(ASKED, (None, None)) if self._given else (None, self._tokens.get(trial.number))
        value = self._value(agent, trial, seen)
        try:
            params = self._configuration(agent, trial)
        except ValueError as error:  # an enqueued value may be outside its range
            warn_caller(f"trial {trial.number} was ignored: {error}", UserWarning)
            value, params = None, {}
        if token is not None and (not self._given or folder == str(agent.folder)):
            asked = flattened(agent.given(token).configuration)
            if params and all(params[name] == each for name, each in asked.items() if name in params):
                tell_or_fail(agent, token, value, f"trial {trial.number}")
                return
            agent.withdraw(token)
        elif folder is not None and agent.terms.agents > 1:
            return
        if value is not None:
            try:
                agent.add(params, value, f"{study.study_name}/{trial.number}")
            except ValueError as error:
                warn_caller(f"trial {trial.number} was ignored: {error}", UserWarning)

    def _await(self, agent: Agent, trial: FrozenTrial) -> None:
        """Let an agent in memory know the configuration of a running trial that another process has."""
        if self._space is None or trial.number in self._tokens or not trial.params.keys() >= self._space.always:
            return
        with suppress(ValueError):  # outside its range
            agent.enqueue(self._space.configuration(trial.params))
            (one,) = agent.ask()
            self._tokens[trial.number] = one.token

    def _configuration(self, agent: Agent, trial: FrozenTrial) -> dict[str, Any]:
        if self._space is not None:
            return self._space.configuration(trial.params)
        return {name: each for name, each in trial.params.items() if name in distributions(agent.space)}

    def _value(self, agent: Agent, trial: FrozenTrial, values: Sequence[float] | None) -> Any:
        """Return what an agent is told of a trial: a number, numbers by name, or None where it failed."""
        goals = agent.terms.goals
        if self._given or values is None or goals is None:
            return told_of_trial(trial, values, goals)
        limited = {f"constraint {name}": value for name, value in trial.constraints.items()}
        found = dict(zip([goal.name for goal in goals.objectives], values, strict=True))
        return found | {limit.name: limited.get(limit.name) for limit in goals.limits}


def _metrics(study: Study, trials: Sequence[FrozenTrial], startup: int) -> tuple[dict[str, Any], ...]:
    """Return the objectives and limits of a study as tables; none where its only objective has no constraints.

    The worst values of the first trials are the references of several objectives.
    """
    limits = [{"name": f"constraint {name}", "at_most": 0.0} for name in sorted({key for t in trials for key in t.constraints})]
    if len(study.directions) == 1 and not limits:
        return ()
    objectives = list[dict[str, Any]]()
    for place, direction in enumerate(study.directions):
        least = direction == StudyDirection.MINIMIZE
        worst = (max if least else min)(trial.values[place] for trial in trials[:startup])
        reference = {"reference": worst} if len(study.directions) > 1 else {}
        objectives.append({"name": f"objective {place}", "mode": "min" if least else "max", **reference})
    return (*objectives, *limits)
