"""Warnings before a study runs: steps that may be interrupted forever, and ids in a file that no agent follows."""

from __future__ import annotations

from math import log

from fedbo.coordinator.endless import STARTS
from fedbo.coordinator.environment.availability import Trace
from fedbo.coordinator.environment.faults import Crash
from fedbo.coordinator.environment.measured import Empirical
from fedbo.study.environment.models import capacities
from fedbo.study.study import Study


def endless_warning(study: Study) -> str | None:
    """Return a line about the first fault that begins more often than an evaluation lasts; empty if there is none.

    An evaluation of length D ends before the next crash of a Poisson process with probability exp(-rate D). A run is given up
    after `STARTS` steps that did not.
    """
    for cell in study.cells():
        mean = getattr(cell.study.timing.evaluation.make(), "mean", None)
        for table in cell.study.fault:
            fault = table.make()
            if isinstance(fault, Crash) and fault.rate and mean is not None and fault.rate * mean > log(STARTS):
                words = f"{fault.rate * mean:.3g} crashes are expected per evaluation of mean length {mean:g}"
                return f"{words}, so a step may never end; decrease [[fault]] rate = {fault.rate:g}, or shorten evaluations"
    return None


def unused_ids(study: Study) -> str | None:
    """Return a line about the first file of times with more ids than agents; None if there is none."""
    for cell in study.cells():
        tables, count, devices = cell.study, cell.study.federation().n_agents, cell.study.timing.devices
        models = [(tables.availability, "[availability]"), (tables.timing.evaluation, "[timing] evaluation")]
        models += [(tables.timing.latency, "[timing] latency")]
        for group in tables.group:
            own = (group.availability, group.evaluation, group.latency)
            models += [(table, f"[[group]] '{group.name}'") for table in own if table is not None]
        made = [(table.make(), where) for table, where in models if table.settings.get("data") is None]
        found = [(model.ids, where) for model, where in made if isinstance(model, Trace | Empirical)]
        found += [] if devices is None else [(len(capacities(devices)), "[timing] devices")]
        for ids, where in found:
            if ids > count:
                return f"{where}: the file has {ids:,} ids; {count:,} agents follow the {count:,} smallest, nobody the others"
    return None
