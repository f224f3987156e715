"""Ray, imported at its first use. The import takes a quarter of a second, and a run in one process does not need it."""

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


def actor_losses() -> tuple[type[Exception], ...]:
    """Return the errors by which Ray reports that an actor is gone, out of reach, or could not be started."""
    return ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError
