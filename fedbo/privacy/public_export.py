"""The publishable part of a private run: numbers that were released with noise or known beforehand, in one file.

Every entry is listed here, so that a column or a key that is added elsewhere stays private until it is listed.

- Of the study: the parameters of the mechanism. The seed is left out, and all that could help to guess it: it determines the
  initial points of every agent.
- Of the ledger: the parameters and the cost of each release. Left out are the sampled agents, the senders and the times, which
  are the coins that a gain from sampling depends on, and the norm of a sum and the number of clipped messages, without noise.
- Nothing of observations, evaluations, events and times: means over agents have no noise either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.algorithms.reveals import Reveals
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.privacy.ledger import LOCAL
from fedbo.privacy.summary import spending
from fedbo.settings.trust import UntrustedError
from fedbo.settings.version import fedbo_version

RELEASED = (
    "cell", "algorithm", "replicate", "release", "clip", "sensitivity", "noise_multiplier", "noise", "numbers", "share",
    "sampling", "population", "whole", "deltas", "moments", "rdp", "pld", "weights", "epsilon", "refused",
)  # fmt: skip


def export_public(result: Result, path: Path) -> list[str]:
    """Write the public file of a run, and return the labels of the algorithms in it.

    Raises:
        ResultError: no algorithm of the run is private, or its noise follows from a seed. A reader who knows the seed, or
            guesses it, could remove the noise.
        FileExistsError: there is such a file.
    """
    labels = private_labels(result)
    if not labels:
        raise ResultError(f"'{result.directory}': has no private algorithm, so nothing can be published; export a private run")
    releases = result.privacy.to_pylist()
    if seeded := sorted({(row["algorithm"], row["sampling"] in LOCAL) for row in releases if not row["secure"]}):
        words = f"the noise of {', '.join(label for label, _ in seeded)} is drawn from the study's seed and can be removed"
        remedies = (
            "run the study with [privacy] secure_noise = true",
            "serve the study to sites, where each draws its own noise",
        )
        raise ResultError(
            f"'{result.directory}': {words}; {' and '.join(remedies[own] for own in sorted({own for _, own in seeded}))}"
        )
    if path.exists():
        raise FileExistsError(f"'{path}' already exists; choose another file")
    public = {
        "fedbo": fedbo_version(),
        "study": _study(result, labels),
        "releases": [{name: row[name] for name in RELEASED} for row in releases],
    }
    atomic.write_text(path, json.dumps(public, indent=1, default=str) + "\n")
    return labels


def private_labels(result: Result) -> list[str]:
    """List the algorithms whose messages pass a private mechanism, in the order of the study."""
    recorded = {label for label, word in result.manifest.get("reveals", {}).items() if word == Reveals.NOISY_SUMS}
    spent = {row.algorithm for row in spending(result)}
    return [label for label in result.study.labels if label in recorded | spent]


def is_private(result: Result) -> bool:
    """Return whether values of single agents are withheld, also for a run in progress, which has no ledger yet."""
    if private_labels(result) or result.manifest["status"] == "complete":
        return bool(private_labels(result))
    try:
        studies = [cell.study for cell in result.study.cells()]
    except UntrustedError:
        studies = [result.study]
    return any(study.privacy.deltas for study in studies)


def _study(result: Result, labels: list[str]) -> dict[str, Any]:
    """Return the public facts of a study, all of which were fixed before the first evaluation."""
    study, manifest = result.study, result.manifest
    privacy = study.privacy
    masks = privacy.secure_aggregation
    return {
        "name": study.study.name,
        "replicates": study.study.replicates,
        "cells": [str(title) for title in study.titles()],
        "metric": [metric["name"] for metric in manifest["metric"]],
        "parameters": manifest["parameters"],
        "iterations": study.budget.iterations,
        "exchange": study.exchange.mode,
        "deltas": privacy.deltas,
        "epsilon_max": privacy.epsilon_max,
        "secure_aggregation": None if masks is None else masks.model_dump(mode="json"),
        "algorithms": {
            table.title: {"name": Path(table.name).name, "settings": _plain(table.settings)}
            for table in study.algorithm
            if table.title in labels
        },
    }


def _plain(settings: Any) -> Any:
    """Return settings as JSON values; infinity becomes a string."""
    return json.loads(json.dumps(settings, default=str).replace("Infinity", '"inf"'))
