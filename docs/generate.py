"""Write the reference pages from the code that they describe: `make reference` after a change of settings, commands or columns.

Each function of `PAGES` returns one page. A test compares the committed pages with what these functions return.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from generate_markdown import clause, code, page, table
from generate_notebooks import NAMES, notebook_of
from generate_python import python
from generate_rows import trouble
from generate_study import algorithms, keys, objectives

ROOT = Path(__file__).resolve().parents[1]


def columns() -> str:
    """Return the page of the columns of a run's tables."""
    from fedbo.actors.storage.rows import OBSERVATIONS, Row, RunKey
    from fedbo.coordinator.logged.table import EVENTS, LoggedEvent
    from fedbo.objectives.outcome import Outcome
    from fedbo.privacy.ledger import RELEASES, LedgerEntry

    intro = ("The columns of the tables of a run, from the classes that write them.", "", "")
    return page(
        "Columns",
        intro,
        _columns("`observations.parquet` and `histories.parquet`", OBSERVATIONS, RunKey, Row, Outcome),
        _columns("`events.parquet`", EVENTS, RunKey, LoggedEvent),
        _kinds(),
        _columns("`privacy.parquet`", RELEASES, RunKey, LedgerEntry),
    )


def _columns(title: str, schema: Any, *kinds: type) -> Iterator[str]:
    from fedbo.settings.ranges import meanings

    known = {name: text for kind in kinds for name, text in meanings(kind).items()}
    yield from (f"## {title}", "")
    rows = [
        (f"`{each.name}`", str(each.type).replace("item: ", "").replace(" not null", ""), clause(known.get(each.name, "")))
        for each in schema
    ]
    yield from table(("column", "type", "meaning"), rows)


def _kinds() -> Iterator[str]:
    """Yield the kinds of events with the columns that each fills, and the reasons in these columns."""
    from fedbo.coordinator.logged.kinds import KINDS
    from fedbo.coordinator.logged.messages import REASONS, LossReason, MissReason, RefusalReason

    yield from ("### Kinds of events", "", "All other columns are null; `time` and `agent` are always known.", "")
    rows = []
    for kind, record in sorted(KINDS.items(), key=lambda item: item[1].__module__):  # those of agents before those of messages
        names = (f"`{name}`" for name in record._fields if name not in ("time", "agent"))
        rows.append((f"`{kind}`", clause(record.__doc__ or ""), ", ".join(names)))
    yield from table(("kind", "columns", "meaning"), [(kind, columns or "–", meaning) for kind, meaning, columns in rows])
    yield from ("### Reasons", "")
    of = {"lost": get_args(LossReason), "missed": get_args(MissReason), "rejected": get_args(RefusalReason)}
    yield from table(
        ("reason", "of", "meaning"),
        [
            (f"`{reason}`", ", ".join(f"`{kind}`" for kind, known in of.items() if reason in known), clause(meaning))
            for reason, meaning in REASONS.items()
        ],
    )


def entry_points() -> str:
    """Return the page of the entry points by which packages add to the catalogues."""
    from fedbo.algorithms.base import Algorithm
    from fedbo.coordinator.environment.availability import Availability
    from fedbo.coordinator.environment.timing import Timing
    from fedbo.coordinator.kernel.exchange import Exchange
    from fedbo.coordinator.selection import Chooser
    from fedbo.objectives.base import Federation
    from fedbo.settings.plugins import GROUPS

    protocols = {"algorithms": Algorithm, "objectives": Federation, "timings": Timing, "availabilities": Availability}
    protocols |= {"exchanges": Exchange, "selections": Chooser}
    intro = (
        "A package adds names to the catalogues by entry points of these groups. Each, but for callbacks, is a frozen "
        "dataclass of settings with all members of a protocol. [Plug-ins](../plugins.md) has a complete example.",
        "",
    )
    parts = [
        (
            f"## `fedbo.{group}`",
            "",
            f"Protocol `{protocol.__module__}.{protocol.__name__}`: {clause(inspect.getdoc(protocol).partition(chr(10))[0])}.",
            "",
            f"Members: {code(name for name in (*protocol.__annotations__, *vars(protocol)) if not name.startswith('_'))}.",
            "",
        )
        for group, protocol in protocols.items()
    ]
    rest = {
        "callbacks": "A function that is called with each event of a run.",
        "rooms": "A `Room` of `fedbo.settings.rooms`: [commands, names and answers](../plugins.md#rooms).",
    }
    assert {*GROUPS} == {*protocols, *rest}
    return page("Entry points", intro, *parts, *((f"## `fedbo.{group}`", "", text, "") for group, text in rest.items()))


def rooms() -> str:
    """Return the page of the folders that can be deleted, and of what each is for."""
    from fedbo.settings.rooms import rooms as listed

    intro = ("A [room](../architecture.md#rooms-that-can-go) can be deleted, and all else works as before.", "")
    rows = [(f"`fedbo/{name}/`", clause(room.sentence)) for name, room in sorted(listed().items())]
    return page("Rooms", intro, table(("room", "what it is for"), rows))


def command_pages() -> str:
    """Return the page of all commands with their options."""
    from fedbo.cli import _command
    from fedbo.commands.help import TITLES, commands

    command = _command()
    top = command.make_context("fedbo", [], resilient_parsing=True)
    listed: dict[str, Any] = {}
    for name, found in command.commands.items():
        inner = getattr(found, "commands", {"": found})
        listed |= {
            f"{name} {each}".strip(): (sub, sub.make_context(each or name, [], parent=top, resilient_parsing=True))
            for each, sub in inner.items()
        }
    shared = _shared(listed)
    parts: list[Iterable[str]] = [
        ("`--help` after a command prints the same.", "", *_exit_codes(), "## Options of many commands", "")
    ]
    parts.append(f"- `{option}`: {clause(text)}." for option, text in shared)
    declared = commands()
    for title in TITLES:
        parts.append(("", f"## {title}", ""))
        for name, (sub, context) in listed.items():
            if declared[name.partition(" ")[0]].title == title:
                parts.append(_one_command(name, sub, context, shared))
    return page("Commands", *parts)


def _exit_codes() -> Iterator[str]:
    from fedbo.commands.arguments import CODES

    yield from (CODES, "")


def _records(sub: Any, context: Any) -> list[tuple[str, str]]:
    """List the arguments and options of a command with what each means."""
    found = filter(None, (each.get_help_record(context) for each in sub.params))
    return [(name, _options_as_code(" ".join(text.split()))) for name, text in found]


def _options_as_code(text: str) -> str:
    return re.sub(r"(?<![`\w-])(--[a-z][\w-]*)", r"`\1`", text)


def _shared(listed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the options that at least three commands have with the same words."""
    counted: dict[tuple[str, str], int] = {}
    for sub, context in listed.values():
        for record in _records(sub, context):
            counted[record] = counted.get(record, 0) + 1
    return [record for record, count in counted.items() if count > 2 and record[0].startswith("-")]


def _one_command(name: str, sub: Any, context: Any, shared: Sequence[tuple[str, str]]) -> Iterator[str]:
    records = _records(sub, context)
    yield from (f"### `fedbo {name}`", "")
    yield from (*_options_as_code(inspect.cleandoc(sub.help or "")).replace("\b\n", "").splitlines(), "")
    if example := (sub.epilog or "").partition("Example:\n  ")[2].partition("\n")[0]:
        yield f"- example: `{example}`"
    for record in records:
        if record not in shared:
            yield f"- `{record[0]}`: {clause(record[1])}."
    if common := [option.split(" ")[0].rstrip(",") for option, text in records if (option, text) in shared]:
        yield f"- also {code(common)}."
    yield ""


def stub(module: str) -> str:
    """Return what type checkers read of `fedbo` or `fedbo.errors`: its public names, each imported from its place."""
    known = import_module(module)
    places = sorted(place.partition(":")[::2] for place in known._places().values())
    imports = "\n".join(f"from {place} import {name} as {name}" for place, name in places)
    head = "# Generated by `make reference` from the names of the main package and of its rooms.\n"
    if module == "fedbo":
        return f"{head}from fedbo import errors as errors\n{imports}\n\n__version__: str\n"
    return f"{head}{imports}\n"


PAGES: dict[str, Callable[[], str]] = {
    "fedbo/__init__.pyi": partial(stub, "fedbo"),
    "fedbo/errors.pyi": partial(stub, "fedbo.errors"),
    "docs/cli.md": command_pages,
    "docs/reference/keys.md": keys,
    "docs/reference/objectives.md": objectives,
    "docs/reference/algorithms.md": algorithms,
    "docs/reference/columns.md": columns,
    "docs/reference/python.md": python,
    "docs/reference/entry_points.md": entry_points,
    "docs/reference/rooms.md": rooms,
    "docs/reference/trouble.md": trouble,
}


def main() -> None:
    """Write all pages and notebooks."""
    for name, written in PAGES.items():
        (ROOT / name).write_text(written(), encoding="utf-8")
    for name in NAMES:
        (ROOT / "docs" / "tutorials" / f"{name}.ipynb").write_text(notebook_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
