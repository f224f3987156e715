"""The tables of a study file: their keys, their defaults, and the objects that they build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge
from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms import catalog as algorithms
from fedbo.algorithms.base import Algorithm
from fedbo.objectives import catalog as objectives
from fedbo.objectives.derived.differences import Differences, DifferingFederation
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.base import Count, Declared, FolderName, Name, Named, Positive, Table, kept
from fedbo.study.document import StudyError, default_label
from fedbo.study.settings import build, names_of


class Header(Table):
    """[study]: its name, its seed, and its number of replicates."""

    name: FolderName
    """Name of the study; its runs are stored under `runs/NAME-DATE-TIME`."""
    description: str = ""
    """Free text for readers."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all random draws, together with the number of the replicate."""
    replicates: Positive = 1
    """Repetitions with other random draws; standard errors are over replicates."""


class DifferencesTable(Declared):
    """[objective.differences]: additional differences between agents, beyond those of the federation."""

    declared = Differences


class ObjectiveTable(Named):
    """[objective]: a federation by name, its settings, and additional differences between its agents.

    `noise`, the variance of an observation, can be set for any federation: it is added where the
    federation has no such setting.
    """

    key = "name"
    noun = "objective"
    catalogue = staticmethod(objectives.catalogue)
    name: str
    """Name of a federation, see objectives."""
    differences: DifferencesTable | None = None
    """Additional differences between agents."""

    @property
    def noise(self) -> float:
        """Return the variance of the noise to be added to the values of the federation's objectives."""
        return 0.0 if self._has_own() else float(self.settings.get("noise", 0.0))

    @kept
    def make(self) -> Any:
        """Return the federation, without added noise; StudyError when its name or a setting is invalid."""
        made = self._without_differences()
        if self.differences is None:
            return made
        try:
            return DifferingFederation(made, self.differences.make())
        except StudyError as found:
            raise found.under("differences") from found

    @kept
    def _without_differences(self) -> Any:
        declared, settings = self._look_up(), self.settings
        if not self._has_own() and "noise" in settings:
            build(AddedNoise, {"noise": settings.pop("noise")})
        return build(declared, settings, also=("name", "noise", "differences"), defaults_too=True)

    def resolved(self) -> Self:
        """Return the table with every setting."""
        self.make()
        added: dict[str, Any] = {} if self._has_own() else {"noise": self.noise}
        if self.differences is not None:
            added["differences"] = self.differences.resolved()
        return self._showing_of(self._without_differences(), names_of(self._look_up()), **added)

    def _has_own(self) -> bool:
        return "noise" in names_of(self._look_up())


@dataclass(frozen=True, slots=True)
class AddedNoise:
    """The noise of observations of an objective that has no such setting."""

    noise: Annotated[float, Ge(0)]
    """Variance of normal noise added to each observation, in squared units of the objective."""


class AlgorithmTable(Named):
    """[[algorithm]]: an algorithm by name, an optional preset, its label in the results, and its settings.

    A `centralised` one runs as a single agent that evaluates the mean of all agents' objectives.
    """

    key = "name"
    noun = "algorithm"
    catalogue = staticmethod(algorithms.catalogue)
    name: str
    """Name of an algorithm, see algorithms."""
    label: Name | None = None
    """Name in results and in `--set`; unique. Default: the name, with the preset in brackets."""
    preset: str | None = None
    """Named settings to start from."""
    centralised: bool | None = None
    """Whether a single agent evaluates the mean of all agents' objectives."""

    @property
    def title(self) -> str:
        """Return the label or its default."""
        return default_label({"name": self.name, "label": self.label, "preset": self.preset})

    @kept
    def make(self) -> Algorithm:
        """Return the algorithm; StudyError when its name, the preset or a setting is invalid."""
        entry = self._look_up()
        if self.preset is not None and self.preset not in entry.presets:
            raise StudyError.of([SettingError(("preset",), unknown("preset", self.preset, entry.presets))])
        fixed = [name for name in self.settings if name in entry.fixed]
        if fixed:
            raise StudyError.of(SettingError((name,), f"is fixed in '{self.name}'; remove it") for name in fixed)
        preset = self.preset
        made: Algorithm = build(
            entry.settings, self.settings, lambda **checked: entry.make(preset, **checked), also=type(self).model_fields
        )
        return made

    def resolved(self) -> Self:
        """Return the table with every setting and the label."""
        return self._showing(self._look_up().free(), label=self.title)


_COUNTED: list[Any] = [{"required": ["iterations"]}, {"required": ["pulls"]}]
_ENDING: list[Any] = [{"required": ["time"]}, {"required": ["evaluations"]}, {"required": ["cost"]}]
OPEN = 999_999  # iterations of a study whose budget has other bounds alone: more than any agent makes


class BudgetTable(Table):
    """[budget]: iterations of every target after its initial points, or its evaluations in all, and limits.

    With a `time`, a number of `evaluations` or a `cost` it needs neither of the two.
    A study may also end when some agent has reached the native value `target`, or after a number of successful
    `evaluations` of all agents together.
    """

    model_config = ConfigDict(
        **{**Table.model_config, "json_schema_extra": {"oneOf": [*_COUNTED, {"not": {"anyOf": _COUNTED}, "anyOf": _ENDING}]}}
    )
    pulls: Positive | None = None
    """Evaluations of each target, initial points included; the horizon T of a bandit."""
    iterations: Annotated[Positive | None, Field(validate_default=True)] = None
    """Decisions of each target after its initial points; optional with time, evaluations or cost."""
    time: Annotated[float, Field(gt=0)] | None = None
    """End of the study [units of time]; an evaluation that ends later does not count."""
    target: float | None = None
    """Native value at which the run ends, once an agent has reached it."""
    evaluations: Positive | None = None
    """Successful evaluations of all agents after which the run ends."""
    cost: Annotated[float, Field(gt=0)] | None = None
    """Time of evaluations after which an agent decides no more [units of time]."""

    @model_validator(mode="before")
    @classmethod
    def _open(cls, value: Any) -> Any:
        """Set iterations that no agent makes, where neither they nor pulls are set but something else ends the study."""
        is_open = isinstance(value, dict) and not value.keys() & {"iterations", "pulls"}
        return {**value, "iterations": OPEN} if is_open and value.keys() & {"time", "evaluations", "cost"} else value

    @field_validator("iterations", mode="after")
    @classmethod
    def _one_of_two(cls, value: int | None, info: ValidationInfo) -> int | None:
        pulls = info.data.get("pulls", 0)  # 0 where something else is wrong with them
        if value is None and pulls is None:
            raise PydanticCustomError("missing", "iterations or pulls")
        if value is not None and pulls:
            raise ValueError("cannot be combined with `pulls`; set one of them")
        return value

    @property
    def decisions(self) -> int:
        """Return the largest number of decisions of a target."""
        count = self.iterations or self.pulls
        assert count is not None
        return count

    @property
    def is_open(self) -> bool:
        """Check whether other bounds alone end the study."""
        return self.iterations == OPEN

    @property
    def in_words(self) -> str:
        """Return the budget of each agent in words."""
        if self.is_open:
            bounds = ((self.time, "time"), (self.evaluations, "evaluations of all"), (self.cost, "cost"))
            return " and ".join(f"{name} {bound:,g}" for bound, name in bounds if bound is not None)
        return f"{self.pulls:,} evaluations" if self.pulls else f"{self.iterations:,} iterations"


class EvaluationTable(Declared):
    """[evaluation]: failure policy, retries, limits and parallelism of evaluations."""

    declared = Policy


class RecoveryTable(Table):
    """[recovery]: how often a run is saved, so that it can be resumed; it changes no result."""

    seconds: Annotated[float, Field(gt=0)] = 60.0
    """Real seconds between two snapshots of a run."""
    events: Positive | None = None
    """Events between two additional snapshots."""


class RecordTable(Table):
    """[record]: what the events of a run have besides; it changes no observation."""

    idle: bool = False
    """Whether absences and faults of agents that idle between rounds are rows."""


def _cluster(address: Any) -> Any:
    """Return the address of a cluster; None for "local", by which a study that began on a cluster goes on without one."""
    if address == "":
        raise ValueError("must not be empty; write local, auto, HOST:PORT or ray://HOST:PORT")
    return None if address == "local" else address


class HostingTable(Table):
    """[hosting]: where agents live, the number of workers, the Ray cluster, and how its hosts get the package."""

    kind: Literal["inline", "dedicated", "packed", "sites"] = "inline"
    """Where agents live: with their coordinator, on Ray (`dedicated`, `packed`), or at their sites."""
    workers: Count | None = None
    """Ray actors: for whole runs (inline, default 0) or for agents (packed, default 2)."""
    address: Annotated[str | None, BeforeValidator(_cluster)] = None
    """Ray cluster: "auto", "HOST:PORT" or "ray://HOST:PORT". Default: "local", Ray on this machine."""
    package: Literal["wheel", "image"] = "wheel"
    """How hosts get fedbo: as a wheel of the installed one, or from their image."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the Ray nodes that evaluate, such as { "ray.io/market-type" = "spot" }."""
    isolate: bool = False
    """Whether each evaluation runs in its own process, whose death is a failed evaluation."""
    patience: Annotated[float, Field(gt=0)] | None = None
    """Real seconds after which a hanging evaluation fails; implies `isolate`."""

    def hosts(self, agents: int) -> int:
        """Return the number of Ray actors in which these many agents live; `dedicated` is packed with one for each of them."""
        if self.kind in ("inline", "sites"):
            return 0
        return agents if self.kind == "dedicated" else min(self.workers or 1, agents)
