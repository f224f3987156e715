"""Checks of a study whose agents are at sites: one run in real time, of which nothing is known but messages."""

from __future__ import annotations

from collections.abc import Iterator

from fedbo.algorithms.base import LocallyPrivate, Private
from fedbo.coordinator.environment.faults import Restart
from fedbo.objectives.sites import Sites
from fedbo.settings.errors import SettingError
from fedbo.study.agents.histories import has_history
from fedbo.study.study_tables import StudyTables


def sites_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors in the combination of sites with the rest of their study."""
    if not isinstance(study.federation(), Sites):
        if study.hosting.kind == "sites":
            yield SettingError(("hosting", "kind"), 'requires objectives that are at sites; set [objective] name = "sites"')
        if study.sites is not None:
            yield SettingError(("sites",), 'has no effect: no site takes part; remove it, or set [objective] name = "sites"')
        return
    if study.hosting.kind != "sites":
        yield SettingError(("hosting", "kind"), 'does not suit an objective at sites; set kind = "sites", or remove it')
    if study.hosting.workers is not None or study.hosting.address is not None:
        key = "address" if study.hosting.workers is None else "workers"
        yield SettingError(("hosting", key), "has no effect: agents are at their sites; remove it")
    if study.timing.clock != "wall":
        yield SettingError(("timing", "clock"), 'is that of a simulation, but sites live in real time; set clock = "wall"')
    yield from _one_run(study)
    yield from _unsupported(study)
    yield from _privacy(study)


def _one_run(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for a study of more than one run: sites take part in one."""
    words = "sites take part in one run; "
    if study.sweep:
        yield SettingError(("sweep",), f"{words}remove it, and serve one study for each value")
    if study.study.replicates > 1:
        yield SettingError(("study", "replicates"), f"{words}set replicates = 1")
    if len(study.algorithm) > 1:
        yield SettingError(("algorithm", 1, "name"), f"{words}keep one algorithm")
    if any(table.centralised for table in study.algorithm):
        yield SettingError(("algorithm", 0, "centralised"), "requires all objectives in one place; remove it")


def _unsupported(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for settings that need what only the sites have."""
    if has_history(study):
        yield SettingError(("agents", "history"), "is evaluated where the study runs, but objectives are at sites; remove it")
    if study.agents.initial_file is not None:
        yield SettingError(("agents", "initial_file"), "is a file that sites do not have; remove it")
    if study.evaluation.make().overlaps:
        yield SettingError(
            ("evaluation",),
            "overlap on Ray, but sites evaluate one point after another; remove parallel, prefetch and resources",
        )
    if study.stopping is not None:
        yield SettingError(("stopping",), "compares evaluations of all agents, which stay at their sites; remove it")
    if study.metric and study.sites is not None and study.sites.share != "nothing":
        yield SettingError(("sites", "share"), 'releases no metrics, without which values mislead; set share = "nothing"')
    if study.cluster is not None:
        yield SettingError(("cluster",), "has workers of a simulation, but sites have their own; remove it")
    for key in ("target", "evaluations"):
        if getattr(study.budget, key) is not None:
            yield SettingError(("budget", key), "depends on values that stay at the sites; set iterations, pulls or time")
    if study.budget.cost is not None:
        yield SettingError(("budget", "cost"), "counts durations that stay at the sites; set iterations, pulls or time")
    for number, table in enumerate(study.fault):
        if isinstance(table.make(), Restart):
            yield SettingError(("fault", number, "kind"), "would end fedbo serve, which nothing starts again; end it by hand")


def _privacy(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for noise that a site could compute."""
    made = [table.make() for table in study.algorithm]
    if any(isinstance(one, Private) for one in made) and not study.privacy.secure_noise:
        yield SettingError(
            ("privacy", "secure_noise"), "must be true: every site knows the study's seed, and could compute its noise"
        )
    hides = any(isinstance(one, LocallyPrivate) and one.hides for one in made)
    if hides and study.sites is not None and study.sites.streams == "study":
        yield SettingError(("sites", "streams"), 'tells everybody the noise of messages; set streams = "secret"')
