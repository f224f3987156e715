"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="The learned prior: agents learn the mean and covariance of their objectives from earlier tasks of all.",
    tests=("algorithms/learned_prior",),
)
