"""The figure and the report that a run ends with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedbo.settings.rooms import optional
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.analysis.result import Result


def illustrate(result: Result) -> tuple[dict[str, Path], str]:
    """Write a run's figure and report into its directory, and return their paths and one line about what could not be written.

    The run is complete, and no full disk, missing font or setting of matplotlib may let it look as if it had failed.
    """
    written = dict[str, Path]()
    try:
        if result.traces:
            written["figure"] = result.plot()
        if (write_report := optional("write_report")) is not None:
            written["report"] = write_report([result], result.directory / "report.html")
    except Exception as error:
        missing = "report" if "figure" in written or not result.traces else "figure or report"
        words = " ".join(f"{type(error).__name__}: {error}".split())
        again = f"fedbo report {quoted(result.directory)}"
        return written, f"the run is complete, but no {missing} was written: {words}; try {again}"
    return written, ""
