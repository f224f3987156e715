"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Synthetic problems: published functions, draws of a Gaussian process, and functions with constraints.",
    tests=("objectives/synthetic",),
)
