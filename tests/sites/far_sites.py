"""A server and a site as processes of their own, which may be on different hosts and may be killed at any moment.

    python far_sites.py serve FOLDER HOST PORT AGENTS STEPS
    python far_sites.py site FOLDER HOST PORT AGENTS AGENT SECONDS

The server writes each report that counts to `counted.jsonl`, and goes on from there. A site works `SECONDS` on each order, and
writes each to `carried-AGENT.jsonl`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sync_study import SyncStudy

from fedbo.actors.task import StepRequest
from fedbo.sites.release import SiteReport
from fedbo.sites.serve import FAREWELL
from fedbo.sites.server import SyncServer


def note(path: Path, **facts: Any) -> None:
    """Append a line, on the disk."""
    with path.open("a", encoding="ascii") as file:
        file.write(json.dumps(facts) + "\n")
        file.flush()
        os.fsync(file.fileno())


def noted(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; none if there is no file, and without a last one that was cut off."""
    text = path.read_text(encoding="ascii") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def serve(study: SyncStudy, port: int, agents: int, steps: int) -> None:
    """Give every agent `steps` orders, one after the other, and end."""
    counted = study.folder / "counted.jsonl"
    server = study.server()
    server.start("0.0.0.0", port, study.server_context())
    done = dict.fromkeys(range(agents), 0)
    for line in noted(counted):
        done[line["agent"]] = line["step"]
    for agent in range(agents):
        follow(server, agent, done[agent], steps)
    until = float("inf")
    while not all(server.told(agent) for agent in range(agents)) and time.monotonic() < until:
        for report in server.arrived(0.1):
            if report.lease == done[report.agent] + 1:
                note(counted, agent=report.agent, step=report.step, time=time.monotonic())
                done[report.agent] = report.step
            server.taken(report.agent, report.lease)
            follow(server, report.agent, done[report.agent], steps)
        if until == float("inf") and min(done.values()) >= steps:
            until = time.monotonic() + FAREWELL  # a site may have been told by a server that was killed, and be gone
    server.close()


def follow(server: SyncServer, agent: int, done: int, steps: int) -> None:
    """Give the order after the last report that counts, or tell that the study has ended."""
    if done >= steps:
        server.end(agent, done)
    else:
        server.order(agent, StepRequest(agent, done + 1, done + 1))


def work(study: SyncStudy, port: int, agent: int, seconds: float) -> None:
    """Carry orders out until the study has ended."""
    client = study.client(agent, port, patience=600.0)
    client.start()
    while client.ended is None and client.refused is None and not client.lost:
        order = client.next_order(0.5)
        if order is None:
            continue
        client.evaluating(order.lease)
        time.sleep(seconds)
        note(study.folder / f"carried-{agent}.jsonl", step=order.step, time=time.monotonic())
        client.report(SiteReport(agent, order.step, 1, {"mean": np.ones(3), "count": np.array(1)}, lease=order.lease))
    client.close()
    if client.refused is not None:
        sys.exit(client.refused)


if __name__ == "__main__":
    what, folder, host, port, agents, *rest = sys.argv[1:]
    here = SyncStudy(Path(folder), agents=int(agents), host=host)
    if what == "serve":
        serve(here, int(port), int(agents), int(rest[0]))
    else:
        work(here, int(port), int(rest[0]), float(rest[1]))
