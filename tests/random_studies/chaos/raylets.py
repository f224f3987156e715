"""A Ray cluster of several nodes on this machine, each a raylet with an object store and workers; any part can be killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

STORE = 80 * 2**20  # bytes of a node's object store, about the least that Ray takes
STARTING = 200.0  # seconds that parts of Ray may take to start beside other work
MARK = "RAYLETS_NODE"  # the variable by which the processes of a node are found
NODE = "raylets-node"  # the label by which Ray finds a node
# Tells Ray, by its reason 2, that a node with a label is taken away in so many milliseconds, as its autoscaler does.
DRAINS = """
import sys, time, ray
address, label, value, left = sys.argv[1:]
known = ray._raylet.GcsClient(address=address)
(node,) = [node for node, info in known.get_all_node_info().items() if info.state == 0 and info.labels.get(label) == value]
deadline = int((time.time() + float(left)) * 1000)
taken, why = known.drain_node(node.hex(), 2, "the machine is taken away", deadline)
if not taken:
    sys.exit(why)
"""
QUIET = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    # Beside other work a part takes far longer to start than Ray waits.
    "RAY_raylet_start_wait_time_s": "200",
    "RAY_gcs_rpc_server_connect_timeout_s": "100",
    "RAY_agent_register_timeout_ms": "300000",
}
# How soon Ray gives up a node that is silent: its own times are 5 looks 3 s apart.
WATCHFUL = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2500",
    "RAY_health_check_failure_threshold": "4",
}


class Raylets:
    """A head and `workers` other nodes, each with the labels of `labels` at its place; place 0 is the head.

    `around` is their environment, in which studies on them run too.
    """

    def __init__(self, folder: Path, workers: int, around: Mapping[str, str], labels: Mapping[int, dict[str, str]]) -> None:
        self.folder, self._labels = folder, labels
        self.around = {**os.environ, **QUIET, **WATCHFUL, **around, "RAY_TMPDIR": str(folder)}
        self._started = 0
        self.nodes: dict[int, tuple[subprocess.Popen[bytes], str]] = {}
        self.address = self._free_address()
        self.join(0)
        self._wait_for_nodes(1)
        for place in range(1, workers + 1):  # one by one, as parts of two that start together may choose the same port
            self.join(place)
            self._wait_for_nodes(place + 1)

    def _free_address(self) -> str:
        with socket.socket() as free:
            free.bind(("0.0.0.0", 0))
            port = free.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
            outward.connect(("8.8.8.8", 80))  # which sends nothing, and tells the address by which Ray replaces a local one
            return f"{outward.getsockname()[0]}:{port}"

    def join(self, place: int) -> None:
        """Start a node."""
        self._started += 1
        mark = f"{self.folder.name}-{self._started}"
        where = (f"--address={self.address}", "--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0")
        head = ("--head", f"--port={self.address.rpartition(':')[2]}", "--include-dashboard=false", "--disable-usage-stats")
        words = ["start", "--block", "--num-cpus=1", f"--object-store-memory={STORE}", *(where if place else head)]
        labels = {**self._labels.get(place, {}), NODE: mark}
        words.append("--labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
        with (self.folder / "said.txt").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", *words],
                env={**self.around, MARK: mark},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.nodes[place] = process, mark

    def _wait_for_nodes(self, count: int) -> None:
        """Wait until so many nodes live. One whose start failed, as parts of two can choose the same port, starts again."""
        code = f"import ray; g = ray._raylet.GcsClient(address='{self.address}'); import time\n"
        code += f"while sum(n.state == 0 for n in g.get_all_node_info().values()) < {count}: time.sleep(0.1)"
        until = time.monotonic() + STARTING
        asked = subprocess.Popen(
            [sys.executable, "-c", code], env=self.around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while asked.poll() != 0:
                if time.monotonic() > until:
                    raise TimeoutError(f"Ray has not started: {(self.folder / 'said.txt').read_text(encoding='utf-8')[-500:]}")
                for place in [place for place, (process, _) in self.nodes.items() if place and process.poll() is not None]:
                    self.lose(place)
                    self.join(place)
                if asked.poll():
                    asked = subprocess.Popen(asked.args, env=self.around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.1)
        finally:
            asked.kill()
            asked.wait()

    def id_of(self, mark: str) -> str:
        """Return Ray's id of the living node with a mark."""
        code = f"import ray; g = ray._raylet.GcsClient(address='{self.address}')\n"
        code += "nodes = [key.hex() for key, node in g.get_all_node_info().items() if node.state == 0"
        code += f" and node.labels.get('{NODE}') == '{mark}']; print(*nodes)"
        words = [sys.executable, "-c", code]
        return subprocess.run(
            words, env=self.around, capture_output=True, text=True, timeout=STARTING, check=True
        ).stdout.strip()

    def drain(self, place: int, seconds: float) -> None:
        """Announce to Ray that a node is taken away in so many seconds."""
        words = [self.address, NODE, self.nodes[place][1], str(seconds)]
        subprocess.run([sys.executable, "-c", DRAINS, *words], env=self.around, check=True, timeout=STARTING)

    def lose(self, place: int, name: str = "") -> None:
        """Kill the processes of a node whose command has this name, all by default, without a word."""
        process, mark = self.nodes[place]
        kill_some(self.part(mark), name)
        if not name:
            del self.nodes[place]
            process.kill()
            process.wait()

    def part(self, mark: str) -> dict[int, str]:
        """Return the processes of one node."""
        return processes_with(f"{MARK}={mark}\0".encode())

    def processes(self) -> dict[int, str]:
        """Return the living processes of this cluster, with their commands."""
        return processes_of(self.folder)

    def close(self) -> None:
        """Kill everything."""
        kill(self.folder)
        for process, _ in self.nodes.values():
            process.kill()
            process.wait()


def processes_of(folder: Path) -> dict[int, str]:
    """Return the living processes of the cluster whose files are in a folder, with their commands."""
    return processes_with(f"RAY_TMPDIR={folder}\0".encode())


def processes_with(variable: bytes) -> dict[int, str]:
    """Return the living processes that have a variable of the environment, with their commands."""
    found = dict[int, str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words, around = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                dead = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if not dead and variable in around:
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def kill(folder: Path, name: str = "", draws: random.Random | None = None) -> None:
    """Kill the processes of a cluster as `kill_some` does."""
    kill_some(processes_of(folder), name, draws)


def kill_some(processes: Mapping[int, str], name: str = "", draws: random.Random | None = None) -> None:
    """Kill the processes whose command has this name, or one of them that is drawn."""
    found = sorted((pid, words) for pid, words in processes.items() if name in words)
    for pid, _ in found if draws is None else [draws.choice(found)] if found else []:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def raylets(
    workers: int = 2,
    around: Mapping[str, str] | None = None,
    labels: Mapping[int, dict[str, str]] | None = None,
) -> Iterator[Raylets]:
    """Start a cluster, whose files are in a folder of its own; kill it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # the paths of Ray's sockets have at most 107 bytes
    made: Raylets | None = None
    try:
        made = Raylets(folder, workers, around or {}, labels or {})
        yield made
    finally:
        if made is None:
            kill(folder)
        else:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)
