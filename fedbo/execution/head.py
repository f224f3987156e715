"""The head of the Ray that a process uses: whether it answers, before Ray ends the process because it does not."""

from __future__ import annotations

import os
import socket
import time

from fedbo.settings.errors import FedboError

ADDRESSES = "local, auto, HOST:PORT or ray://HOST:PORT"
LOOKED_EVERY = 2.0  # seconds between two looks at the head
_TIMEOUT = 1.0  # seconds for one of them
_PATIENCE = 0.75  # the share of the time that Ray waits for a silent head, after which it ends the whole process


class HeadLostError(FedboError, RuntimeError):
    """The head of the Ray cluster no longer answers, and Ray would soon end this process."""


class Head:
    """The control store (GCS) at an address, empty where it is not known. Ray ends a process whose head is silent too long."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._limit = _PATIENCE * float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60"))
        self._looked = self._heard = time.monotonic()

    def check(self) -> None:
        """Look at the head now and then; HeadLostError once it has been silent for most of the time that Ray waits."""
        if not self._address or time.monotonic() - self._looked < LOOKED_EVERY:
            return
        answers = no_answer(self._address, _TIMEOUT) is None
        self._looked = time.monotonic()
        self._heard = self._looked if answers else self._heard
        if (silent := self._looked - self._heard) > self._limit:
            words = f"the head of the Ray cluster at {self._address} has not answered for {silent:.0f} s"
            remedy = f"give a new --address ({ADDRESSES}; in Python hosting.address=…) when you continue"
            raise HeadLostError(f"{words}; {remedy}")


def no_answer(address: str, timeout: float) -> OSError | None:
    """Return why an address accepts no connection within so many seconds; None where it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except OSError as error:
        return error
    return None
