"""Child processes of an objective, which end with the process that evaluates it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_parent = 0  # the process that is about to fork


def die_with_parent(parent: int) -> None:
    """Ask the kernel to send SIGKILL to this process when its parent's thread ends; exit if `parent` is gone already."""
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _note_parent() -> None:
    global _parent
    _parent = os.getpid()


def _bind_child() -> None:
    """Bind a forked child to its parent if an evaluation forked it; leave children that other code forks alone."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("fedbo.actors.") and frame.f_globals["__name__"] != __name__:
            die_with_parent(_parent)
            return
        frame = frame.f_back


if _libc is not None:
    os.register_at_fork(before=_note_parent, after_in_child=_bind_child)
