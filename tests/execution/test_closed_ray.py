"""A Ray that fedbo starts on one machine is closed to all others: it listens on 127.0.0.1 alone, and asks for a token."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# While a study is carried out, the listening sockets of this process and of all below it are collected from /proc.
SCRIPT = """
import json, os, sys, threading, time
import fedbo

def family():
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for each in found:
        found += children.get(each, [])
    return found

def sockets():
    held = set()
    for process in family():
        try:
            for file in os.listdir(f"/proc/{process}/fd"):
                held.add(os.readlink(f"/proc/{process}/fd/{file}"))
        except OSError:
            continue
    for kind in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{kind}").read().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in held:
                yield tuple(words[1].split(":"))

seen, reached, over = set(), {}, threading.Event()

def watch():
    import socket
    while not over.wait(0.1):
        for address, port in {*sockets()} - seen:
            seen.add((address, port))
            with socket.socket() as knock:
                knock.settimeout(2)
                reached[port] = knock.connect_ex((sys.argv[2], int(port, 16)))

watcher = threading.Thread(target=watch)
watcher.start()
study = {"study": {"name": "closed"}, "objective": {"name": "branin", "agents": 2}, "budget": {"iterations": 2},
         "algorithm": [{"name": "random"}], "hosting": {"kind": "dedicated"}}
rows = fedbo.run(study, out=sys.argv[1]).observations.num_rows
over.set(); watcher.join()
print(json.dumps({"rows": rows, "listening": sorted(seen), "reached": reached}))
"""


def own_address() -> str:
    """Return this machine's address in its network, without a packet; 127.0.0.2 where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.2"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="lists sockets by /proc")
@pytest.mark.long
def test_the_ray_of_a_run_listens_on_this_machine_alone(tmp_path: Path) -> None:
    script = tmp_path / "watched.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run"), own_address()],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "RAY_worker_niceness": "0"},  # by default workers starve on a machine that others keep busy
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] and len(found["listening"]) >= 4  # the control store, the raylet and workers were seen at all
    assert {address for address, _ in found["listening"]} <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
        "0" * 24 + "01000000",
    }
    assert all(found["reached"].values()), "a connection by the network's address was taken"


def test_every_version_of_ray_that_is_allowed_asks_for_a_token_by_itself() -> None:
    """Ray does so since 2.59 where it is started by a process for itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    bounds = [found for one in wanted if (found := re.fullmatch(r"ray(?:\[\w+\])?>=(\d+)\.(\d+).*", one))]
    assert bounds and all((int(found[1]), int(found[2])) >= (2, 59) for found in bounds)
