"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Published hyperparameter-tuning tasks: surrogate networks, complete tables and GPU kernels, with their data.",
    tests=("objectives/tasks",),
)
