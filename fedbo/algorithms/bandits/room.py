"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Federated and single-agent bandits: on trees of boxes, and on a grid of arms.", tests=("algorithms/bandits",)
)
