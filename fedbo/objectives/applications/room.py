"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Problems from practice that are computed: vaccination campaigns and settings of compressors.",
    tests=("objectives/applications",),
)
