"""The JSON Schema of a study file, generated from its tables and from everything that a study can name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema as core
from pydantic_core import to_jsonable_python

from fedbo.algorithms.catalog import Entry
from fedbo.coordinator.modes import MODES
from fedbo.settings.plugins import Catalogue
from fedbo.settings.ranges import OneOf, marks_of, meanings
from fedbo.study.base import Declared, Named
from fedbo.study.environment.tables import ExchangeTable
from fedbo.study.listing import first_line
from fedbo.study.settings import names_of, plain, reader_of
from fedbo.study.study import Study
from fedbo.study.tables import AddedNoise, ObjectiveTable

_SWEPT = {
    "anyOf": [{"type": "array", "minItems": 1}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/Swept"}}],
    "description": "the values of a key, or a table of keys",
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of study files: every key, its type and range, and the names of what is installed.

    Errors in the combination of keys are reported by `load_study` only.
    """
    found = Study.model_json_schema(schema_generator=_Generator)
    found["$defs"] = dict(sorted({**found["$defs"], "Swept": _SWEPT}.items()))
    found["properties"]["sweep"] = {
        "type": "object",
        "description": "values to be combined, by dotted key",
        "additionalProperties": {"$ref": "#/$defs/Swept"},
    }
    return {"$schema": _Generator.schema_dialect, **found, "title": "A study of fedbo"}


class _Generator(GenerateJsonSchema):
    """Generates tables whose keys depend on a name as one alternative for each name, and without null, which TOML lacks."""

    def model_schema(self, schema: core.ModelSchema) -> JsonSchemaValue:
        table = schema["cls"]
        found = super().model_schema(schema)
        found.pop("title", None)
        properties = {key: value for key, value in found.get("properties", {}).items() if value != {"type": "null"}}
        _describe(table, properties)
        if issubclass(table, Named):
            return {"description": found["description"], "anyOf": list(self._alternatives(table, properties))}
        if issubclass(table, Declared):
            return found | self._closed(table.declared, names_of(table.declared), properties)
        return found | {"properties": properties} if properties else found

    def dataclass_schema(self, schema: core.DataclassSchema) -> JsonSchemaValue:
        found = super().dataclass_schema(schema)
        _name_choices(schema["cls"], found["properties"])
        _describe(schema["cls"], found["properties"])
        return {key: value for key, value in found.items() if key != "title"} | {"additionalProperties": False}

    def nullable_schema(self, schema: core.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def handle_invalid_for_json_schema(self, schema: core.CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}  # a class of a library's own, which its reader checks

    def _alternatives(self, table: type[Named], common: Mapping[str, Any]) -> Any:
        key, catalogue = table.key, table.catalogue()
        for name, entry in catalogue.usable() if isinstance(catalogue, Catalogue) else catalogue.items():
            declared, names = (entry.settings, entry.free()) if isinstance(entry, Entry) else (entry, names_of(entry))
            properties = {**common, key: {"const": name}}
            if isinstance(entry, Entry):
                properties.pop("preset")
                properties |= {"preset": {"enum": list(entry.presets)}} if entry.presets else {}
            if issubclass(table, ObjectiveTable) and "noise" not in names:
                properties |= self._settings(AddedNoise)["properties"]
            found = self._closed(declared, names, properties)
            if issubclass(table, ExchangeTable) and name in MODES and (number := found["properties"].get("k")):
                share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
                number["anyOf"] = [{key: number.pop(key) for key in ("type", "minimum")}, share]
            required = [key] if common[key].get("default") != name else []
            found["required"] = [*required, *found.get("required", ())]
            summary = entry.summary if isinstance(entry, Entry) else ""
            yield {"title": name, "description": summary or first_line(declared), **found}
        if isinstance(catalogue, Catalogue):
            of_place = {**common, key: {"type": "string", "pattern": ":"}}
            yield {"title": "a class by its place", "type": "object", "properties": of_place, "required": [key]}

    def _closed(self, declared: type[Any], names: Any, also: Mapping[str, Any]) -> JsonSchemaValue:
        """Return the schema of a table of settings with some `names` and the keys `also`, and no others."""
        found = self._settings(declared)
        settings = {name: value for name, value in found.get("properties", {}).items() if name in set(names)}
        required = [name for name in found.get("required", ()) if name in settings]
        closed = {"type": "object", "properties": {**also, **settings}, "additionalProperties": False}
        return closed | ({"required": required} if required else {})

    def _settings(self, declared: Any) -> JsonSchemaValue:
        read: Any = reader_of(declared).core_schema
        if read["type"] == "definitions":
            for each in read["definitions"]:
                self.generate_inner(each)
            read = read["schema"]
        return self.dataclass_schema(read)


def _name_choices(declared: Any, properties: Mapping[str, Any]) -> None:
    """Add the choices of a setting to its schema."""
    for name, marks in marks_of(declared).items():
        chosen = [mark.choices for mark in marks if isinstance(mark, OneOf)]
        if chosen and name in properties and "type" in properties[name]:
            properties[name]["enum"] = list(chosen[0])


def _describe(declared: type[Any], properties: dict[str, Any]) -> None:
    """Add to each key its meaning and, for a setting, its default, for editors to show."""
    defaults = dict(_defaults(declared))
    for name, text in meanings(declared).items():
        key = name.rstrip("_")  # `from_` is the key `from`
        if key in properties:
            properties[key] |= {**defaults.get(name, {}), "description": text}


def _defaults(declared: type[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in dataclasses.fields(declared) if dataclasses.is_dataclass(declared) else ():
        if isinstance(field.default, bool | int | float | str | tuple) or dataclasses.is_dataclass(field.default):
            default = field.default
            written = plain(default, names_of(type(default))) if dataclasses.is_dataclass(default) else default
            yield field.name, {"default": to_jsonable_python(written)}
