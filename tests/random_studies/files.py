"""Files for a random study, such as traces and earlier runs, written to a folder when they are drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedbo.actors.storage.rows import Row, RunKey, write_rows
from fedbo.actors.storage.sealed import seal
from fedbo.objectives.base import Parameter
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import from_unit
from fedbo_hunt.surroundings import Draws


def draw_initial_file(draws: Draws, folder: Path, targets: list[int], replicates: int, dimensions: int) -> str:
    """Write initial points of the unit cube for every target and replicate, equally many for each; return the file's path."""
    lines, points = [",".join(["agent", "replicate", "point", *(f"x{n + 1}" for n in range(dimensions))])], draws.whole(1, 3)
    for agent in targets:
        for replicate in range(replicates):
            for point in range(points):
                values = [f"{value:.4f}" for value in draws.rng.random(dimensions)]
                lines.append(",".join([str(agent), str(replicate), str(point), *values]))
    return _write(folder, "points", lines)


def draw_history_file(draws: Draws, folder: Path, agents: list[int], parameters: Sequence[Parameter]) -> str:
    """Write observations of some agents, unequally many, some of them failed; return the file's path."""
    lines = [",".join(["agent", *(parameter.name for parameter in parameters), "value"])]
    for agent in draws.some_of(agents):
        for _ in range(draws.whole(1, 6)):
            x = from_unit(parameters, draws.rng.random(len(parameters)))
            value = "" if lines[1:] and draws.chance(0.1) else repr(float(draws.rng.normal()))
            lines.append(",".join([str(agent), *(repr(float(one)) for one in x), value]))
    return _write(folder, "history", lines)


def draw_earlier_run(draws: Draws, folder: Path, agents: list[int], parameters: Sequence[Parameter]) -> str:
    """Write the directory of an earlier run with observations of some agents, unequally many; return the directory's path."""
    rows = []
    for agent in draws.some_of(agents):
        for t_n in range(1, draws.whole(1, 6) + 1):
            u = draws.rng.random(len(parameters))
            x, value, time = from_unit(parameters, u).tolist(), float(draws.rng.normal()), float(t_n)
            rows.append(
                Row(
                    agent,
                    "search",
                    t_n,
                    query=0,
                    origin="own",
                    x=x,
                    u=u.tolist(),
                    outcome=Outcome(value),
                    started=time - 1.0,
                    finished=time,
                    t_n=t_n,
                )
            )
    directory = folder / f"earlier-{len(list(folder.iterdir()))}"
    directory.mkdir()
    digest = write_rows(rows, RunKey(0, "random", 0), directory / "observations.parquet")
    told: dict[str, Any] = {
        "status": "complete",
        "cells": [{}],
        "labels": ["random"],
        "files": {"observations.parquet": digest},
    }
    told["parameters"] = [[asdict(parameter) for parameter in parameters]]
    (directory / "manifest.json").write_text(seal(told), encoding="utf-8")
    return str(directory)


def draw_durations_file(draws: Draws, folder: Path, agents: list[int]) -> str:
    """Write measured durations of some agents, unequally many; return the file's path."""
    lines, word = ["agent,duration"], draws.one_of("", "", "site ")
    for agent in draws.some_of(agents):
        lines += [f"{word}{agent},{draws.rng.gamma(2.0, 0.5):.4f}" for _ in range(draws.whole(1, 12))]
    return _write(folder, "durations", lines)


def draw_devices_file(draws: Draws, folder: Path) -> str:
    """Write the capacities of a few devices, in FedScale's format; return the file's path."""
    count = draws.whole(1, 5)
    told = {str(n): {"computation": draws.number(20.0, 200.0), "communication": draws.number(2.0, 90.0)} for n in range(count)}
    path = folder / "devices.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    return str(path)


def draw_jobs_file(draws: Draws, folder: Path) -> str:
    """Write a log of jobs of a cluster, in its own columns or as SWF; return the file's path."""
    jobs, lines = list[tuple[float, float, float, int]](), ["submit,start,end,cores"]
    for _ in range(draws.whole(1, 25)):
        submit = draws.number(0.0, 30.0)
        begin = submit + draws.number(0.0, 5.0)
        jobs.append((submit, begin, begin + draws.number(0.05, 6.0), draws.whole(1, 5)))
    if draws.chance(0.3):
        path = folder / f"jobs-{len(list(folder.iterdir()))}.swf"
        rows = [f"{n} {a} {b - a} {c - b} {k} -1 -1 {k} -1 -1 1 1 1 -1 -1 -1 -1 -1" for n, (a, b, c, k) in enumerate(jobs)]
        path.write_text("\n".join(["; drawn", *rows, "99 1 1 -1 -1 -1 -1 2 -1 -1 5 1 1 -1 -1 -1 -1 -1"]) + "\n")
        return str(path)
    return _write(folder, "jobs", [*lines, *(",".join(map(repr, job)) for job in jobs)])


def draw_trace(draws: Draws, folder: Path, agents: list[int]) -> str:
    """Write windows of presence of some agents, the last of them long; return the file's path."""
    lines, word = ["agent,start,end"], draws.one_of("", "", "phone ")
    for agent in draws.some_of(agents):
        time = draws.number(0.0, 2.0)
        for place in range(count := draws.whole(1, 4)):
            end = round(time + (500.0 if place == count - 1 else draws.number(0.5, 8.0)), 3)
            lines.append(f"{word}{agent},{time},{'' if place == count - 1 and draws.chance(0.3) else end}")
            time = round(end + draws.number(0.1, 3.0), 3)
    return _write(folder, "trace", lines)


def _write(folder: Path, name: str, lines: list[str]) -> str:
    path = folder / f"{name}-{len(list(folder.glob('*.csv')))}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)
