"""Runs as studies of Optuna, one for each agent, to be shown by its dashboard, also live. Needs Optuna: pip install optuna."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import optuna
import pyarrow.compute as pc
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedbo.analysis.finished_run import configurations, exported_runs, own_metric, parameters
from fedbo.analysis.grouping import grouped
from fedbo.analysis.result import Result
from fedbo.execution.notices import Evaluation
from fedbo.objectives.base import Metric
from fedbo.objectives.goals import AgentGoals, Goal, Goals, goals_in
from fedbo.objectives.outcome import read_metrics
from fedbo.optuna.inferred_space import Distributions, distributions
from fedbo.settings.arguments import wrong
from fedbo.study.problems import agent_goals
from fedbo.study.study import Study
from fedbo.tuning.metrics import constraints_of

NUMBER = "fedbo number"  # the attribute of a trial with the number of its evaluation


def export_to_optuna(result: Result, path: Path, algorithm: str | None = None, replicate: int | None = 0) -> list[str]:
    """Write a journal file with a study for each agent of the chosen runs (`exported_runs`), and return the studies' names."""
    runs = exported_runs(result, result.observations, (algorithm, replicate), path)
    with _quiet():
        return list(_exported(result, runs, JournalStorage(JournalFileBackend(str(path)))))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from printing what it creates."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with catch_warnings():
            simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # the dashboard shows the names of metrics
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _exported(result: Result, runs: Sequence[Any], storage: JournalStorage) -> Iterator[str]:
    titles = result.study.titles()
    for key, rows in runs:
        searched = rows.filter(pc.not_equal(rows["phase"], "history")).to_pylist()
        words = [word for word in (result.study.study.name, titles[key.cell], key.algorithm) if word]
        trials, point = _Trials.of_cell(result, key.cell), configurations(result, key.cell).at
        own = own_metric(result, key.cell)
        for agent, mine in sorted(grouped(searched, lambda row: row["agent"]).items()):
            study = trials.open(storage, [*words, f"replicate {key.replicate}", f"agent {agent}"])
            for row in sorted(mine, key=lambda row: float(row["finished"])):
                facts: dict[str, Any] = {name: row[name] for name in ("error", "started", "finished")}
                facts |= {"value": float(own.native(row["value"])), "metrics": read_metrics(row["metrics"])[0]}
                one = Evaluation(agent=agent, number=0, configuration=point(row["x"]), **facts)
                study.add_trial(trials.trial(one, {name: row[name] for name in ("step", "origin")}))
            yield study.study_name


class Mirror:
    """A callback that adds each evaluation of a tuning to Optuna's storage when it ends: a study for each agent.

    `place` is the URL of the storage, or a storage. The attribute `run` of each study names the `directory` of the tuning. An
    evaluation that is there is not added again, so that a tuning that `resumes` leaves each once.
    """

    def __init__(self, study: Study, place: Any, directory: Path | None, resumes: bool) -> None:
        federation, run = study.federation(), str(directory and directory.absolute())
        self._trials = _Trials(agent_goals(study), federation.metric, distributions(study.objective.settings["space"]))
        self._studies, self._known = list[optuna.Study](), set[tuple[int, int, TrialState]]()
        with _quiet():
            for agent in range(federation.n_agents):
                words = [study.study.name, study.labels[0], "replicate 0", f"agent {agent}"]
                try:
                    found = self._trials.open(place, words, exists=True)
                except Exception as error:
                    raise wrong("mirror", place, f"cannot be opened by Optuna ({type(error).__name__}: {error})") from error
                if found.user_attrs.get("run", run) != run or (found.trials and not resumes):
                    why = f"has the study '{found.study_name}' of another run; choose another name or storage"
                    raise wrong("mirror", place, why)
                found.set_user_attr("run", run)
                self._studies.append(found)
                self._known |= {(agent, trial.user_attrs.get(NUMBER, -1), trial.state) for trial in found.trials}

    def __call__(self, evaluation: Evaluation) -> None:
        """Add an evaluation, if it is new."""
        trial = self._trials.trial(evaluation, {NUMBER: evaluation.number})
        key = evaluation.agent, evaluation.number, trial.state
        if key not in self._known:
            self._studies[evaluation.agent].add_trial(trial)
            self._known.add(key)


class _Trials:
    """Converts evaluations to trials; without `goals` the value, whose metric is `own`, is the only objective.

    Their times are seconds since `began`; without it the first one that is converted ends now.
    """

    def __init__(self, goals: AgentGoals | None, own: Metric, parameters: Distributions, began: datetime | None = None) -> None:
        self._goals = goals or AgentGoals(Goals((Goal(own.name, own.sign),), own=own))
        self._distributions, self._began = parameters, began

    @classmethod
    def of_cell(cls, result: Result, cell: int) -> _Trials:
        """Return the conversion of one cell of a run."""
        goals, written = goals_in(result.manifest), result.study.objective.settings.get("space")
        began = datetime.fromisoformat(result.manifest.get("started") or "1970-01-01T00:00:00+00:00")
        found = Distributions()
        for each in parameters(result, cell):
            found[each["name"]] = FloatDistribution(each["low"], each["high"], each["log"])
        found = found if written is None else distributions(written)
        return cls(goals[cell] if goals else None, own_metric(result, cell), found, began)

    def open(self, storage: Any, words: Sequence[str], exists: bool = False) -> optuna.Study:
        """Create the study of an agent, or open it where it `exists`."""
        common = self._goals.common
        directions = [StudyDirection.MAXIMIZE if goal.sign > 0 else StudyDirection.MINIMIZE for goal in common.objectives]
        name = ", ".join(words)
        study = optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=exists)
        if common.several:
            study.set_metric_names([goal.name for goal in common.objectives])
        return study

    def trial(self, one: Evaluation, attributes: Mapping[str, Any]) -> FrozenTrial:
        """Return the trial of one evaluation, with its metrics and notes among the attributes of the user.

        Limited metrics are constraints, too. Optuna has no values that are not known: without one the trial has failed.
        """
        goals = self._goals.of(one.agent)
        known = {name: self._inside(name, value) for name, value in one.configuration.items() if name in self._distributions}
        own = math.nan if one.value is None else one.value
        seen = {name: own if name == goals.own.name else one.metrics.get(name, math.nan) for name in goals.names}
        values = [seen[goal.name] for goal in goals.objectives]
        good = one.error is None and all(map(math.isfinite, values))
        limits = tuple(limit for limit in goals.limits if math.isfinite(seen[limit.name]))
        error = {} if one.error is None else {"error": one.error.splitlines()[0]}
        made = create_trial(
            state=TrialState.COMPLETE if good else TrialState.FAIL,
            values=values if good else None,
            params=known,
            distributions={name: self._distributions[name] for name in known},
            user_attrs={**attributes, **one.metrics, **one.notes, **error},
        )
        for name, constraint in constraints_of(replace(goals, limits=limits), seen).items():
            made.set_constraint(name, constraint)
        self._began = self._began or datetime.now(UTC) - timedelta(seconds=one.finished)
        made.datetime_start, made.datetime_complete = self._when(one.started), self._when(one.finished)
        return made

    def _inside(self, name: str, value: Any) -> Any:
        """Return a value moved into its range, which rounding may have left."""
        wanted = self._distributions[name]
        return min(max(value, wanted.low), wanted.high) if isinstance(wanted, FloatDistribution) else value

    def _when(self, seconds: float) -> datetime:
        assert self._began is not None
        return (self._began + timedelta(seconds=seconds)).astimezone().replace(tzinfo=None)
