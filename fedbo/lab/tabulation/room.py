"""The room of `fedbo tabulate`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Evaluate a slow objective once, for fast studies.",
    tests=("lab/tabulation",),
    needs=("objectives/tables",),
    commands={
        "tabulate": Command(
            "fedbo.lab.tabulation.command:tabulate",
            "Run studies",
            6,
            "Evaluate a slow objective once, for fast studies.",
            "fedbo tabulate landmine --points 200",
        )
    },
    names={"tabulate": "fedbo.lab.tabulation.function:tabulate"},
)
