"""The declaration of this room."""

from __future__ import annotations

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Run plain steps, messages and answers of many agents together in virtual time, with equal results.",
    tests=("fast",),
    accelerator="fedbo.fast.accelerate:Accelerator",
)
