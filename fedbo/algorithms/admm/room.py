"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Coupled problems: agents share a resource and agree by the alternating direction method of multipliers.",
    tests=("algorithms/admm",),
)
