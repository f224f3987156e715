"""The room of `fedbo reproduce`, which `pyproject.toml` names as an entry point."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Reproduce the figures and statements of a paper.",
    commands={
        "reproduce": Command(
            "fedbo_papers.command:reproduce",
            "Run studies",
            5,
            "Reproduce the figures and statements of a paper.",
            "fedbo reproduce fts --quick",
        )
    },
)
