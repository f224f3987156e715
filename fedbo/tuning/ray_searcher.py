"""A search algorithm for Ray Tune that asks an agent, so that experiments at several sites learn from each other.

Needs Ray Tune: pip install 'ray[tune]'.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from fedbo.objectives.typed_spaces.declared_space import flattened, is_nested, nested
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.arguments import Mode
from fedbo.settings.errors import ArgumentError
from fedbo.tuning.arguments import check_metric
from fedbo.tuning.ask_tell import Agent, tell_or_fail
from fedbo.tuning.evaluated import Value
from fedbo.tuning.message_folder import Meeting
from fedbo.tuning.terms import Terms, check_agent

# Agents that this process has open: Tune copies searchers, and a restored Tuner has another one on the same folder.
_OPEN: dict[Path, tuple[Agent, str, Terms]] = {}


class RaySearcher(Searcher):
    """Suggests configurations by an agent, which is stored in `folder` and resumes when it is opened again.

    The space is Tune's `param_space`, whose domains are tuned and whose other entries are passed on. It may instead be `space`,
    in any form that `fedbo.tune` accepts, such as a ConfigSpace with conditions. Nested dictionaries are kept. The experiment's
    mode overrides `terms.mode`. With `terms.metrics` the metric and the mode are those of the first objective, and may be left
    out; results report the other metrics by their names. A trial counts with its last reported value of `metric`, also if a
    scheduler stopped it while running or paused. A failed trial teaches nothing unless Tune's retry succeeds (which Tune's
    ConcurrencyLimiter does not report). One process may use a folder at a time.

    All lasting state is in the agent's folder. `save` writes the open trials as JSON; a restored experiment withdraws pending
    points that it does not know.
    """

    CKPT_FILE_TMPL = "searcher-state-{}.json"

    def __init__(
        self,
        folder: str | Path,
        space: Any = None,
        terms: Terms = Terms(),  # noqa: B008
        number: int = 0,
        meeting: Meeting | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> None:
        check_agent(folder, terms, number, meeting)
        check_metric(metric, mode)
        super().__init__(metric, mode)
        self._folder, self._terms, self._number = Path(folder).resolve(), terms, number
        self._meeting = meeting
        self._written = None if space is None else written_space(space)
        self._goals = terms.goals
        if self._goals is not None:
            self._metric, self._mode = self._metric or self._goals.own.name, self._mode or terms.mode
        self._failed: dict[str, str] = {}  # by trial: its token
        self._reported: dict[str, Value] = {}  # by trial that is not over: its last value

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Set space, metric and mode of the experiment; return False if the space differs from the present one."""
        domains = _domains(config)
        if domains and self._written is not None and written_space(domains) != self._written:
            return False
        if domains:
            self._written = written_space(domains)
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of a trial, the same one if asked again; FINISHED when all configurations were asked."""
        asked = self._agent.ask(client=trial_id)
        if not asked:
            return Searcher.FINISHED
        (one,) = asked
        return nested(one.configuration, "/")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Note a trial's value: Tune does not repeat it when a scheduler stops a paused trial."""
        if (value := self._told(result)) is not None:
            self._reported[trial_id] = value

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Report the value of a trial to the agent, unless the trial is unknown or has a value already."""
        last = self._reported.pop(trial_id, None)
        value = None if error else self._told(result or {})
        value = last if value is None and not error else value
        for one in self._agent.pending(trial_id):
            tell_or_fail(self._agent, one.token, value, f"trial {trial_id}")
            if value is None:
                self._failed[trial_id] = one.token
                return
        if value is not None and trial_id in self._failed:  # Tune has tried it again
            self._agent.add(self._agent.given(self._failed[trial_id]).configuration, value, f"again/{trial_id}")

    def _told(self, result: Mapping[str, Any]) -> Value | None:
        """Return the value in a result, with several metrics all of them by name; None without the value."""
        if (value := result.get(str(self._metric))) is None or self._goals is None:
            return None if value is None else float(value)
        return {name: None if (found := result.get(name)) is None else float(found) for name in self._named}

    @property
    def _named(self) -> tuple[str, ...]:
        """Return the names of the value and of all metrics."""
        return () if self._goals is None else tuple(dict.fromkeys([self._goals.own.name, *self._goals.names]))

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Add a point that was evaluated elsewhere, once; ArgumentError when it is not in the space."""
        flat = flattened(parameters, "." if self._written is not None and is_nested(self._written) else "/")
        name = json.dumps([flat, value], sort_keys=True, default=str)
        self._agent.add(flat, None if error else value, name)

    def save(self, checkpoint_path: str) -> None:
        """Write the agent's identity and its open points as JSON."""
        tokens = [] if self._written is None else [one.token for one in self._agent.pending()]
        state = {"folder": str(self._folder), "number": self._number, "space": self._written, "metric": self._metric}
        state |= {"mode": self._mode, "open": tokens, "failed": self._failed, "reported": self._reported}
        Path(checkpoint_path).write_text(json.dumps(state), encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state of a saved experiment; ArgumentError when it used another agent."""
        state = json.loads(Path(checkpoint_path).read_text(encoding="utf-8"))
        if (state["folder"], state["number"]) != (str(self._folder), self._number):
            raise ArgumentError(
                f"'{checkpoint_path}': is of agent {state['number']} in '{state['folder']}', not of {self._number} in "
                f"'{self._folder}'; restore with that one"
            )
        self._written, self._metric, self._mode = state["space"], state["metric"], state["mode"]
        self._failed, self._reported = state["failed"], state.get("reported", {})
        for one in self._agent.pending() if self._written is not None else ():
            if one.token not in state["open"]:
                self._agent.withdraw(one.token)

    def close(self) -> None:
        """Close the agent's folder, so that another process can open it."""
        if self._folder in _OPEN:
            _OPEN.pop(self._folder)[0].close()

    @property
    def _agent(self) -> Agent:
        if self._written is None:
            raise ArgumentError(
                "space = None: RaySearcher requires a space; pass param_space to the Tuner, or space to RaySearcher"
            )
        if self._metric is None or self._mode not in ("min", "max"):
            words = f"metric = {self._metric!r}, mode = {self._mode!r}: RaySearcher requires both"
            raise ArgumentError(f"{words}; pass them to TuneConfig or RaySearcher, with mode 'min' or 'max'")
        own = None if self._goals is None else (self._goals.own.name, self._terms.mode)
        if own not in (None, (self._metric, self._mode)):
            words = f"metric = {self._metric!r}, mode = {self._mode!r}: the first objective of the terms is {own}"
            raise ArgumentError(f"{words}; use the same, or remove them")
        wanted = self._written, replace(self._terms, mode=cast(Mode, self._mode))
        if self._folder in _OPEN and _OPEN[self._folder][1:] != wanted:
            self.close()
        if self._folder not in _OPEN:
            agent = Agent(self._folder, self._written, wanted[1], self._number, self._meeting)
            _OPEN[self._folder] = agent, *wanted
        return _OPEN[self._folder][0]


def _domains(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the domains in a configuration of Tune, by their paths."""
    _, domains, grids = parse_spec_vars(dict(config))
    return {"/".join(path): domain for path, domain in (*domains, *grids)}
