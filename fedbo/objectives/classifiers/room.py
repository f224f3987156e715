"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Classifiers tuned on images, recordings and land mines, with their data sets.", tests=("objectives/classifiers",)
)
