"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Sharing of points: agents send their best points, or all observations.", tests=("algorithms/collaborative",)
)
