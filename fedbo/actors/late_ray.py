"""Ray, imported at its first use. The import takes a quarter of a second, and a run in one process does not need it.

The limits say how often the work of a lost process or machine is started again before the run fails; no study sets them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ray as ray
else:

    class _Late:
        """The module `ray` to those who use it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("ray"), name)

    ray = _Late()

MACHINE_LOSSES = 20  # of the machine at one evaluation, which may be long, on a cluster whose machines may be taken away
HOST_DEATHS = 5  # of a process of agents in real time that has not finished anything since
HOST_LOSSES = 5  # of the hosts of a run in virtual time, which begins again from its last snapshot, without coming further
COORDINATOR_LOSSES = 20  # of the process that coordinates one run, which goes on from its last snapshot
WHY_ONE_DIES = "an objective or a plug-in ends its process by os._exit, by a crash in native code, or by using all memory"


def actor_losses() -> tuple[type[Exception], ...]:
    """Return the errors by which Ray reports that an actor is gone, out of reach, or could not be started."""
    return ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError
