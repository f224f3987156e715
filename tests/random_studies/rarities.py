"""Settings that few studies have: measured times of groups, earlier runs by label and cell, warm starts, fault labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbo.objectives.base import Parameter
from fedbo.stopping.stoppers import STOPPERS
from fedbo_hunt.surroundings import Draws
from tests.random_studies.files import draw_durations_file, draw_earlier_run, draw_history_file, draw_trace
from tests.random_studies.settings import draw_algorithm

Document = dict[str, Any]


def add_rarities(
    draws: Draws, document: Document, folder: Path | None, listed: list[int], parameters: Sequence[Parameter]
) -> None:
    """Add rare settings to one study in four, each with a small probability."""
    if not draws.chance(0.25):
        return
    document["study"] |= draws.keep(0.2, description="drawn")
    document["recovery"] |= draws.keep(0.2, seconds=draws.number(0.01, 1.0))
    for number, fault in enumerate(document["fault"]):
        fault |= draws.keep(0.2, label=f"fault {number + 1}")
        classes = [worker["name"] for worker in document.get("cluster", {}).get("worker", ())]
        fault |= draws.keep(0.5, workers=draws.one_of("all", *classes)) if fault["kind"] == "preemption" else {}
    if document.get("stopping", {}).get("kind") in STOPPERS and document["stopping"]["kind"] != "median":
        document["stopping"] |= draws.keep(0.4, smallest=draws.whole(1, 3))
    _vary_times(draws, document, len(parameters))
    _vary_histories(draws, document)
    if folder is not None and parameters:
        _name_rare_files(draws, document, folder, listed, parameters)
    elif folder is not None and draws.chance(0.2):
        document["availability"] = {"model": "trace", "file": draw_trace(draws, folder, listed), "format": "windows"}


def _vary_times(draws: Draws, document: Document, dimensions: int) -> None:
    """Make durations depend on the point or on its cost, and add classes of speed with shares to groups."""
    timing = document.get("timing", {})
    if draws.chance(0.2):
        slopes = [draws.number(-2.0, 2.0) for _ in range(max(1, dimensions))]
        linear = {"model": "log_linear", "mean": draws.number(0.3, 2.0), "slopes": slopes}
        document["timing"] = timing | {"evaluation": linear | draws.keep(0.5, sigma=0.4, between=0.2)}
    elif "cost" in document["objective"] or "cost_spread" in document["objective"]:
        document["timing"] = timing | {"evaluation": {"model": "cost", "rate": draws.number(0.3, 3.0)}}
    for group in document.get("group", ()):
        group |= draws.keep(0.2, speed={"factors": [1.0, draws.number(1.0, 4.0)], "shares": [1.0, draws.number(0.2, 2.0)]})


def _vary_histories(draws: Draws, document: Document) -> None:
    """Draw the algorithm of earlier tasks, with settings of its own."""
    for table in (document["agents"], *document.get("group", ())):
        history = table.get("history", {})
        if "algorithm" in history and draws.chance(0.8):
            history["algorithm"] = draw_algorithm(draws, draws.one_of("ts", "gp_ei", "gp_ucb"), 0.3)
            history |= draws.keep(0.5, fresh=False)


def _name_rare_files(
    draws: Draws, document: Document, folder: Path, listed: list[int], parameters: Sequence[Parameter]
) -> None:
    """Draw measured times, a trace or an earlier run for groups, and histories from files for all agents."""
    for group in document.get("group", ()):
        if draws.chance(0.3):
            file = draw_durations_file(draws, folder, listed)
            measured = {"model": "empirical", "file": file, "column": "duration", "by": "agent"}
            measured |= draws.keep(0.5, pooled=True, order="replayed", mean=draws.number(0.3, 2.0))
            group |= {draws.one_of("evaluation", "latency"): measured}
        if draws.chance(0.2):
            group["availability"] = {"model": "trace", "file": draw_trace(draws, folder, listed), "format": "windows"}
        if draws.chance(0.2) and "share" not in group:
            group["history"] = {"run": draw_earlier_run(draws, folder, group["agents"], parameters)}
            group["history"] |= draws.keep(0.5, label="random", cell=0)
    if draws.chance(0.2):
        run = draw_earlier_run(draws, folder, listed, parameters)
        document["agents"]["history"] = {"run": run, **draws.keep(0.5, label="random", cell=0)}
    elif draws.chance(0.2):
        document["agents"]["history"] = {"file": draw_history_file(draws, folder, listed, parameters)}
    if not {"run", "file"}.isdisjoint(document["agents"].get("history", ())):
        document["agents"]["history"] |= draws.keep(0.4, warm_start=True)
