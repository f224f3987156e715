"""A warning before a study runs that its steps may be interrupted forever."""

from __future__ import annotations

from math import log

from fedbo.coordinator.endless import STARTS
from fedbo.coordinator.environment.faults import Crash
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
