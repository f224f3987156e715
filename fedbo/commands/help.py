"""The commands of the command line, and their help: those of the main package, and those of the rooms that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from fedbo.commands.arguments import CODES
from fedbo.settings.errors import in_plugin
from fedbo.settings.rooms import Command, loaded, rooms

# The commands of the main package below the titles of the help, which have this order: the place below the title, where it is
# in this folder, a sentence that fits into one line of a terminal with 80 columns, and an example.
_MAIN = {
    "Run studies": {
        "run": (1, "run:run", "Run a study and print its summary.", "fedbo run first.toml --set budget.iterations=20"),
        "resume": (2, "run:resume", "Resume an interrupted run, or extend a finished one.", "fedbo resume runs/first"),
    },
    "Run studies at sites": {},
    "Inspect runs": {
        "show": (1, "inspect:show", "Print the summary of a run.", "fedbo show runs/first --trouble"),
        "compare": (2, "inspect:compare", "Print several runs side by side.", "fedbo compare runs/first runs/second"),
        "plot": (3, "inspect:plot", "Draw a figure of a run.", "fedbo plot runs/first --kind timeline --out timeline.pdf"),
    },
    "Analyse what-if questions": {
        "replay": (
            4,
            "inspect:replay",
            "Repeat a run and check that its results are the same.",
            "fedbo replay runs/first --verify",
        )
    },
    "Write studies and plug-ins": {
        "new": (1, "new:new", "Write a small example: a study or your own method.", "fedbo new study first"),
        "examples": (2, "new:examples", "List or copy the studies that come with fedbo.", "fedbo examples digits"),
        "validate": (3, "inspect:validate", "Check a study and estimate its cost.", "fedbo validate first.toml --time"),
        "schema": (
            4,
            "listing:schema",
            "Print the JSON Schema of study files, for editors.",
            "fedbo schema > study.schema.json",
        ),
    },
    "Look up names and data": {
        "list": (1, "listing:list_names", "List methods, objectives, models and their settings.", "fedbo list algorithms"),
        "data": (2, "listing:data", "List and fetch public data sets.", "fedbo data fetch landmine"),
        "doctor": (3, "doctor:doctor", "Check the installation.", "fedbo doctor"),
    },
}
TITLES = tuple(_MAIN)


@cache
def commands() -> dict[str, Command]:
    """Return all commands by their names, in the order of the help: those of the main package and of the rooms."""
    found = {name: command for room in rooms().values() for name, command in room.commands.items()}
    found |= {
        name: Command(f"fedbo.commands.{function}", title, place, sentence, example)
        for title, group in _MAIN.items()
        for name, (place, function, sentence, example) in group.items()
    }
    return dict(sorted(found.items(), key=lambda item: (TITLES.index(item[1].title), item[1].place)))


@cache
def _made(name: str) -> Any:
    """Import and return a command with its options; KeyError if there is none of this name."""
    declared = commands()[name]
    function = loaded(declared.function)
    if isinstance(function, typer.Typer):
        made: Any = typer.main.get_group(function)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command()(function)
        made = typer.main.get_command(alone)
    made.name, made.short_help = name, declared.sentence
    made.epilog = f"\b\nExample:\n  {declared.example}\n\n{CODES}"  # \b keeps the lines of a paragraph as they are
    return made


class _Commands(Mapping[str, Any]):
    """All commands by name. Each is imported when it is asked for: the options of all take longer than most commands."""

    def __getitem__(self, name: str) -> Any:
        return _made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(commands())

    def __len__(self) -> int:
        return len(commands())


class GroupedCommands(TyperGroup):
    """The command `fedbo`, whose help lists its commands below titles with whole sentences."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _Commands()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None if there is none. An error says which plug-in has it, if it is known."""
        if cmd_name not in self.commands and (lacking := in_plugin("command", cmd_name)):
            ctx.fail(lacking)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, and import none."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each title that has commands."""
        for title in TITLES:
            listed = [(name.ljust(9), found.sentence) for name, found in commands().items() if found.title == title]
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)
