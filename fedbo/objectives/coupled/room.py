"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Problems whose agents share a resource: plants, toys and a network's flow.", tests=("objectives/coupled",)
)
