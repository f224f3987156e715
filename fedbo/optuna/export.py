"""Runs as studies of Optuna, one for each agent, to be shown by its dashboard. Needs Optuna: pip install optuna."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import optuna
import pyarrow.compute as pc
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedbo.analysis.finished_run import configurations, exported_runs, own_metric
from fedbo.analysis.grouping import grouped
from fedbo.analysis.indicators import column_name
from fedbo.analysis.result import Result
from fedbo.objectives.goals import AgentGoals, Goal, Goals, goals_in
from fedbo.optuna.inferred_space import distributions
from fedbo.tuning.metrics import constraints_of


def export_to_optuna(result: Result, path: Path, algorithm: str | None = None, replicate: int | None = 0) -> list[str]:
    """Write a journal file with a study for each agent of the chosen runs (`exported_runs`), and return the studies' names."""
    runs = exported_runs(result, result.observations, (algorithm, replicate), path)
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return list(_exported(result, runs, JournalStorage(JournalFileBackend(str(path)))))
    finally:
        optuna.logging.set_verbosity(level)


def _exported(result: Result, runs: Sequence[Any], storage: JournalStorage) -> Iterator[str]:
    titles = result.study.titles()
    for key, rows in runs:
        searched = rows.filter(pc.not_equal(rows["phase"], "history")).to_pylist()
        words = [word for word in (result.study.study.name, titles[key.cell], key.algorithm) if word]
        goals = _goals(result, key.cell)
        directions = [StudyDirection.MAXIMIZE if goal.sign > 0 else StudyDirection.MINIMIZE for goal in goals.common.objectives]
        trials = _Trials(result, key.cell)
        for agent, mine in sorted(grouped(searched, lambda row: row["agent"]).items()):
            name = ", ".join([*words, f"replicate {key.replicate}", f"agent {agent}"])
            study = optuna.create_study(storage=storage, study_name=name, directions=directions)
            if goals.common.several:
                with catch_warnings():
                    simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # the dashboard shows the names
                    study.set_metric_names([goal.name for goal in goals.common.objectives])
            study.add_trials(
                [trials.trial(row, goals.of(agent)) for row in sorted(mine, key=lambda row: float(row["finished"]))]
            )
            yield name


def _goals(result: Result, cell: int) -> AgentGoals:
    """Return the goals of a cell; without [[metric]] the value is the only objective."""
    own, known = own_metric(result, cell), goals_in(result.manifest)
    return known[cell] if known else AgentGoals(Goals((Goal(own.name, own.sign),), own=own))


class _Trials:
    """Converts the evaluations of one cell to trials."""

    def __init__(self, result: Result, cell: int) -> None:
        self._metric, parameters = own_metric(result, cell), result.manifest["parameters"]
        own = parameters[cell] if parameters and isinstance(parameters[0], list) else parameters
        self._configurations = configurations(result, cell)
        written = result.study.objective.settings.get("space")
        began = result.manifest.get("started")
        self._began = datetime.fromisoformat(began) if began else datetime.fromtimestamp(0, UTC)
        self._distributions: Mapping[str, BaseDistribution] = (
            {each["name"]: FloatDistribution(each["low"], each["high"], log=each["log"]) for each in own}
            if written is None
            else distributions(written)
        )

    def trial(self, row: Mapping[str, Any], goals: Goals) -> FrozenTrial:
        """Return the trial of one evaluation, with the times of the run in seconds since its start.

        Limited metrics are attributes by their names, and constraints. Optuna has no values that are not known: without one
        the trial has failed.
        """
        point = self._configurations.at(row["x"])
        known = {name: self._inside(name, value) for name, value in point.items() if name in self._distributions}
        others = {name: row[column_name(name)] for name in goals.names if name != goals.own.name}
        seen = {goals.own.name: float(self._metric.native(row["value"])), **others}
        values = [seen[goal.name] for goal in goals.objectives]
        good = row["error"] is None and all(map(math.isfinite, values))
        known_metrics = {limit.name: seen[limit.name] for limit in goals.limits if math.isfinite(seen[limit.name])}
        limits = replace(goals, limits=tuple(limit for limit in goals.limits if limit.name in known_metrics))
        made = create_trial(
            state=TrialState.COMPLETE if good else TrialState.FAIL,
            values=values if good else None,
            params=known,
            distributions={name: self._distributions[name] for name in known},
            user_attrs={
                "step": row["step"],
                "origin": row["origin"],
                **known_metrics,
                **({} if row["error"] is None else {"error": row["error"].splitlines()[0]}),
            },
        )
        for name, constraint in constraints_of(limits, known_metrics).items():
            made.set_constraint(name, constraint)
        made.datetime_start, made.datetime_complete = (self._when(row[name]) for name in ("started", "finished"))
        return made

    def _inside(self, name: str, value: Any) -> Any:
        """Return a value moved into its range, which rounding may have left."""
        wanted = self._distributions[name]
        return min(max(value, wanted.low), wanted.high) if isinstance(wanted, FloatDistribution) else value

    def _when(self, seconds: float) -> datetime:
        return (self._began + timedelta(seconds=seconds)).astimezone().replace(tzinfo=None)
