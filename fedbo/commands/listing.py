"""The commands that list what a study can name, the data sets, and the schema of study files."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedbo.commands.arguments import Format, Printed, print_json

data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List and fetch public data sets.")


def list_names(
    group: Annotated[
        str | None, typer.Argument(help="Group to list: algorithms, objectives, timing, …. Default: all groups.")
    ] = None,
    printed: Printed = Format.text,
) -> None:
    """List the names that a study can use and their settings; for one group, also the allowed values."""
    from fedbo.figures.reports.tables import console, items_table
    from fedbo.settings.errors import unknown
    from fedbo.study.listing import broken, groups

    found = groups()
    if group is not None and group not in found:
        raise typer.BadParameter(unknown("group", group, found))
    chosen = {name: items for name, items in found.items() if group in (None, name)}
    if printed is Format.json:
        print_json({name: [item.plain() for item in items] for name, items in chosen.items()})
        return
    for name, items in chosen.items():
        console().print(items_table(name, items, ranges=group is not None))
    for line in broken():
        print(line, file=sys.stderr)


@data.command("list", epilog="\b\nExample:\n  fedbo data list")
def list_data(printed: Printed = Format.text) -> None:
    """List the data sets and where each one was found."""
    from dataclasses import asdict

    from fedbo.figures.reports.tables import console, data_table
    from fedbo.objectives.datasets.data import inventory

    rows = [{**asdict(row), "where": None if row.where is None else str(row.where)} for row in inventory()]
    if printed is Format.json:
        print_json({"data": rows})
    else:
        console().print(data_table(rows))


@data.command("fetch", epilog="\b\nExample:\n  fedbo data fetch landmine")
def fetch_data(
    name: Annotated[str, typer.Argument(help="Name of a data set; see fedbo data list.", show_default=False)],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="Read it from this file, folder or address instead of its publisher."),
    ] = None,
    printed: Printed = Format.text,
) -> None:
    """Fetch a data set into the user's cache, check its checksum and print its path.

    PLACE is the file itself or the published archive, a folder that contains one of them, or its address.
    """
    from fedbo.objectives.datasets.data import fetch

    try:
        folder = fetch(name, source)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0])) from None
    if printed is Format.json:
        print_json({"name": name, "where": str(folder)})
    else:
        print(f"{name}: {folder}")


def schema() -> None:
    """Print the JSON Schema of study files, including installed plug-ins, for editors."""
    from fedbo.study.schema import schema as generated

    print_json(generated())
