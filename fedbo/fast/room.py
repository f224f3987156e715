"""The declaration of this room."""

from __future__ import annotations

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Run plain steps and messages of many agents together in virtual time, with equal results.",
    tests=("fast",),
    functions={
        "windows": "fedbo.fast.accelerate:windows_of",
        "agents_in_columns": "fedbo.fast.accelerate:agents_in_columns",
        "compile_routines": "fedbo.fast.accelerate:compile_routines",
    },
)
