"""The terms of an ask/tell agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from pydantic import ValidationError

from fedbo.algorithms.base import CostAware, Overlapping, Private
from fedbo.objectives.goals import Goals
from fedbo.settings import arguments
from fedbo.settings.arguments import Mode
from fedbo.settings.errors import ArgumentError
from fedbo.settings.trust import admit, places_in
from fedbo.sites.errors import SignatureError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.study.document import StudyError
from fedbo.study.invalid import from_pydantic
from fedbo.study.tables import AlgorithmTable
from fedbo.tuning.arguments import check_algorithm, in_arguments
from fedbo.tuning.message_folder import Meeting, MessageKeys
from fedbo.tuning.metrics import goals_of, why_unsuited


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings that all agents that tune together share.

    - `algorithm`: a name, or a table with settings.
    - `agents`: number of agents.
    - `mode`: "max" or "min"; with an objective among `metrics`, that of the first one.
    - `initial`: number of an agent's first points, which are random.
    - `seed`: seed of the random draws.
    - `lease`: seconds after which a point without a value goes to the next client. None: only after a restart of the agent.
    - `repeats`: ask for points again, for noisy objectives. By default a space of at most 2,048 configurations runs out, and
      `ask` returns fewer points.
    - `metrics`: objectives and limits, tables with the keys of [[metric]]; `tell` then takes a dictionary of numbers by name.
    - `keys`: public keys of the agents, each as 64 hexadecimal digits, in the order of their numbers; messages are signed then.
    """

    algorithm: str | Mapping[str, Any] = "fts"
    agents: int = 1
    mode: Mode = "max"
    initial: int = 3
    seed: int = 0
    lease: float | None = None
    repeats: bool = False
    keys: tuple[str, ...] = ()
    metrics: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        arguments.one_of("mode", self.mode, get_args(Mode))
        if (goals := self.goals) is not None:
            object.__setattr__(self, "mode", "max" if goals.own.sign > 0 else "min")
        for name, least in (("agents", 1), ("initial", 0), ("seed", 0)):
            arguments.whole(name, getattr(self, name), least)
        if self.lease is not None:
            arguments.number("lease", self.lease, above=0.0)
        arguments.flag("repeats", self.repeats)
        self._check_keys()
        self.make()

    def _check_keys(self) -> None:
        if not isinstance(self.keys, tuple | list) or len({*map(str, self.keys)}) not in (0, self.agents):
            raise arguments.wrong("keys", self.keys, f"must list {self.agents} different public keys, one for each agent")
        for key in self.keys:
            try:
                PublicKey.of_hex(key)
            except (SignatureError, TypeError) as error:
                raise arguments.wrong(
                    "keys", key, f"is no public key ({error}); copy it from the site's request.json"
                ) from None

    @property
    def goals(self) -> Goals | None:
        """Return the objectives and limits; None without `metrics`."""
        return goals_of(self.metrics, self.mode)

    def shared(self) -> dict[str, Any]:
        """Return the settings that decide messages, which all agents must share."""
        without = {"repeats"} if self.keys else {"repeats", "keys"}  # so that agents without keys have the terms of before
        without |= set() if self.metrics else {"metrics"}
        return {name: value for name, value in asdict(self).items() if name not in without}

    def message_keys(self, digest: str, meeting: Meeting | None) -> MessageKeys | None:
        """Return the keys by which messages are signed and checked; None where the terms list none."""
        if not self.keys:
            return None
        own = None if meeting is None or meeting.key is None else PrivateKey.read(meeting.key)
        return MessageKeys(digest, tuple(map(PublicKey.of_hex, self.keys)), own)

    def table(self) -> dict[str, Any]:
        """Return the table of the algorithm; `fts` sends after every value, since agents tune one point at a time."""
        check_algorithm("algorithm", self.algorithm)
        table = {"name": self.algorithm} if isinstance(self.algorithm, str) else dict(self.algorithm)
        return {"every": 1, **table} if table["name"] == "fts" else table

    def make(self) -> Any:
        """Return the algorithm; ArgumentError where it is unknown, or cannot choose single points without a coordinator."""
        table = self.table()
        admit(places_in(table))  # which the caller names
        try:
            algorithm: Any = AlgorithmTable.model_validate(table).make()
        except (StudyError, ValidationError) as error:
            found = error if isinstance(error, StudyError) else from_pydantic(error, {})
            raise in_arguments(found.under("algorithm", 0), {"algorithm": [table]}, {}) from None
        if algorithm.queries != 1 or not isinstance(algorithm, Overlapping) or isinstance(algorithm, Private):
            raise arguments.wrong("algorithm", table["name"], "does not support ask and tell; use ts, fts, gp_ei or gp_ucb")
        if isinstance(algorithm, CostAware) and algorithm.needs_costs:
            raise arguments.wrong(
                "algorithm", table["name"], "chooses by costs, which nothing tells here; set cost to 'ignored'"
            )
        if (goals := self.goals) is not None and (why := why_unsuited(algorithm, goals, self.agents)):
            raise arguments.wrong("algorithm", table["name"], why)
        return algorithm


def check_agent(folder: Any, terms: Any, number: Any, meeting: Any) -> None:
    """Check the arguments of an agent except its space; ArgumentError for an invalid one."""
    if folder is not None:
        arguments.path("folder", folder)
    arguments.instance("terms", terms, Terms, "write fedbo.Terms('fts', agents=2)")
    arguments.whole("number", number, 0, terms.agents - 1)
    if meeting is not None:
        if folder is None:
            raise ArgumentError("folder = None: an agent with a meeting requires a folder; pass a path")
        arguments.instance("meeting", meeting, Meeting, "write fedbo.Meeting('/shared/meeting')")
        meeting.check(terms.make(), terms.table()["name"])
        meeting.check_key(number, terms.keys)
