"""Every constant of a size, a time or a count is a knob that random studies turn, or is named here with the reason why not."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

from tests.random_studies.chaos.knobs import KNOBS, draw_knobs, in_words, turned

ROOT = Path(__file__).parents[2]
PLACES = (
    "actors",
    "coordinator",
    "fast",
    "privacy",
    "stopping",
    "workers",
    "execution",
    "commands/watch",
    "algorithms/messages.py",
)
# Results, messages or what a user is told depend on these, or only speed does and nothing that can go wrong. This list shrinks.
FIXED = {
    "decides which numbers are drawn": {"duration_blocks._BLOCK", "turns.TRIES"},
    "is part of a format on disk": {"evaluations.NAN", "rows._LABEL", "sealed.FORMAT", "encoding.DEPTH", "noise.KEY_BYTES"},
    "is part of a result": {
        *("messages.ROUNDING", "aggregator.GRID", "gaussian.LARGEST_NOISE", "displacement._FARTHEST"),
        *("overlap._TICK", "secret_sharing.FIELD", "failed_points.TRIES", "loss_sums._TAIL"),
    },
    "decides which study is given up, and what it is told": {
        *("endless.STARTS", "endless.STARTS_EACH", "endless.EVENTS", "endless.EVENTS_EACH", "endless.LEFT"),
        *("late_ray.MACHINE_LOSSES", "late_ray.HOST_DEATHS", "late_ray.HOST_LOSSES"),
        "late_ray.COORDINATOR_LOSSES",
    },
    "is a limit or a place of a figure": {"timeline.MAX_WORKERS", "timeline._QUEUE"},
    "is an index, or how many there are": {
        *("pending.DECISION", "event_queue._LAST", "window_kernel.N_MARKS", "window_kernel.N_FOUND"),
        *("sleeping._ABSENCE", "copies.COPY", "models.LOAD", "scaling.STARTED"),
    },
    "is a unit or a number of the system": {"ray_pool.MIB", "isolated.MIB", "atomic._SECTOR", "rows._LEAST_WIDTH"}
    | {"children._PR_SET_PDEATHSIG", "nodes._PREEMPTION"},
    "waits for other machines or shows progress": {
        *("cluster._CONNECT_TIMEOUT", "hosts._INSTALL_TIMEOUT", "hosts._SHARE_TIMEOUT", "ray_pool._POLL"),
        *("workers._LOST_AFTER", "supervision._HALT_TIMEOUT", "head._PATIENCE", "head._TIMEOUT", "head.LOOKED_EVERY"),
        *("progress._ROWS", "progress._EVERY", "progress._RARER", "progress._SURE"),
        *("command._PATIENCE", "run_watch._TRIES", "nodes._LOOKED_EVERY", "nodes._NO_DEADLINE", "actor._TO_END"),
    },
    "is a limit that a user is told": {
        *("messages._FEW_WORDS", "rows._SHARE_OF_MEMORY", "contained.LONGEST", "evaluate.LONGEST"),
        *("gaussian.WEAK_DELTA", "command._SMALL_DELTA", "table._RUNGS"),
    },
}


def constants() -> dict[str, str]:
    """List the modules with constants of numbers by `module.NAME`."""
    found = {}
    for place in (ROOT / "fedbo" / one for one in PLACES):
        for path in place.rglob("*.py") if place.is_dir() else (place,):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(path.read_text()).body:
                if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                    continue
                name = node.targets[0].id
                if name.isupper() and type(getattr(import_module(module), name)) in (int, float):
                    found[f"{module}.{name}"] = f"{path.stem}.{name}"
    return found


def test_every_constant_is_turned_or_there_is_a_reason_why_not() -> None:
    reasons = [name for names in FIXED.values() for name in names]
    assert len(reasons) == len(set(reasons))
    turned_here = {name.replace("evaluation.step.MIN_BATCH", "evaluation.batches.MIN_BATCH") for name in KNOBS}
    found = constants()
    assert set(found) == {name for name, short in found.items() if short in reasons} | (turned_here & set(found))
    assert turned_here <= set(found) and set(reasons) <= set(found.values()), "a constant of that name is no longer there"
    assert not {short for name, short in found.items() if name in turned_here} & set(reasons)


def test_knobs_are_drawn_by_their_key_and_set_back() -> None:
    assert draw_knobs("kills", 3, 0) == draw_knobs("kills", 3, 0)
    drawn = [draw_knobs("kills", seed) for seed in range(60)]
    assert {name for knobs in drawn for name in knobs} == set(KNOBS) and {} in drawn
    hosts = import_module("fedbo.actors.hosts")
    before = hosts._MOST
    with turned({"fedbo.actors.hosts._MOST": 2}):
        assert hosts._MOST == 2
    assert hosts._MOST == before
    assert in_words({"fedbo.actors.hosts._MOST": 2}) == "actors.hosts._MOST = 2"
