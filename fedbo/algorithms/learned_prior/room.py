"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="The learned prior: agents learn mean and covariance from earlier tasks of all.",
    tests=("algorithms/learned_prior",),
)
