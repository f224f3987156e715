"""The reference pages of what a study can say: its keys, the objectives and the algorithms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from generate_markdown import Row, clause, code, page, table

Schema = Mapping[str, Any]


def _inline(values: Mapping[str, Any]) -> str:
    """Return a table as a study file has it on one line; nothing for one with more keys than a cell holds."""
    written = ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    return f"`{{ {written} }}`" if len(values) <= 2 else ""


class Keys:
    """The keys of study files, by the JSON Schema that editors use."""

    HEAD = ("key", "values", "default", "meaning")

    def __init__(self) -> None:
        from fedbo.study.schema import schema

        self.schema = schema()
        self.tables: Mapping[str, Any] = self.schema["$defs"]

    def values(self, found: Schema) -> str:
        """Return in words what the values of a key may be."""
        if "$ref" in found:
            return "table"
        if "anyOf" in found:
            return " or ".join(dict.fromkeys(map(self.values, found["anyOf"])))
        if "const" in found or "enum" in found:
            return code(json.dumps(value) for value in found.get("enum", [found.get("const")]))
        if found.get("type") == "array":
            return f"list of {plural}" if (plural := self._plural(found.get("items", {}))) else "list"
        kind = {
            "integer": "whole number",
            "number": "number",
            "string": "string",
            "boolean": "true or false",
            "object": "table",
        }
        return f"{kind[found['type']]} {self._range(found)}".strip() if "type" in found else "function"

    def _plural(self, items: Schema) -> str:
        kind = {"integer": "whole numbers", "number": "numbers", "string": "strings", "boolean": "true or false"}
        return kind.get(items.get("type", ""), "lists" if items.get("type") == "array" else "tables" if items else "")

    def _range(self, found: Schema) -> str:
        low, above = found.get("minimum"), found.get("exclusiveMinimum")
        high, below = found.get("maximum"), found.get("exclusiveMaximum")
        if (low, above) != (None, None) and (high, below) != (None, None):
            opening, closing = "(["[above is None], ")]"[below is None]
            lower, upper = above if low is None else low, below if high is None else high
            return f"in {opening}{lower:.9g}, {'2^63' if upper == 2**63 else f'{upper:.9g}'}{closing}"
        words = {"≥": low, ">": above, "≤": high, "<": below}
        return " ".join(f"{sign} {bound:.9g}" for sign, bound in words.items() if bound is not None)

    def default(self, found: Schema, required: bool) -> str:
        """Return the default of a key as a study file has it."""
        if required:
            return "required"
        default = found.get("default")
        if default in (None, [], {}, "") and default is not False and default != 0:
            return ""
        return f"`{json.dumps(default)}`" if not isinstance(default, dict) else _inline(default)

    def row(self, key: str, found: Schema, required: Iterable[str]) -> Row:
        """Return what a table says of one key."""
        return self.values(found), self.default(found, key in required), clause(found.get("description", ""))

    def fixed(self, declared: Schema) -> list[Row]:
        """Return the rows of a table whose keys are always the same."""
        properties = declared.get("properties", {})
        return [(f"`{key}`", *self.row(key, each, declared.get("required", ()))) for key, each in properties.items()]

    def named(self, declared: Schema, of: Sequence[str] = ()) -> tuple[list[Row], dict[Row, list[str]]]:
        """Return the rows of keys that all alternatives of a table have, and the other rows with the names that have them."""
        known = [each for each in declared["anyOf"] if each["title"] != "a class by its place"]
        having: dict[Row, list[str]] = {}
        for each in known:
            for key, found in each["properties"].items():
                if "const" not in found and key not in of:
                    row = (f"`{key}`", *self.row(key, found, each.get("required", ())))
                    having.setdefault(row, []).append(each["title"])
        common = [row for row, names in having.items() if len(names) == len(known) > 1]
        return common, {row: names for row, names in having.items() if row not in common}

    def summaries(self, declared: Schema) -> Iterator[str]:
        """Yield one line for each alternative of a table."""
        for each in declared["anyOf"]:
            if each["title"] != "a class by its place":
                yield f"- `{each['title']}`: {clause(each['description'])}."


HEADINGS = {"algorithm": "[[algorithm]]", "group": "[[group]]", "fault": "[[fault]]"}
INNER = {  # tables within tables, by the definition that they have in the schema
    "objective": {"[objective.differences]": "DifferencesTable"},
    "agents": {"[agents.history]": "HistoryTable"},
    "timing": {"[timing.speed]": "SpeedTable", "[timing.decision]": "DecisionTable"},
    "exchange": {"[exchange.staleness]": "Staleness", "[exchange.selection]": "Selection"},
    "cluster": {
        "[cluster.checkpoint]": "CheckpointTable",
        "[cluster.copies]": "CopiesTable",
        "[cluster.background]": "BackgroundTable",
        "[[cluster.worker]]": "WorkerTable",
    },
    "fault": {"Laws of `duration` and `restart`": "DurationLaw"},
    "privacy": {"[privacy.secure_aggregation]": "SecureAggregationTable"},
}
PRESET = {"algorithm": [("`preset`", "string", "", "Named settings to start from, see [algorithms](algorithms.md)")]}
ELSEWHERE = {"objective": "objectives.md", "algorithm": "algorithms.md"}  # pages with the settings of all names


def keys() -> str:
    """Return the page of all keys of a study."""
    keys = Keys()
    intro = (
        "Every key of a study file, from the JSON Schema that `fedbo schema` prints. Times are in the study's unit of "
        'virtual time, and in seconds with `clock = "wall"`. [Studies](../studies.md) explains the tables by examples.',
        "",
    )
    return page("Keys of a study", intro, *(_table_of(keys, key, found) for key, found in keys.schema["properties"].items()))


def _table_of(keys: Keys, key: str, found: Schema) -> Iterator[str]:
    if key == "sweep":
        yield from ("## `[sweep]`", "", "Lists of values by dotted key, see [studies](../studies.md).", "")
        return
    declared = keys.tables[found.get("items", found)["$ref"].rpartition("/")[2]]
    yield from (f"## `{HEADINGS.get(key, f'[{key}]')}`", "")
    if key in ELSEWHERE:
        common, _ = keys.named(declared)
        names = [each["title"] for each in declared["anyOf"] if each["title"] != "a class by its place"]
        yield from table(
            Keys.HEAD, [("`name`", "string", "required", f"See [{key}s]({ELSEWHERE[key]})"), *PRESET.get(key, ()), *common]
        )
        yield from (f"Names: {code(names)}.", "")
    elif "anyOf" in declared:
        yield from _alternatives(keys, declared)
    else:
        yield from table(Keys.HEAD, keys.fixed(declared))
    if key == "timing":
        yield from ("", "### Models of durations", "", "For `evaluation` and `latency`; the key `model` has the name.")
        yield from _alternatives(keys, keys.tables["TimingModel"])
    for title, name in INNER.get(key, {}).items():
        yield from ("", f"### {title if '`' in title else f'`{title}`'}", *table(Keys.HEAD, keys.fixed(keys.tables[name])))


def _alternatives(keys: Keys, declared: Schema) -> Iterator[str]:
    yield from ("", *keys.summaries(declared), "")
    common, other = keys.named(declared)
    rows = [("all", *row) for row in common] + [(code(names), *row) for row, names in other.items()]
    yield from table(("of", *Keys.HEAD), rows)


def objectives() -> str:
    """Return the page of all objectives with their settings."""
    from fedbo.objectives.datasets.data import DATA_SETS

    keys = Keys()
    declared = keys.tables["ObjectiveTable"]
    of = ("name", "noise", "differences")
    common, other = keys.named(declared, of)
    noisy = {each["title"] for each in declared["anyOf"] if "noise" in each["properties"]}
    catalogue = [
        (f"`{each['title']}`", clause(each["description"]), *_world(each["title"]))
        for each in declared["anyOf"]
        if each["title"] in noisy
    ]
    sets = [
        (f"`{each.name}`", f"{sum(file.size for file in each.files):,}", clause(each.licence), clause(each.citation))
        for each in sorted(DATA_SETS.values(), key=lambda each: each.name)
    ]
    intro = (
        "All federations of the catalogue; `fedbo list objectives` prints the same with installed plug-ins. "
        "[Objectives](../objectives.md) says how to choose one. Every objective also takes `noise` and `differences`, see "
        "[keys](keys.md#objective).",
        "",
        "## Catalogue",
    )
    head = ("name", "what it is", "parameters", "value", "each replicate has")
    listed = (f"- {name}, {size} bytes. Licence: {licence}. {source}." for name, size, licence, source in sets)
    return page(
        "Objectives",
        intro,
        table(head, catalogue),
        ("## Settings",),
        table(("of", *Keys.HEAD), [(code(names), *row) for row, names in {**dict.fromkeys(common, []), **other}.items()]),
        ("## Data sets", "", "`fedbo data fetch NAME` fetches one and checks its SHA-256.", "", *listed),
    )


def _world(name: str) -> Row:
    """Return the parameters of a federation with default settings, its value, and whether a replicate has its own functions."""
    from fedbo.objectives.catalog import catalogue

    declared = catalogue()[name]
    if any(base.__name__ == "_Tasks" for base in declared.__mro__):  # their data tell
        return "see [tuning tasks](../objectives.md#tuning-tasks)", "", "the same functions"
    try:
        made = declared()
    except TypeError:  # it needs a function or a table
        return "your own", "your own", "the same functions"
    goal = {"maximise": "maximised", "minimise": "minimised"}[made.metric.direction]
    drawn = "its own functions" if made.random_per_replicate else "the same functions"
    return code(each.name for each in made.parameters), f"{made.metric.name}, {goal}", drawn


def algorithms() -> str:
    """Return the page of all algorithms with their settings and with what their messages reveal."""
    from fedbo.algorithms.reveals import MEANINGS, Reveals
    from fedbo.study.listing import groups

    keys = Keys()
    common, other = keys.named(keys.tables["AlgorithmTable"], ("name", "label", "preset", "centralised"))
    items = groups()["algorithms"]
    catalogue = [(f"`{each.name}`", clause(each.summary), code(each.presets), each.reveals) for each in items]
    rows = [(code(named), *row) for row, names in other.items() if (named := [each for each in names if not _is_control(each)])]
    intro = (
        "All algorithms of the catalogue; `fedbo list algorithms` prints the same with installed plug-ins. "
        "[Algorithms](../algorithms/index.md) says how to choose one.",
        "",
        "## Catalogue",
    )
    meanings = (f"- `{word}`: {MEANINGS[word]}." for word in Reveals)
    return page(
        "Settings of algorithms",
        intro,
        table(("name", "what it is", "presets", "reveals"), catalogue),
        ("## What messages reveal", "", "With default settings, the most revealing first.", "", *meanings, ""),
        ("## Settings", "", "A control, such as `fts_noise`, has the settings of its method.", ""),
        table(("of", *Keys.HEAD), [*(("all", *row) for row in common), *rows]),
    )


def _is_control(name: str) -> bool:
    return name.endswith(("_alone", "_centre", "_noise", "_shuffled", "_uniform"))
