"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Transfer: an agent decides by the models, or the ranked observations, that other agents send.",
    tests=("algorithms/transfer",),
)
