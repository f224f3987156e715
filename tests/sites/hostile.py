"""Hostile requests over real sockets: what strangers, thieves of a key and broken networks send to a server."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from sync_study import SyncStudy

from fedbo.actors.task import StepReport
from fedbo.sites import wire
from fedbo.sites.certificates import client_context
from fedbo.sites.keys import PrivateKey
from fedbo.sites.orders import encode_report
from fedbo.sites.wire import RequestHead, Sync

Hostile = Callable[[], None]


class Trap:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.system, (f"touch {self.path}",)


class Attacker:
    """Somebody who can reach the server, has captured requests of a site, and has the keys of agents 1 and 2.

    The key of agent 1 is in use elsewhere; that of agent 2 was revoked.
    """

    def __init__(self, study: SyncStudy, port: int, captured: list[bytes], seed: int) -> None:
        self.study, self.port, self.captured = study, port, captured
        self.draws = random.Random(seed)
        self.trap = study.folder / "trap"
        self.pickle = pickle.dumps(Trap(self.trap))
        self._sequence = 10**6
        self.ports: list[int] = []  # from which it has sent, in order

    # How bytes are sent.

    def connect(self, tls: bool = True, newest: ssl.TLSVersion | None = None) -> socket.socket:
        """Return a connection to the server."""
        bare = socket.create_connection(("127.0.0.1", self.port), 60)
        self.ports.append(bare.getsockname()[1])
        if not tls:
            return bare
        context = client_context(self.study.approval(0, self.port).trust)
        if newest is not None:
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, newest
        return context.wrap_socket(bare, server_hostname="127.0.0.1")

    def send(self, data: bytes, *, tls: bool = True, newest: ssl.TLSVersion | None = None, hang_up: bool = False) -> bytes:
        """Send bytes and return what comes back until the server closes the connection; or close it at once."""
        with contextlib.suppress(OSError), self.connect(tls, newest) as connection:
            connection.sendall(data)
            if hang_up:
                return b""
            received = b""
            while piece := connection.recv(2**16):
                received += piece
                if b"\r\n\r\n" in received and len(received) > 2**14:
                    break
            return received
        return b""

    def drip(self, data: bytes, *, tls: bool = True) -> None:
        """Send a byte at a time, each after a while, until the server closes the connection."""
        with contextlib.suppress(OSError), self.connect(tls) as connection:
            connection.settimeout(0.2)
            for place in range(len(data)):
                connection.sendall(data[place : place + 1])
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1):
                        return

    def post(self, body: bytes, *, path: str = wire.SYNC, length: int | None = None, more: bytes = b"") -> bytes:
        """Return an HTTP request."""
        size = len(body) if length is None else length
        return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path.encode(), size, more) + body

    def request(self, body: bytes, *, agent: int = 1, key: PrivateKey | None = None, study: bytes | None = None,
                path: str = wire.SYNC, sequence: int | None = None) -> bytes:  # fmt: skip
        """Return a signed request, by default with the key of agent 1."""
        self._sequence += 1
        head = RequestHead(
            study=self.study.digest if study is None else study,
            agent=agent,
            start=b"attacker",
            sequence=self._sequence if sequence is None else sequence,
            length=0,
            digest=b"",
            signature=b"",
        )
        return wire.sign_request(key or self.study.keys[agent], path, head, body)

    def sync(self, **changed: object) -> bytes:
        """Return the body of a request."""
        fields = {
            "life": 9, "folder": b"attackers folder", "answered": 0, "seen": 0, "confirmed": 0, "reported": 0,
            "chain": bytes(32), "evaluating": 0, "knows_end": False, "has_more": False, "reports": (),
        }  # fmt: skip
        return wire.pack_sync(Sync(**{**fields, **changed}))  # type: ignore[arg-type]

    # What is sent.

    def kinds(self) -> dict[str, Hostile]:
        """Return each kind of hostile request, by name."""
        good, draws = self.post(self.request(self.sync())), self.draws
        cut = draws.randrange(200, len(good) - 1)
        flipped = bytearray(self.request(self.sync(), agent=0))
        flipped[draws.randrange(4, len(flipped))] ^= 1 << draws.randrange(8)
        junk = draws.randbytes(draws.randrange(1, 3000))
        report = encode_report(StepReport(0, 1, 1, None, lease=1), self.study.terms)
        chunked = b"POST /v1/sync HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        calls: dict[str, Hostile] = {
            "truncated head": lambda: self.send(good[: draws.randrange(1, 60)], hang_up=True),
            "truncated body": lambda: self.send(good[:cut], hang_up=True),
            "replayed": lambda: self.send(self.post(draws.choice(self.captured[:-1]))),
            "another study": lambda: self.send(self.post(self.request(self.sync(), study=draws.randbytes(32)))),
            "another agent": lambda: self.send(self.post(self.request(self.sync(), agent=0, key=self.study.keys[1]))),
            "unknown agent": lambda: self.send(self.post(self.request(self.sync(), agent=3, key=self.study.keys[1]))),
            "a key of nobody": lambda: self.send(self.post(self.request(self.sync(), key=PrivateKey.drawn()))),
            "a revoked key": lambda: self.send(self.post(self.request(self.sync(), agent=2))),
            "another folder": lambda: self.send(good),
            "changed byte": lambda: self.send(self.post(bytes(flipped))),
            "10 GB announced": lambda: self.send(self.post(junk, length=10**10)),
            "10^30 bytes announced": lambda: self.send(self.post(junk, length=10**30)),
            "no length": lambda: self.send(chunked),
            "another length": lambda: self.send(self.post(self.request(self.sync()) + b"more")),
            "plain HTTP": lambda: self.send(good, tls=False),
            "an older TLS": lambda: self.send(good, newest=ssl.TLSVersion.TLSv1_2),
            "a pickle": lambda: self.send(self.post(self.pickle + bytes(400))),
            "a signed pickle": lambda: self.send(self.post(self.request(self.pickle))),
            "a pickle as report": lambda: self.send(self.post(self.request(self.sync(reports=((1, self.pickle),))))),
            "the report of another": lambda: self.send(self.post(self.request(self.sync(reports=((1, report),))))),
            "a report too many": lambda: self.send(self.post(self.request(self.sync(reports=((1, b""),) * 17)))),
            "junk": lambda: self.send(b"\x00" + junk),
            "junk as a body": lambda: self.send(self.post(junk + bytes(200))),
            "a signed body of junk": lambda: self.send(self.post(self.request(junk[:200]))),
            "a long head": lambda: self.send(b"POST /v1/sync HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 10**5),
            "another method": lambda: self.send(b"GET /v1/sync HTTP/1.1\r\nHost: x\r\n\r\n"),
            "another path": lambda: self.send(self.post(self.request(self.sync()), path="/v1/../etc")),
            "a sequence of 0": lambda: self.send(self.post(self.request(self.sync(), sequence=0))),
            "a greeting with a sequence": lambda: self.send(self.post(self.request(b"", path=wire.HELLO), path=wire.HELLO)),
            "the signature of a greeting": lambda: self.send(self.post(self.request(self.sync(), path=wire.HELLO))),
        }  # fmt: skip
        return calls

    def slow_kinds(self) -> dict[str, Hostile]:
        """Return kinds that take time: a byte at a time in the handshake, in the head and in the body."""
        good = self.post(self.request(self.sync()))
        hello = bytes.fromhex("1603010200010001fc0303") + bytes(500)

        def slow_body() -> None:
            with contextlib.suppress(OSError), self.connect() as connection:
                connection.sendall(good[:-100])
                while connection.recv(2**16):
                    pass

        return {
            "a slow handshake": lambda: self.drip(hello, tls=False),
            "a slow head": lambda: self.drip(good),
            "a slow body": slow_body,
        }


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    """Return whether a condition comes true."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(condition())
