"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Variants of core methods whose messages are differentially private.",
    tests=("algorithms/private",),
    needs=("algorithms/collaborative", "algorithms/learned_prior", "privacy"),
)
