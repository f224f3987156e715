"""Several hosts on one machine: Linux namespaces joined by wires, a Ray cluster in them, and what may befall either.

Each host has its own network, process numbers, name, mounts and `/tmp/ray`, as a machine of its own has; the switch is one more
namespace, so that nothing is added to the machine's own network. Only the file system is shared, as by a file server that all
hosts reach by another network. Hosts end with the process that made them: nothing is left even when that is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PORT = 6379
PATIENCE = 300.0  # seconds for what takes some ten on a machine that has nothing else to do
INIT = "{setup} && echo up && while read -r line; do :; done"  # it ends when its maker does, and its host with it
# How soon Ray gives up a host that is silent: here after four looks without an answer, by default after five slower ones.
WATCHFUL = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "4",
}
SPARING = {"RAY_enable_worker_prestart": "0"}  # a process that nobody asked for takes as long to start as one that is needed


def hindrance() -> str | None:
    """Say why no hosts can be made on this machine, if so."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "hosts are Linux namespaces, which only root can make"
    if absent := [tool for tool in ("ip", "unshare", "nsenter", "mount") if shutil.which(tool) is None]:
        return f"hosts are made with {', '.join(absent)}, which is not installed"
    trial = subprocess.run(
        [
            "unshare",
            "--net",
            "--pid",
            "--mount",
            "--uts",
            "--fork",
            "--mount-proc",
            "ip",
            "link",
            "add",
            "one",
            "type",
            "veth",
            "peer",
            "two",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"this machine lets nobody make namespaces with wires: {trial.stderr.strip()}" if trial.returncode else None


def netem_missing() -> str | None:
    """Say why the wire cannot be made slow and lossy on this machine, if so."""
    if shutil.which("tc") is None:
        return "tc is not installed"
    trial = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    said = subprocess.run(trial, capture_output=True, text=True, check=False)
    return f"the kernel has no netem: {said.stderr.strip()}" if said.returncode else None


@dataclass
class Host:
    """A host: its number, the process that holds it, and the number by which this machine knows its first process."""

    number: int
    holder: subprocess.Popen[str]
    first: int

    @property
    def address(self) -> str:
        """Give the host's IP address."""
        return f"10.77.0.{self.number + 1}"


class Laboratory:
    """Hosts number 0 (the head) to `count` - 1, without Ray at first, and number `count`, which is nobody's.

    `folder` keeps what they have on disk, and in `notes` what an objective notes down, who finds it by FAR_NOTES.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], count: int = 3) -> None:
        self.folder, self.notes, self.count, self._generation = folder, folder / "notes", count, 0
        self.notes.mkdir()
        self.token = folder / "token"
        self.token.write_text(os.urandom(16).hex())
        self.environment = {**WATCHFUL, **environment, "FAR_NOTES": str(self.notes)}
        self._started: list[subprocess.Popen[str]] = []
        self._switch = self._namespace("ip link add bridge type bridge && ip link set bridge up", "switch")
        self.hosts: list[Host] = []
        try:
            for number in range(count + 1):
                self.hosts.append(self._host(number))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let all hosts end, and wait for it."""
        for host in (everything := [*self.hosts, self._switch]):
            host.holder.kill()
        for host in everything:
            end(host)
        for command in self._started:
            abort(command)

    def run(self, number: int, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on a host, with the cluster's token; it is the leader of a process group."""
        inside = ["nsenter", f"--target={self.hosts[number].first}", "--net", "--mount", "--uts", "--pid"]
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token), **SPARING, **self.environment, **environment}
        around = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        started = subprocess.Popen(
            [*inside, "--wd=" + str(self.folder), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**around, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **own},
        )
        self._started.append(started)
        return started

    def start_ray(self) -> None:
        """Start the head, and then the workers side by side."""
        done(self.ray(0))
        for started in [self.ray(number) for number in range(1, self.count)]:
            done(started)

    def ray(self, number: int, **environment: str) -> subprocess.Popen[str]:
        """Start Ray on a host: the head on number 0, else a worker of it."""
        place = ["--head", f"--port={PORT}", "--include-dashboard=false"] if number == 0 else [f"--address={self.address}"]
        size = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", *place, *size]
        return self.run(number, *start, f"--node-ip-address={self.hosts[number].address}", **environment)

    @property
    def address(self) -> str:
        """Give the address of the cluster."""
        return f"{self.hosts[0].address}:{PORT}"

    def cut(self, number: int) -> None:
        """Pull a host's plug out of the switch."""
        self._wire(number, "down")

    def mend(self, number: int) -> None:
        """Put it in again."""
        self._wire(number, "up")

    def shape(self, number: int, *rules: str) -> None:
        """Put rules of `tc` on the wire of a host, on the way out of it: `netem delay 50ms`, `tbf rate 1mbit …`."""
        first = str(self.hosts[number].first)
        said("nsenter", f"--target={first}", "--net", "tc", "qdisc", "replace", "dev", "eth0", "root", *rules)

    def kill(self, number: int) -> None:
        """End a host with all its processes at one stroke."""
        end(self.hosts[number])

    def repair(self) -> None:
        """Bring up again what does not run: dead hosts, with nothing in their memory, and Ray where it has ended."""
        for number, host in enumerate(self.hosts):
            if host.holder.returncode is not None:
                self.hosts[number] = self._host(number)
        for started in [self.ray(n) for n in range(1, self.count) if not self.processes(n, "raylet/raylet")]:
            done(started)

    def renew(self) -> None:
        """End all hosts and put others in their places, as with a new cluster."""
        for host in self.hosts:
            end(host)
        self.hosts = [self._host(host.number) for host in self.hosts]

    def processes(self, number: int, word: str) -> list[int]:
        """List the processes of a host that have a word in their titles, by this machine's numbers."""
        here = os.readlink(f"/proc/{self.hosts[number].first}/ns/pid")
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns/pid") == here and word in (path / "cmdline").read_text():
                    found.append(int(path.name))
            except OSError:
                continue  # it has ended meanwhile
        return sorted(found)

    def _wire(self, number: int, state: str) -> None:
        said("nsenter", f"--target={self._switch.first}", "--net", "ip", "link", "set", f"wire{number}", state)

    def _host(self, number: int) -> Host:
        self._generation += 1
        own = self.folder / f"host-{number}-{self._generation}"
        own.mkdir()
        Path("/tmp/ray").mkdir(exist_ok=True)
        setup = f"hostname host{number} && mount --bind '{own}' /tmp/ray && ip link set lo up"
        host = self._namespace(setup, number)
        inside = [f"--target={self._switch.first}", "--net"]
        subprocess.run(["nsenter", *inside, "ip", "link", "delete", f"wire{number}"], capture_output=True, check=False)
        ends = ["ip", "link", "add", f"wire{number}", "type", "veth", "peer", "name", "eth0", "netns", str(host.first)]
        said("nsenter", *inside, *ends)
        said("nsenter", *inside, "ip", "link", "set", f"wire{number}", "master", "bridge", "up")
        for words in (f"addr add {host.address}/24 dev eth0", "link set eth0 up"):
            said("nsenter", f"--target={host.first}", "--net", "ip", *words.split())
        return host

    def _namespace(self, setup: str, number: int | str) -> Host:
        """Make a process with namespaces of its own, and wait until they are there."""
        holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
            + ["bash", "-c", INIT.format(setup=setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n", f"host {number} could not be made"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        return Host(-1 if isinstance(number, str) else number, holder, int(children[0]))


@contextmanager
def laboratory(folder: Path, environment: Mapping[str, str], count: int = 3) -> Iterator[Laboratory]:
    """Make hosts, and let them end."""
    made = Laboratory(folder, environment, count)
    try:
        yield made
    finally:
        made.close()


def end(host: Host) -> None:
    """End a host's first process, and with it the host."""
    host.holder.kill()
    host.holder.wait()
    for pipe in (host.holder.stdin, host.holder.stdout):
        assert pipe is not None
        pipe.close()
    until = time.monotonic() + 10
    while Path(f"/proc/{host.first}").exists() and time.monotonic() < until:
        time.sleep(0.01)


def abort(command: subprocess.Popen[str]) -> None:
    """End a command with all that it has started, if it has not ended."""
    if command.poll() is None:
        os.killpg(command.pid, signal.SIGKILL)
    command.wait()
    if command.stdout is not None:
        command.stdout.close()


def done(process: subprocess.Popen[str], seconds: float = PATIENCE) -> str:
    """Wait for a command that must do well, and give what it said; one that takes too long is ended."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"it has not ended within {seconds:.0f} s: {process.communicate()[0]}") from None
    assert process.returncode == 0, said
    return said


def said(*command: str) -> str:
    """Run a command of this machine that must do well."""
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, f"{' '.join(command)}: {told.stderr}"
    return told.stdout
