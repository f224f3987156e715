"""Nodes of a Ray cluster: which leave it soon, where actors live on them, and which may be asked for by labels."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from fedbo.actors.late_ray import ray

_LOOKED_EVERY = 1.0  # seconds between two looks, each of which takes a millisecond
_PREEMPTION = 2  # as Ray numbers the reasons why a node leaves; one with work refuses others
_NO_DEADLINE = 60.0  # seconds that a node has left which does not say how many


class NodeLeavesError(RuntimeError):
    """The node of a coordinator leaves the cluster; its run is saved, and goes on elsewhere."""


_last: tuple[float, dict[str, float]] = -_LOOKED_EVERY, {}  # when the last look was, and the nodes that leave
# Where what coordinates a run lives: on a node that no cloud takes away, if the cluster has one that says so or says nothing.
LASTING: dict[str, Any] = {
    "label_selector": {"ray.io/market-type": "!spot"},
    "fallback_strategy": [{"label_selector": {}}],
    "scheduling_strategy": "SPREAD",
}


def spread_over(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of actors and tasks that are spread over the nodes with these labels, or all without any."""
    return {"scheduling_strategy": "SPREAD", **({"label_selector": dict(labels)} if labels else {})}


def leaving() -> dict[str, float]:
    """Return the ids of the nodes that leave the cluster, each with the seconds that it has left, as of a moment ago."""
    global _last
    (last, found), now = _last, time.monotonic()
    if "ray" in sys.modules and now - last >= _LOOKED_EVERY and ray.is_initialized():
        with suppress(Exception):  # a head that does not answer says nothing; who cares for it finds out elsewhere
            told = _gcs().get_draining_nodes(timeout=1)
            found = {node: until / 1000 - time.time() if until else _NO_DEADLINE for node, until in told.items()}
        _last = now, found
    return found


def _gcs() -> Any:
    worker: Any = ray._private.worker.global_worker
    return worker.gcs_client


def this_node_leaves() -> bool:
    """Return whether the node of this process of Ray leaves the cluster."""
    nodes = leaving()
    return bool(nodes) and ray.get_runtime_context().get_node_id() in nodes


def nodes_of(actors: Iterable[Any]) -> list[str]:
    """Return the ids of the nodes on which actors live; "" for one that has none yet."""
    return [ray._private.state.actors(actor._actor_id.hex()).get("Address", {}).get("NodeID", "") for actor in actors]


def announce_leaving(host: str) -> list[str]:
    """Announce that the nodes of a host leave, by its name, address or node's id; return what went wrong."""
    known = ("NodeManagerHostname", "NodeManagerAddress", "NodeName", "NodeID")
    found = [node for node in ray.nodes() if node["Alive"] and host in map(node.get, known)]  # type: ignore[no-untyped-call]
    told = [_gcs().drain_node(node["NodeID"], _PREEMPTION, "a file announced it", 0) for node in found]
    wrong = [f"Ray does not let it leave: {why or 'it gives no reason'}" for taken, why in told if not taken]
    return wrong if found else ["the Ray cluster has no such host"]


def nodes_with(needed: Mapping[str, float], labels: Mapping[str, str]) -> list[str]:
    """Return the ids of living nodes that have so much of each resource, and these labels."""
    plain = {key: value for key, value in labels.items() if not value.startswith(("!", "in("))}  # Ray judges the others itself
    found = [node for node in ray.nodes() if node["Alive"] and plain.items() <= node["Labels"].items()]  # type: ignore[no-untyped-call]
    return [node["NodeID"] for node in found if all(node["Resources"].get(name, 0.0) >= needed[name] for name in needed)]


def grows() -> bool:
    """Return whether the autoscaler of Ray's launcher adds nodes, so that one may come which has what is asked for."""
    told = ray.experimental.internal_kv._internal_kv_get("__autoscaling_status")
    kinds = {} if told is None else json.loads(told)["autoscaler_report"]["node_type_mapping"] or {}
    # Without an autoscaler each node is a type of its own.
    return any(kind != f"node_{node}" for node, kind in kinds.items())
