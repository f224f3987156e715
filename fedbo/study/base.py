"""The bases of a study's tables: fixed keys, or the settings of a dataclass, of which each table makes an object once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError, core_schema

from fedbo.settings.errors import SettingError, unknown
from fedbo.settings.plugins import PluginError
from fedbo.settings.rooms import study_tables
from fedbo.settings.shown import unfit
from fedbo.study.document import Loc, StudyError
from fedbo.study.settings import Settings, build, names_of, plain

T = TypeVar("T")


class Keeping(BaseModel):
    """A frozen table that caches the results of methods marked `kept`.

    The cache is a slot, since pydantic compares, copies and pickles private attributes. A changed copy
    computes its results again.
    """

    __slots__ = ("_kept",)

    def keep_from(self, other: Keeping) -> None:
        """Copy the cache of another table with equal declarations."""
        object.__setattr__(self, "_kept", dict(_of(other)))


def kept(method: Callable[[Any], T]) -> Callable[[Any], T]:
    """Call a method without arguments once for each table; an exception is not cached."""

    @wraps(method)
    def keeping(self: Any) -> T:
        results, name = _of(self), method.__qualname__
        if name not in results:
            results[name] = method(self)
        found: T = results[name]
        return found

    return keeping


def _of(table: Keeping) -> dict[str, Any]:
    try:
        results: dict[str, Any] = object.__getattribute__(table, "_kept")
    except AttributeError:
        results = {}
        object.__setattr__(table, "_kept", results)
    return results


MAX_BYTES = 200  # bytes of a name in UTF-8: with a date it is still the name of a folder


def _fit(name: str) -> str:
    """Return a name that fits on one line; ValueError with the remedy otherwise."""
    if not name.strip():
        raise ValueError("must not be empty")
    if (letter := unfit(name)) is not None:
        raise ValueError(f"contains the control character U+{ord(letter):04X}; use a name on one line")
    size = len(name.encode())
    if size > MAX_BYTES:
        raise ValueError(f"has {size} bytes; use a name of at most {MAX_BYTES} bytes")
    return name


def _of_folder(name: str) -> str:
    """Return a name that a folder can have; ValueError with the remedy otherwise."""
    slash = next((letter for letter in name if letter in "/\\"), None)
    if slash is not None:
        raise ValueError(f"holds '{slash}', but a folder is named after it; use '-' instead")
    return name


Name = Annotated[str, Field(min_length=1), AfterValidator(_fit)]
FolderName = Annotated[Name, AfterValidator(_of_folder)]


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]

SETTINGS_TOO = "settings too"  # the context of a validation that also makes what tables declare


def is_agents(value: Any) -> bool:
    """Return whether a value is a list of integers, the form of a list of agents."""
    return isinstance(value, list | tuple) and all(type(item) is int for item in value)


class Table(Keeping):
    """A table with fixed keys: frozen, strict about types, finite numbers only, no other keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Declared(Keeping):
    """A table whose keys are the settings of one dataclass, `declared`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", allow_inf_nan=False)
    declared: ClassVar[Any]

    @model_validator(mode="after")
    def _makeable(self, info: ValidationInfo) -> Self:
        """Check the settings too if the context requests it, so that pydantic reports them with all other errors."""
        if info.context == SETTINGS_TOO:
            try:
                self.make()
            except StudyError as found:
                raise PydanticCustomError("settings", "invalid settings", {"faults": found.faults}) from found
        return self

    @property
    def settings(self) -> Settings:
        """Return the settings as TOML values."""
        return dict(self.model_extra or {})

    @kept
    def make(self) -> Any:
        """Return the declared object; StudyError when its name or a setting is invalid."""
        return build(self._look_up(), self.settings, also=type(self).model_fields)

    def resolved(self) -> Self:
        """Return the table with every setting."""
        return self._showing(names_of(self._look_up()))

    def _showing(self, names: Iterable[str], **changes: Any) -> Self:
        return self._showing_of(self.make(), names, **changes)

    def _showing_of(self, made: Any, names: Iterable[str], **changes: Any) -> Self:
        table = type(self).model_construct(**{**self.model_dump(), **plain(made, names), **changes})
        table.keep_from(self)
        return table

    def _look_up(self) -> Any:
        return type(self).declared


class Named(Declared):
    """A table that names an entry of a catalogue and contains its settings.

    `key` is the table's key that holds the name, `noun` the word for it in errors, and `catalogue` returns the entries.
    """

    key: ClassVar[str] = "model"
    noun: ClassVar[str]
    catalogue: ClassVar[Callable[[], Mapping[str, Any]]]

    def _look_up(self) -> Any:
        name, known = getattr(self, self.key), type(self).catalogue()
        if name not in known:
            raise StudyError.of([SettingError((self.key,), unknown(self.noun, name, known))])
        try:
            return known[name]
        except PluginError as error:
            raise StudyError.of([SettingError((self.key,), str(error))]) from error


class RoomTable(Keeping):
    """A table of a study file that a room declares. A study calls the class, also where it has no such table.

    The module of the class must not import `StudyTables`, which finds it by the list of rooms.
    """

    always: ClassVar[bool] = False
    """Whether a study whose file has no such table has one with all defaults."""
    listed: ClassVar[Mapping[str, type[Any]]] = {}
    """The classes that declare the settings of tables in it, by their keys, for `fedbo list tables`."""

    nested: ClassVar[Mapping[str, type[BaseModel]]] = {}
    """The tables in it by their keys, for suggestions."""

    @classmethod
    def filled(cls, given: Self | None, study: Any, fill: Callable[..., Any]) -> Self | None:
        """Return the table of a study with its defaults; `fill(table, *loc)` does so for one within it."""
        return given

    @classmethod
    def combinations(cls, study: Any) -> Iterator[SettingError]:
        """Yield the errors in its combination with a study whose other tables may be wrong yet."""
        yield from ()

    @classmethod
    def last_combinations(cls, study: Any) -> Iterator[SettingError]:
        """Yield the errors in its combination with a study with which nothing else is wrong."""
        yield from ()

    @classmethod
    def method_combinations(cls, study: Any, number: int, algorithm: Any) -> Iterator[SettingError]:
        """Yield the errors in its combination with algorithm number `number`, whose declarations are right."""
        yield from ()

    @classmethod
    def on_messages(cls, study: Any) -> Iterator[Loc]:
        """Yield the places of its settings that concern messages, and have no effect where no algorithm sends any."""
        yield from ()


@dataclass(frozen=True, slots=True)
class OfRoom:
    """The mark of a table that a room declares by this key. Without the room, only one that asks for nothing is valid."""

    key: str

    @property
    def default(self) -> Any:
        """Return the table of a study whose file has none."""
        table = study_tables().get(self.key)
        return table() if table is not None and table.always else None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        if (table := study_tables().get(self.key)) is None:
            return core_schema.no_info_after_validator_function(self._refused, core_schema.any_schema())
        return handler.generate_schema(table if table.always else table | None)

    @staticmethod
    def _refused(given: Any) -> None:
        if given is not None and (not isinstance(given, dict) or any(given.values())):
            raise ValueError("needs a part of fedbo that is not installed here; remove the table, or install all of fedbo")
