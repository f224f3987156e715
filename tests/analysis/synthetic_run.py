"""A run directory as a study would leave it, made of drawn numbers: small, quick, and shaped like the real thing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from troubled_life import Life, coordinate

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.manifest import write_manifest
from fedbo.analysis.schemas import EVENTS, OBSERVATIONS, canonical
from fedbo.study.study import Study, load_study

INITIAL = 3


def document(agents: int = 6, iterations: int = 8, replicates: int = 3, **sweep: list[Any]) -> dict[str, Any]:
    """Give a study of random search twice, the second under the name of a federated method.

    `sweep` has dotted keys, with two underscores for each dot.
    """
    swept = {"sweep": {key.replace("__", "."): values for key, values in sweep.items()}} if sweep else {}
    return {
        **swept,
        "study": {"name": "synthetic", "seed": 1, "replicates": replicates},
        "objective": {"name": "digits", "agents": agents},
        "agents": {"initial": INITIAL},
        "budget": {"iterations": iterations},
        "algorithm": [{"name": "random", "label": "Alone"}, {"name": "random", "label": "Together"}],
    }


def write_run(directory: Path, study: dict[str, Any], status: str = "complete", troubled: bool = False) -> Path:
    """Write a run directory: errors fall faster where agents cooperate, and slow agents and absences show.

    A `troubled` one has everything that can go wrong. Cells of a sweep have the same draws, and get worse one by one.
    """
    checked = load_study(study)
    rng = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    happened: list[dict[str, Any]] = []
    cells = checked.cells()
    for cell, label, replicate in itertools.product(range(len(cells)), checked.labels, range(checked.study.replicates)):
        events: list[dict[str, Any]] = []
        for agent in checked.targets:
            if troubled or len(cells) > 1:
                Life(RunKey(cell, label, replicate), agent, troubled, (rows, events)).live(checked.budget.iterations)
            else:
                _live(rng, (label, replicate, agent), checked.budget.iterations, (rows, events))
        if troubled:
            coordinate(events)
        events.sort(key=lambda event: event["time"])
        happened += [{**event, "sequence": number} for number, event in enumerate(events)]
    directory.mkdir(parents=True, exist_ok=True)
    write_manifest(directory, _manifest(checked, status))
    for name, schema, found in (("observations", OBSERVATIONS, rows), ("events", EVENTS, happened)):
        table = canonical(pa.Table.from_pylist(found, schema=schema), checked.labels)
        pq.write_table(table, directory / f"{name}.parquet")
    (directory / "study.toml").write_text(checked.to_toml(), encoding="utf-8")
    return directory


def _manifest(checked: Study, status: str) -> dict[str, Any]:
    cells = checked.cells()
    known = {str(r): {str(a): -0.05 for a in checked.targets} for r in range(checked.study.replicates)}
    return {
        "name": checked.study.name,
        "status": status,
        "study_sha256": "",
        "labels": list(checked.labels),
        "versions": {},
        "plugins": {},
        "code": {},
        "metric": {"name": "error", "sign": -1, "offset": 0.0},
        "parameters": [
            {"name": "C", "low": 0.1, "high": 10.0, "log": True},
            {"name": "gamma", "low": 0, "high": 1, "log": False},
        ],
        "best_values": {str(cell): known for cell in range(len(cells))},
        "cells": [dict(cell.values) for cell in cells],
        "seconds": 1.5,
    }


def _live(rng: np.random.Generator, who: tuple[str, int, int], iterations: int, into: tuple[Any, Any]) -> None:
    label, replicate, agent = who
    key = {"cell": 0, "algorithm": label, "replicate": replicate, "agent": agent}
    pace, now, federated = float(np.exp(0.5 * rng.standard_normal())), 0.0, label == "Together"

    def tell(kind: str, step: int, size: int | None = None) -> None:
        into[1].append({**key, "time": now, "kind": kind, "step": step, "bytes": size})

    for number in range(INITIAL + iterations):
        step = max(0, number - INITIAL + 1)
        if step and rng.random() < 0.1:
            tell("absent", step)
            now += 1.0
            tell("returned", step)
        if step and federated:
            now += 0.1 + 0.4 * rng.random()
        u = rng.random(2)
        origin = "initial" if not step else "federated" if federated and rng.random() < 0.3 + 0.4 / step else "own"
        value = -0.05 - 0.5 * rng.random() * np.exp(-(0.16 if federated else 0.1) * step)
        tell("started", step)
        begun, now = now, now + float(pace * np.exp(0.8 * rng.standard_normal() - 0.32))
        tell("finished", step)
        if federated and step:
            tell("sent", step, 800)
        into[0].append(
            {
                **key, "phase": "search" if step else "initial", "step": step, "query": 0 if step else number,
                "origin": origin, "x": [0.1 * 100 ** u[0], u[1]], "u": list(u), "value": value, "score": value,
                "started": begun, "finished": now, "t_n": number + 1, "pulls": 1, "error": None,
            }
        )  # fmt: skip
    tell("done", iterations)
