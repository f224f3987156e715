"""The room of `fedbo reproduce`."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Reproduce the figures and statements of a paper.",
    tests=("lab/papers",),
    commands={
        "reproduce": Command(
            "fedbo.lab.papers.command:reproduce",
            "Run studies",
            5,
            "Reproduce the figures and statements of a paper.",
            "fedbo reproduce fts --quick",
        )
    },
)
