"""The room of `fedbo worth`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Estimate whether federation pays in a study, and whether it did.",
    tests=("lab/worth",),
    commands={
        "worth": Command(
            "fedbo.lab.worth.command:worth",
            "Run studies",
            4,
            "Estimate whether federation pays in a study.",
            "fedbo worth first.toml",
        )
    },
    names={"worth": "fedbo.lab.worth.function:worth"},
)
