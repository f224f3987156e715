"""Bytes and milliseconds of a message between a site and its server, beside Flower's SuperLink and Optuna's gRPC proxy.

One exchange is a message of 100 floats down to one site and one of 100 floats up, on loopback, with nothing to evaluate. All
bytes pass a forwarder that counts both directions; what was sent before the first exchange does not count. The processes of all
three run on this machine, and fedbo and Optuna take turns.

- fedbo: `SyncServer` and `SiteClient`, TLS 1.3, every message signed, with journals and audit logs on the disk on both sides.
- Flower: `flower-superlink` and `flower-supernode` without TLS and without authentication. A client starts a process for each
  message and asks every few seconds, as by default, so its time says nothing about the transport alone.
- Optuna: `run_grpc_proxy_server` on SQLite, without TLS and without authentication. An exchange is ask, an attribute of 100
  floats, and tell; the proxy sends no message down.

Flower and Optuna need a separate environment, which the script creates in the folder for temporary files and keeps, or an
interpreter that has `flwr`, `optuna` and `grpcio`:

    python benchmarks/sites.py [--exchanges 200] [--python ENVIRONMENT/bin/python]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

FLOATS = 100  # in a message
FLOWER = 5  # exchanges, of several seconds each
NEEDED = ("flwr==1.42.0", "optuna", "grpcio")
PATIENCE = 180.0  # seconds for a process to start

CLIENT_APP = """\
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    return Message(RecordDict({"arrays": ArrayRecord([array])}), reply_to=message)
"""
SERVER_APP = """\
import json
import time

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    with open(context.run_config["out"], "w") as out:
        for _ in range(context.run_config["exchanges"] + 1):
            begun = time.perf_counter()
            record = RecordDict({"arrays": ArrayRecord([np.zeros(FLOATS)])})
            (reply,) = grid.send_and_receive([Message(record, dst_node_id=nodes[0], message_type="train")])
            assert not reply.has_error()
            out.write(json.dumps(time.perf_counter() - begun) + "\\\\n")
            out.flush()
        out.write("done\\\\n")
"""
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "exchanges"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "exchanges"

[tool.flwr.app.components]
serverapp = "exchanges.server:app"
clientapp = "exchanges.client:app"

[tool.flwr.app.config]
out = "{out}"
exchanges = {exchanges}
"""


class Forwarder:
    """A port of this machine whose connections lead to another port; it counts the bytes of both directions."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.up = self.down = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def counts(self) -> tuple[int, int]:
        """Return the bytes so far, from and to the site."""
        return self.up, self.down

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            with contextlib.suppress(OSError):
                far = socket.create_connection(("127.0.0.1", self._target))
                for ends, name in (((near, far), "up"), ((far, near), "down")):
                    threading.Thread(target=self._pump, args=(*ends, name), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(2**16):
                setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class Measured:
    """The bytes and seconds of some exchanges."""

    def __init__(self, seconds: list[float], before: tuple[int, int], after: tuple[int, int]) -> None:
        self.seconds = seconds
        self.up, self.down = ((last - first) / len(seconds) for first, last in zip(before, after, strict=True))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command meanwhile."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def listens(port: int) -> None:
    """Wait until somebody listens on a port."""
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > until:
            raise TimeoutError(f"nobody listens on port {port}")
        time.sleep(0.1)


# fedbo.


def study(folder: Path, port: int) -> dict[str, Any]:
    """Return the keys, the approval and the terms of a study of one site, from the folder or new."""
    from fedbo.algorithms.base import Field
    from fedbo.sites.certificates import create_authority
    from fedbo.sites.documents import Approval, Roster, RosterEntry, ServerTrust
    from fedbo.sites.keys import PrivateKey
    from fedbo.sites.terms import SyncTerms

    keys = {}
    for name in ("coordinator", "site"):
        path = folder / f"{name}.key"
        keys[name] = PrivateKey.read(path) if path.exists() else PrivateKey.create(path)
    if not (folder / "authority.pem").exists():
        create_authority(folder, ["127.0.0.1"])
    coordinator = keys["coordinator"].public.hex
    approval = Approval.signed(
        keys["coordinator"],
        study="exchanges",
        terms={},
        nonce="00" * 32,
        agent=0,
        name="site",
        key=keys["site"].public.hex,
        endpoint=f"https://127.0.0.1:{port}",
        trust=ServerTrust(certificate="pinned", authority=(folder / "authority.pem").read_text(encoding="ascii")),
        coordinator=coordinator,
    )
    entries = (RosterEntry(agent=0, name="site", key=keys["site"].public.hex),)
    roster = Roster.signed(keys["coordinator"], study=approval.digest.hex(), coordinator=coordinator, number=0, entries=entries)
    message = {"message": Field((FLOATS,))}
    terms = SyncTerms(agents=1, dim=2, upload=message, download=message, share="nothing", most_rows=1,
                      last_step=10**6, most_points=1, most_evaluations=10**6)  # fmt: skip
    return {**keys, "approval": approval, "roster": roster, "terms": terms}


def with_fedbo(exchanges: int) -> Measured:
    """Measure exchanges of this package."""
    import numpy as np

    from fedbo.actors.task import StepRequest
    from fedbo.algorithms.base import Inbound
    from fedbo.sites.audit import AuditLog
    from fedbo.sites.certificates import server_context
    from fedbo.sites.server import SyncServer

    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        forwarder = Forwarder(port)
        known = study(folder, forwarder.port)
        server = SyncServer(
            folder,
            known["coordinator"],
            known["approval"].digest,
            known["terms"],
            lambda: known["roster"],
            AuditLog(folder / "audit.jsonl"),
            time.monotonic,
        )
        server.start("127.0.0.1", port, server_context(folder))
        seconds, before = list[float](), (0, 0)
        with running(sys.executable, __file__, "--site", str(folder), str(forwarder.port)):
            for step in range(1, exchanges + 2):
                begun = time.perf_counter()
                message = {"message": np.full(FLOATS, float(step))}
                server.order(0, StepRequest(0, step, step, (Inbound(-1, step, 0.0, message),)))
                while not (reports := server.arrived(10.0)):
                    pass
                assert [report.lease for report in reports] == [step]
                server.taken(0, step)
                if step == 1:  # the connection is there
                    before = forwarder.counts()
                else:
                    seconds.append(time.perf_counter() - begun)
            server.end(0, exchanges)
            while not server.told(0):
                time.sleep(0.01)
        server.close()
        return Measured(seconds, before, forwarder.counts())


def fedbo_site(folder: Path, port: int) -> None:
    """Send every message back; this runs in a process of its own."""
    from fedbo.sites.audit import AuditLog
    from fedbo.sites.certificates import client_context
    from fedbo.sites.client import SiteClient
    from fedbo.sites.release import SiteReport

    known = study(folder, port)
    context, audit = client_context(known["approval"].trust), AuditLog(folder / "site" / "audit.jsonl")
    client = SiteClient(folder / "site", known["site"], known["approval"], known["terms"], audit, context, PATIENCE)
    client.start()
    while client.ended is None and not client.lost:
        if (order := client.next_order(1.0)) is not None:
            client.report(SiteReport(0, order.step, 1, order.inbox[0].payload, lease=order.lease))
    client.close()


# Optuna and Flower; the parts below run in the environment that has them.


def with_optuna(python: str, exchanges: int) -> Measured:
    """Measure exchanges of Optuna's gRPC proxy."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        with running(python, __file__, "--optuna-server", f"sqlite:///{folder}/study.db", str(port)):
            listens(port)
            forwarder = Forwarder(port)
            command = [python, __file__, "--optuna-client", str(forwarder.port), str(exchanges)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
                assert client.stdin is not None and client.stdout is not None
                client.stdout.readline()  # it is connected
                before = forwarder.counts()
                client.stdin.write("\n")
                client.stdin.flush()
                seconds = json.loads(client.stdout.readline())
                return Measured(seconds, before, forwarder.counts())


def optuna_server(url: str, port: int) -> None:
    """Serve a database."""
    import optuna

    optuna.storages.run_grpc_proxy_server(optuna.storages.RDBStorage(url), host="127.0.0.1", port=port)


def optuna_client(port: int, exchanges: int) -> None:
    """Ask, send 100 floats, and tell."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=port)
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=1))
    study.tell(study.ask(), 0.0)
    print("ready", flush=True)
    sys.stdin.readline()
    seconds = []
    for number in range(exchanges):
        begun = time.perf_counter()
        trial = study.ask()
        trial.set_user_attr("message", [number + place / 7 for place in range(FLOATS)])
        study.tell(trial, 1.0)
        seconds.append(time.perf_counter() - begun)
    print(json.dumps(seconds), flush=True)


def with_flower(python: str) -> Measured:
    """Measure exchanges of Flower's SuperLink."""
    commands = Path(python).parent
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        app, out = folder / "app", folder / "seconds"
        (app / "exchanges").mkdir(parents=True)
        (app / "pyproject.toml").write_text(PROJECT.format(out=out, exchanges=FLOWER), encoding="ascii")
        for part, text in (("__init__", ""), ("client", CLIENT_APP), ("server", SERVER_APP)):
            text = text.replace("FLOATS", str(FLOATS)).replace("\\\\n", "\\n")
            (app / "exchanges" / f"{part}.py").write_text(text, encoding="ascii")
        (folder / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="ascii",
        )
        own = {
            "FLWR_HOME": name,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{commands}:{os.environ['PATH']}",
        }
        link = [
            str(commands / "flower-superlink"),
            "--insecure",
            "--port",
            str(port),
            "--disable-runtime-dependency-installation",
        ]
        with running(*link, **own):
            listens(port)
            forwarder = Forwarder(port)
            node = [str(commands / "flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{forwarder.port}"]
            with running(*node, "--port", str(free_port()), **own):
                subprocess.run(
                    [str(commands / "flwr"), "run", str(app), "here"],
                    env={**os.environ, **own},
                    check=True,
                    capture_output=True,
                )
                before, lines = (0, 0), list[str]()
                until = time.monotonic() + PATIENCE + 60.0 * FLOWER
                while "done" not in lines and time.monotonic() < until:
                    lines = out.read_text(encoding="ascii").splitlines() if out.exists() else []
                    if len(lines) <= 1:
                        before = forwarder.counts()
                    time.sleep(0.05)
                return Measured([float(line) for line in lines[1:-1]], before, forwarder.counts())


def environment() -> str:
    """Return the interpreter of an environment that has the others, which is created unless it is there."""
    folder = Path(tempfile.gettempdir()) / "fedbo-benchmark-sites"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *NEEDED], check=True)
    return str(python)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--python", help="an interpreter with flwr, optuna and grpcio")
    for hidden in ("site", "optuna-server", "optuna-client"):
        parser.add_argument(f"--{hidden}", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.site:
        fedbo_site(Path(given.site[0]), int(given.site[1]))
    elif given.optuna_server:
        optuna_server(given.optuna_server[0], int(given.optuna_server[1]))
    elif given.optuna_client:
        optuna_client(*map(int, given.optuna_client))
    else:
        python = given.python or environment()
        print(f"{'':10} {'bytes up':>9} {'bytes down':>11} {'ms, least':>10} {'ms, median':>11}   exchanges")
        for turn in range(given.turns):
            kinds = {"fedbo": lambda: with_fedbo(given.exchanges), "Optuna": lambda: with_optuna(python, given.exchanges)}
            if turn == 0:
                kinds["Flower"] = lambda: with_flower(python)
            for name, measure in kinds.items():
                found = measure()
                times = f"{1e3 * min(found.seconds):10.1f} {1e3 * median(found.seconds):11.1f}"
                print(f"{name:10} {found.up:9,.0f} {found.down:11,.0f} {times}   {len(found.seconds)}", flush=True)


if __name__ == "__main__":
    main()
