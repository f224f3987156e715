"""The room of `fedbo watch`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Show the progress of a run in another process, on a terminal or a browser.",
    tests=("commands/watch",),
    commands={
        "watch": Command(
            "fedbo.commands.watch.command:watch", "Inspect runs", 5, "Show a run in progress.", "fedbo watch runs/first"
        )
    },
)
