"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Stop evaluations early, by their values at rungs or by what they report.",
    tests=("stopping",),
    functions={"reported_stopping": "fedbo.stopping.reported:ReportedStopping"},
    tables={"stopping": "fedbo.stopping.table:StoppingTable"},
)
