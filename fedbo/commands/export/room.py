"""The room of `fedbo export`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Export a run to other tools, or what a private run may publish.",
    tests=("commands/export",),
    commands={
        "export": Command(
            "fedbo.commands.export.command:export",
            "Inspect runs",
            6,
            "Export the evaluations of a run to other tools.",
            "fedbo export runs/first --to optuna",
        )
    },
)
