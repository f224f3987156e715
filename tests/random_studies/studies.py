"""Random complete studies over every feature of a study file in virtual time: `draw_study(seed)`.

If the checks refuse a drawn study, the next one of the same seed is drawn. Every accepted study must run, so a crash is a
defect of the run or of the checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.algorithms.base import Private
from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.components.surrogate import PENDING_VALUES
from fedbo.objectives.base import Parameter
from fedbo.study.document import StudyError
from fedbo.study.environment.measures import MEASURES
from fedbo.study.problems import goals
from fedbo.study.study import Study, load_study
from fedbo.study.tables import ObjectiveTable
from fedbo_hunt.surroundings import (
    Draws,
    draw_availability,
    draw_exchange,
    draw_fault,
    draw_group,
    draw_timing,
)
from tests.random_studies.files import (
    draw_devices_file,
    draw_durations_file,
    draw_earlier_run,
    draw_history_file,
    draw_initial_file,
    draw_jobs_file,
    draw_trace,
)
from tests.random_studies.methods import OWN
from tests.random_studies.metrics import add_metrics
from tests.random_studies.rarities import add_rarities
from tests.random_studies.runs import (
    draw_cluster,
    draw_early_end,
    draw_evaluation,
    draw_network,
    draw_overlap,
    draw_preemption,
    draw_privacy,
    draw_stopping,
)
from tests.random_studies.settings import KNOWN_FUNCTIONS, draw_algorithm, draw_differences, draw_objective

Document = dict[str, Any]
TRIES = 200
_ALONE = ("ts", "gp_ei", "gp_ucb")
_BANDITS = frozenset(("a_blin", "d_blin", "dp_fed_pne", "fed1_ucb", "fed_pne", "fn_ucb", "gp_ts", "hct", "t_hoo"))


def draw_study(seed: int, folder: Path | None = None, algorithm: str | None = None) -> tuple[Document, Study]:
    """Draw a study that the checks accept: its document and the checked study; the same for the same seed.

    With a `folder`, which must be empty, it may name files, which are written there. `algorithm` names its first algorithm;
    "own" is one outside the catalogue.

    Raises:
        RuntimeError: nearly all drawn studies are refused, so the draws no longer fit the checks.
    """
    refused: list[str] = []
    for number in range(TRIES):
        document = draw_document(np.random.default_rng([seed, number]), folder, algorithm)
        document["study"] |= {"name": f"drawn {seed}"}
        try:
            return document, load_study(document)
        except StudyError as error:
            refused.append(str(error).splitlines()[0])
    raise RuntimeError(f"seed {seed}: all of {TRIES} drawn studies were refused, the last with: {refused[-1]}")


def features(study: Study) -> list[str]:
    """List the features of a study, to count studies by: algorithms, exchange mode, faults, and optional features."""
    policy = study.evaluation.make()
    asked = goals(study)
    has = {
        "private messages": any(isinstance(table.make(), Private) for table in study.algorithm),
        "secure aggregation": study.privacy.secure_aggregation is not None,
        "overlapping evaluations": policy.most_pending > 1,
        "absences": study.availability.model != "always",
        "histories": study.agents.history is not None,
        "groups": bool(study.group),
        "cluster": study.cluster is not None,
        "stopping": study.stopping is not None,
        "cost": study.budget.cost is not None,
        "sweep": bool(study.sweep),
        "open budget": study.budget.is_open,
        "copies": study.cluster is not None and study.cluster.copies is not None,
        "load": study.cluster is not None and study.cluster.background is not None,
        "scaled": study.cluster is not None and any(one.least is not None for one in study.cluster.worker),
        "turns": study.exchange.make().selection.concurrency is not None,
        "informed selection": study.exchange.make().selection.is_informed,
        "limits": asked is not None and asked.constraints > 0,
        "several objectives": asked is not None and asked.several,
        "typed space": study.objective.name == "typed_function",
    }
    found = [f"algorithm {table.name}" for table in study.algorithm] + [f"exchange {study.exchange.mode}"]
    found += [f"fault {fault.kind}" for fault in study.fault] + [name for name, there in has.items() if there]
    return sorted(set(found))


def draw_document(rng: np.random.Generator, folder: Path | None = None, algorithm: str | None = None) -> Document:
    """Draw a study's tables, which need not be consistent. With a folder they may name files there."""
    draws = Draws(rng)
    objective = draw_objective(draws)
    count: int = objective.get("agents") or objective.get("nodes") or 2
    listed = list(range(count))
    names, bandits = _names(draws, None if algorithm == "own" else algorithm)
    private = any(name.startswith(("dp_fts", "dp_fed_prior")) for name in names)
    targets = draws.some_of(listed) if draws.chance(0.2) else listed
    document: Document = {
        "study": {"seed": draws.whole(0, 2**31), **draws.keep(0.2, replicates=2)},
        "objective": objective,
        "agents": _agents(draws, targets, listed),
        "budget": _budget(draws, bandits),
        "algorithm": _algorithms(draws, names),
        "timing": draw_timing(draws, "cost" in objective or "cost_spread" in objective),
        "network": draw_network(draws),
        "exchange": draw_exchange(draws, len(targets), private),
        "evaluation": draw_evaluation(draws) if draws.chance(0.5) else {},
        "privacy": draw_privacy(draws) if private else {},
        "recovery": {"events": draws.one_of(20, 60, 200)},
    }
    if draws.chance(0.5):
        document["availability"] = draw_availability(draws) | draws.keep(0.5, leaving=draws.one_of("resumed", "lost"))
    if folder is not None:
        _name_files(draws, document, folder, targets, listed)
    if draws.chance(0.25):
        document["group"] = [draw_group(draws, listed)]
        if draws.chance(0.6):
            _make_unequal(draws, document, folder)
    groups = ["others"] if "group" in document else []
    document["fault"] = [draw_fault(draws, listed, groups) for _ in range(draws.one_of(0, 0, 1, 1, 2, 4))]
    if any(fault.get("state") == "lost" for fault in document["fault"]) and draws.chance(0.7):
        document["agents"]["checkpoint"] = draws.whole(2, 5)  # after every step a crash forgets nothing
    if _may_never_end(document, bandits) and draws.chance(0.95):
        document["budget"] |= {"time": draws.number(20.0, 200.0)}
    document["sweep"] = _sweep(draws, document) if draws.chance(0.1) else {}
    if draws.chance(0.3):
        document["evaluation"] |= draw_overlap(draws)
        for table in document["algorithm"]:
            table |= draws.keep(0.5, pending_values=draws.one_of(*PENDING_VALUES)) if table["name"] in _ALONE else {}
    if draws.chance(0.2):
        document["cluster"] = draw_cluster(draws, count)
        document["evaluation"] |= draws.keep(0.5, resources=[{"CPU": float(draws.whole(1, 2))} for _ in listed])
        document["fault"] += [draw_preemption(draws) for _ in range(draws.whole(0, 1))]
    document["budget"] |= draw_early_end(draws) if draws.chance(0.1) else {}
    if draws.chance(0.15):  # what is refused for it, such as initial points of another dimension, is drawn again
        document |= draw_stopping(draws, count)
    _let_agents_differ(draws, document, folder, listed)
    add_rarities(draws, document, folder, listed, _parameters(document))
    if draws.chance(0.2):
        add_metrics(draws, document, count)
    # Drawn last: studies of earlier seeds stay as they are but for it.
    document["budget"] |= {"cost": draws.number(0.5, 12.0)} if not private and draws.chance(0.15) else {}
    if draws.chance(0.12) or algorithm == "own":
        document["algorithm"][0] = _own(draws) | {"label": document["algorithm"][0].get("label", "own")}
    if document["exchange"].get("selection", {}).get("others") == "idle" and draws.chance(0.5):
        document["record"] = {"idle": True}
    if document["exchange"]["mode"] == "deadline":
        document["exchange"] |= draws.keep(0.3, lengths=[draws.number(0.2, 6.0) for _ in range(draws.whole(1, 3))])
    if document["exchange"]["mode"] == "barrier" and draws.chance(0.3):
        of_adaptive = {"quorum": draws.number(0.1, 1.0), "factor": draws.number(0.0, 5.0), "length": draws.number(0.2, 6.0)}
        document["exchange"] |= {"mode": "adaptive", **draws.keep(0.5, late="carry", **of_adaptive)}
    if document["exchange"]["mode"] in ("buffered", "immediate") and not private and draws.chance(0.3):
        document["exchange"]["selection"] = {"concurrency": draws.whole(1, len(targets))}
        document["exchange"]["selection"] |= draws.keep(0.3, who=draws.one_of("speed", "tiers"))
    elif not private and draws.chance(0.1):
        others = draws.keep(0.5, others="idle", tiers=draws.whole(2, 4))
        document["exchange"]["selection"] = {"who": "tiers", "share": draws.number(0.1, 1.0), **others}
    if not private and draws.chance(0.1) and document["exchange"].get("selection", {}).get("who") in ("speed", "tiers"):
        document["algorithm"] = [{"name": "share_best", "values": True}]
        document["exchange"]["selection"] |= {"who": "usefulness"} | draws.keep(0.3, age=draws.number(0.0, 1.0))
        document["exchange"]["selection"].pop("tiers", None)
    if draws.chance(0.15):
        every = draws.number(0.1, 2.0)
        document["detection"] = {"heartbeat": every, "timeout": float(f"{every * draws.number(1.0, 4.0):.6g}")}
    if document["budget"].keys() & {"time", "evaluations", "cost"} and not private and draws.chance(0.3):
        document["budget"].pop("iterations", None)
        document["budget"] |= {"time": min(document["budget"]["time"], 12.0)} if "time" in document["budget"] else {}
    if "cluster" in document and "stopping" not in document and draws.chance(0.4):
        often = {"after": draws.number(0.3, 2.0), "quantile": draws.number(0.05, 0.8)}
        document["cluster"]["copies"] = draws.keep(0.8, **often)
    if "cluster" in document and folder is not None and draws.chance(0.4):
        background = {"file": draw_jobs_file(draws, folder)}
        background |= draws.keep(0.3, unit=draws.number(0.5, 3.0), start=draws.number(0.0, 8.0))
        document["cluster"]["background"] = background
    for worker in document.get("cluster", {}).get("worker", ()):
        if draws.chance(0.4):
            worker["least"] = draws.whole(0, worker["count"])
            worker |= draws.keep(0.7, delay=draws.number(0.05, 2.0), idle=draws.number(0.05, 3.0))
    if "k" in document["exchange"] and draws.chance(0.2):
        document["exchange"]["k"] = draws.number(0.05, 0.95)
    if draws.chance(0.1):
        document["timing"] = {**document["timing"], "unit": "min"}
    return {name: table for name, table in document.items() if table}


def _name_files(draws: Draws, document: Document, folder: Path, targets: list[int], listed: list[int]) -> None:
    """Draw initial points, absences, durations or histories from files, with small probabilities."""
    if draws.chance(0.15):
        document["availability"] = {"model": "trace", "file": draw_trace(draws, folder, listed)}
    parameters = _parameters(document) if draws.chance(0.15) else ()
    if parameters:
        replicates = document["study"].get("replicates", 1)
        document["agents"].pop("initial", None)
        document["agents"]["initial_file"] = draw_initial_file(draws, folder, targets, replicates, len(parameters))
    if draws.chance(0.1):
        document["timing"] = {**document.get("timing", {}), "devices": draw_devices_file(draws, folder)}
        document["timing"].pop("speed", None)
        document.get("network", {}).pop("bandwidth", None)
    if draws.chance(0.15):
        measured = {"model": "empirical", "file": draw_durations_file(draws, folder, listed)}
        measured |= draws.keep(0.4, pooled=True, order="replayed", mean=draws.number(0.3, 2.0))
        document["timing"] = document.get("timing", {}) | {draws.one_of("evaluation", "latency"): measured}
    parameters = _parameters(document) if draws.chance(0.1) else ()
    if parameters:
        document["agents"]["history"] = {"file": draw_history_file(draws, folder, listed, parameters)}


def _parameters(document: Document) -> Sequence[Parameter]:
    """Return the parameters of a study's objective; none if the study will be refused."""
    try:
        with np.errstate(all="ignore"):  # of what will be refused
            found: Sequence[Parameter] = ObjectiveTable.model_validate(document["objective"]).make().parameters
    except StudyError:
        return ()
    return found


def _make_unequal(draws: Draws, document: Document, folder: Path | None) -> None:
    """Draw a separate budget, history or span for a group, or some of these."""
    (group,) = document["group"]
    counted = "pulls" if "pulls" in document["budget"] else "iterations"
    most = document["budget"][counted]
    group |= draws.keep(0.6, **{counted: draws.whole(1, 2 * most)})
    if "initial_file" not in document["agents"]:
        group |= draws.keep(0.4, initial=draws.whole(0, 5))
    start = draws.number(0.5, 6.0)
    group |= draws.keep(0.3, **{"from": start}) | draws.keep(0.3, until=start + draws.number(1.0, 12.0))
    parameters = _parameters(document) if folder is not None and draws.chance(0.3) else ()
    if folder is not None and parameters:
        group["history"] = {"file": draw_history_file(draws, folder, group["agents"], parameters)}
        group["history"] |= draws.keep(0.4, observations=draws.whole(1, 4))
    elif draws.chance(0.3):
        group["history"] = {"algorithm": "random", "observations": draws.whole(1, 8), "initial": 1}


def _let_agents_differ(draws: Draws, document: Document, folder: Path | None, listed: list[int]) -> None:
    """Make functions, groups and histories differ between agents, with small probabilities."""
    known = document["objective"]["name"] in KNOWN_FUNCTIONS
    if known and draws.chance(0.3):
        document["objective"] |= {"differences": draw_differences(draws, "noise" in document["objective"])}
    if "group" in document and draws.chance(0.5):
        functions = [*MEASURES, *(one.name for one in _parameters(document))]
        _take_by_measure(draws, document["group"][0], functions if known else ["number"])
    parameters = _parameters(document) if folder is not None and draws.chance(0.1) else ()
    if folder is not None and parameters:
        document["agents"]["history"] = {"run": draw_earlier_run(draws, folder, listed, parameters)}


def _take_by_measure(draws: Draws, group: Document, measures: Sequence[str]) -> None:
    """Select a group by a share of a measure, and remove its own budget and history."""
    for key in ("agents", "iterations", "pulls", "initial", "history"):
        group.pop(key, None)
    group |= {"share": draws.number(0.3, 0.8), "by": draws.one_of(*measures)}


def _may_never_end(document: Document, bandits: bool) -> bool:
    """Check whether steps may restart forever: such a study takes long to be given up, and few of them suffice."""
    losing = any(table.get("leaving") == "lost" for table in (document.get("availability", {}), *document.get("group", ())))
    return losing or (bandits and any(fault["kind"] == "crash" and "rate" in fault for fault in document["fault"]))


def _names(draws: Draws, given: str | None) -> tuple[list[str], bool]:
    """Draw one or two algorithms with budgets of one kind; the first is `given`, if set."""
    every = list(algorithms())
    drawn = draws.one_of(*every)
    first = given or drawn
    bandits = first in _BANDITS
    others = [name for name in every if (name in _BANDITS) == bandits]
    return [first, *([draws.one_of(*others)] if draws.chance(0.3) else [])], bandits


def _algorithms(draws: Draws, names: list[str]) -> list[Document]:
    varied = draws.one_of(0.0, 0.1, 0.3)
    tables = [draw_algorithm(draws, name, varied) for name in names]
    for number, table in enumerate(tables):
        if len(tables) > 1:
            table["label"] = f"method {number + 1}"
        if draws.chance(0.07):
            table["centralised"] = True
    return tables


def _own(draws: Draws) -> Document:
    """Draw the table of a method of somebody's own."""
    flags = {name: True for name in ("long", "noted", "refuses", "shy") if draws.chance(0.2)}
    return {"name": OWN, **draws.keep(0.4, points=draws.whole(0, 3), every=draws.whole(1, 3), length=0.4), **flags}


def _agents(draws: Draws, targets: list[int], listed: list[int]) -> Document:
    table: Document = {"initial": draws.whole(0, 4)} if draws.chance(0.8) else {}
    table |= {} if targets == listed else {"targets": targets}
    table |= draws.keep(0.3, checkpoint=draws.whole(1, 4))
    if draws.chance(0.2):
        algorithm = draws.one_of("random", {"name": "ts", "refit": 1000, "features": 12})
        table["history"] = {"algorithm": algorithm, "observations": draws.whole(1, 6), "initial": 1}
        table["history"] |= draws.keep(0.3, fresh=False)
    return table


def _budget(draws: Draws, bandits: bool) -> Document:
    if bandits or draws.chance(0.1):
        table: Document = {"pulls": draws.whole(5, 120 if bandits else 15)}
    else:
        table = {"iterations": draws.one_of(1, 2, 3, 4, 6, 9)}
    return table | draws.keep(0.2, time=draws.number(1.0, 40.0))


def _sweep(draws: Draws, document: Document) -> Document:
    """Draw two values of one key."""
    return draws.one_of(
        {"exchange.mode": ["barrier", "immediate"]},
        {"objective.agents": [2, 3]},
        {"network.attempts": [1, 3]},
        {"agents.initial": [1, 2]},
        {"timing.latency.mean": [0.0, 0.5]},
    )
