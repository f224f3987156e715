"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Guides: agents send where their optima may be, and search there.",
    tests=("algorithms/guide",),
)
