"""Random studies have every key that a study file knows, but for those that are listed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.study.schema import schema
from tests.random_studies.studies import draw_document

MOST = 3000  # documents: each key is drawn in one of 300 at least, so one is missing in a series of 20,000
# Seeds whose documents had every key when they were chosen; once they no longer have, the others are drawn too.
SEEDS = (
    *(2, 77, 99, 190, 519, 598, 713, 753, 914, 1008, 1041, 1391, 1744, 1794, 2372, 2750, 2902, 3061, 3526, 3591),
    *(3608, 3746, 3784, 3896, 3955, 4367, 4615, 4727, 5028, 5268, 5278, 5592, 5780, 5968),
)
# Keys that no random study has, and why. This list shrinks.
NEVER: dict[str, set[str]] = {
    "hosting and clock are what the promises vary": {
        *(
            "hosting",
            "hosting.address",
            "hosting.isolate",
            "hosting.kind",
            "hosting.labels",
            "hosting.package",
            "hosting.patience",
            "hosting.workers",
        ),
        *("timing.clock", "evaluation.memory_limit", "stopping.disk_limit", "study.name"),
    },
    "only a plug-in has these": {"exchange.selection.settings"},
    "no other run has the same bytes": {"privacy.secure_noise"},
    "studies at sites have random tests of their own, tests/sites/test_schedules.py": {
        "sites",
        "sites.lease",
        "sites.share",
        "sites.streams",
    },
    "needs a data set": {
        f"{where}.data" for where in ("timing.evaluation", "timing.latency", "group.evaluation", "group.latency")
    },
    "is refused there, or the default is the column that is drawn": {
        *("timing.latency.rate", "timing.latency.slopes", "group.evaluation.rate", "group.evaluation.slopes"),
        *("group.latency.rate", "group.latency.slopes", "group.history.warm_start"),
        *(f"timing.{what}.{key}" for what in ("evaluation", "latency") for key in ("by", "column")),
    },
    "is as long as something else in the study, or belongs to few algorithms": {
        f"algorithm.{key}"
        for key in "box_high box_low changes high low matrices own.pending_values own.region region total weights".split()
    },
    "belongs to an objective that needs data, trains models, or has these sizes for its paper": {
        f"objective.{key}"
        for key in """
            alpha bandwidth best capacity classes contrast days difference differences.length_scale efficacy epidemic epoch
            exponent features heterogeneity kernel kibibytes latency least likeness log metric_name
            mislabelled names noisy objectives part partition platt quantity repeats repl rho1 rho2 rounds splits steps
            task tmax trainsize zstd
        """.split()
    },
}


def known(node: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """List the keys of a schema by their paths; the settings of an earlier task's algorithm are those of [[algorithm]]."""
    while "$ref" in node:
        node = definitions[node["$ref"].split("/")[-1]]
    nested = [part for word in ("anyOf", "oneOf", "allOf") for part in node.get(word, ())]
    nested += [node[word] for word in ("then", "else", "items") if isinstance(node.get(word), dict)]
    for part in nested:
        yield from known(part, definitions, path)
    for key, inner in node.get("properties", {}).items():
        yield ".".join((*path, key))
        if (*path, key)[-2:] != ("history", "algorithm"):
            yield from known(inner, definitions, (*path, key))


def keys_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """List the keys of a document by their paths."""
    for inner in value if isinstance(value, list) else ():
        yield from keys_of(inner, path)
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield ".".join((*path, key))
        yield from keys_of(inner, (*path, key))


def test_every_key_of_a_study_is_drawn_or_named_with_the_reason_why_not(tmp_path: Path) -> None:
    whole, drawn = schema(), set[str]()
    never = {key for keys in NEVER.values() for key in keys}
    there = set(known(whole, whole["$defs"]))
    for seed in dict.fromkeys([*SEEDS, *range(MOST)]):
        (folder := tmp_path / str(seed)).mkdir()
        drawn |= set(keys_of(draw_document(np.random.default_rng(seed), folder)))
        if there <= drawn | never:
            break
    assert there - drawn - never == set(), f"none of the documents of the seeds 0 to {MOST - 1} has these keys"
    assert never - there == set(), "these keys are no longer known"
    assert never & drawn == set(), "these keys are drawn now"
