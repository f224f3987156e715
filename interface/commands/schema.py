"""The command `fedbo schema`: what editors check and complete study files by."""

from __future__ import annotations

from fedbo.commands.arguments import print_json


def schema() -> None:
    """Print the JSON Schema of study files, with the plug-ins that are installed, for editors."""
    from fedbo.study.schema import schema as generated

    print_json(generated())
