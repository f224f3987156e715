"""The declaration of this room."""

from fedbo.settings.rooms import Room

ROOM = Room(
    sentence="Tables of evaluations, and the fast objective that surfaces through them make.",
    tests=("objectives/tables",),
    names={"TableError": "fedbo.objectives.tables.table:TableError"},
    errors=("fedbo.objectives.tables.table:TableError",),
    functions={"table_fingerprint": "fedbo.objectives.tables.table:fingerprint"},
)
