"""The room of `fedbo tabulate`, which `pyproject.toml` names as an entry point."""

from fedbo.settings.rooms import Command, Room

ROOM = Room(
    sentence="Evaluate a slow objective once, for fast studies.",
    commands={
        "tabulate": Command(
            "fedbo_tables.command:tabulate",
            "Run studies",
            6,
            "Evaluate a slow objective once, for fast studies.",
            "fedbo tabulate landmine --points 200",
        )
    },
    names={"tabulate": "fedbo_tables.function:tabulate", "TableError": "fedbo_tables.table:TableError"},
    errors=("fedbo_tables.table:TableError",),
    functions={"table_fingerprint": "fedbo_tables.table:fingerprint"},
)
