"""Parts of a random study that hunts do not vary: network, clusters, early stopping, privacy, evaluation."""

from __future__ import annotations

from typing import Any

from fedbo.stopping.stoppers import STOPPERS
from fedbo.workers.models import RULES
from fedbo_hunt.surroundings import Draws, draw_bandwidth, draw_law

Table = dict[str, Any]


def draw_network(draws: Draws) -> Table:
    """Draw [network]."""
    return draws.keep(
        0.35,
        bandwidth=draw_bandwidth(draws, 200.0, 20000.0),
        link=draws.number(500.0, 20000.0),
        retry=draws.number(0.1, 3.0),
        attempts=draws.whole(1, 5),
    )


def draw_overlap(draws: Draws) -> Table:
    """Draw settings that make evaluations of one agent overlap in virtual time."""
    return {"parallel": draws.whole(2, 5), **draws.keep(0.3, prefetch=draws.whole(1, 2), wait="all")}


def draw_cluster(draws: Draws, agents: int) -> Table:
    """Draw [cluster]."""
    saves = {"every": draws.number(0.1, 2.0), **draws.keep(0.7, cost=draws.number(0.0, 0.3))}
    table: Table = draws.keep(0.7, rule=draws.one_of(*RULES)) | draws.keep(0.3, checkpoint=saves)
    if table.get("rule") == "priority":
        table |= {"priorities": [float(draws.whole(0, 2)) for _ in range(agents)]}
    if draws.chance(0.5):
        return table | {"workers": draws.whole(1, 6)} | draws.keep(0.3, startup=draws.number(0.05, 0.5))
    names = ["fast", "spot"][: draws.whole(1, 2)]
    return table | {"worker": [{"name": name, **_worker(draws, name == "spot")} for name in names]}


def _worker(draws: Draws, may_leave: bool) -> Table:
    table = {"count": draws.whole(1, 3), "cpus": float(draws.whole(2, 4)), "speed": draws.number(0.5, 3.0)}
    table |= draws.keep(0.3, gpus=1.0, memory=1000.0, startup=draws.number(0.05, 0.5))
    return table | (draws.keep(0.4, joins=draws.number(0.1, 3.0), leaves=draws.number(4.0, 20.0)) if may_leave else {})


def draw_preemption(draws: Draws) -> Table:
    """Draw a [[fault]] of workers."""
    at = draws.number(0.1, 8.0)
    times = {"at": at if draws.chance(0.7) else [at, at + 0.5]}
    table: Table = {
        "kind": "preemption",
        **draws.one_of(times, {"rate": draws.number(0.01, 0.2), **draws.keep(0.3, together=True)}),
    }
    # One that lasted for good would let evaluations wait until the study is given up.
    table["duration"] = draw_law(draws) if draws.chance(0.3) else draws.number(0.1, 3.0)
    return table | draws.keep(0.5, checkpoint=draws.number(0.01, 0.3)) | draws.keep(0.3, notice=draws.number(0.05, 1.0))


def draw_stopping(draws: Draws, agents: int) -> Table:
    """Draw [stopping], and a suitable objective."""
    objective = {"name": "learning_curves", "agents": agents, "epochs": draws.one_of(2, 9, 30)}
    objective |= draws.keep(0.3, noise=draws.number(0.001, 0.1), cost_spread=draws.number(0.0, 1.0))
    kind = draws.one_of(*STOPPERS)
    if kind == "median":
        stopping = draws.keep(0.5, grace=draws.whole(1, 3), interval=draws.whole(1, 9), others=draws.whole(1, 3))
    else:
        stopping = draws.keep(0.6, reduction=draws.whole(2, 4), variant="promote", checkpoint=draws.number(0.01, 0.5))
    return {"objective": objective, "stopping": {"kind": kind, **stopping}}


def draw_early_end(draws: Draws) -> Table:
    """Draw conditions that end a study before its agents have used their budgets."""
    return draws.keep(0.5, evaluations=draws.whole(1, 40), target=draws.number(-10.0, 3.0))


def draw_privacy(draws: Draws) -> Table:
    """Draw [privacy]."""
    masks = draws.keep(0.5, threshold=draws.number(0.51, 1.0), bits=draws.whole(32, 64), fraction=draws.whole(0, 24))
    most, delta = draws.number(0.05, 5.0), draws.number(1e-5, 0.1)
    terms = draws.keep(0.3, epsilon_max=most, deltas=[delta, delta / 20])
    return terms | draws.keep(0.4, secure_aggregation=masks)


def draw_evaluation(draws: Draws) -> Table:
    """Draw [evaluation] for virtual time."""
    failure = draws.one_of("avoid", "drop", "stop") if draws.chance(0.3) else draws.one_of("avoid", "drop")
    return draws.keep(0.5, retries=draws.whole(0, 2), failure=failure) | draws.keep(0.3, time_limit=draws.number(0.5, 6.0))
