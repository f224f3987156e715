"""A search algorithm for Ray Tune that asks an agent, so that experiments at several sites learn from each other.

Needs Ray Tune: pip install 'ray[tune]'.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from ray.tune.search import Searcher
from ray.tune.search.sample import Integer, LogUniform, Normal, Quantized
from ray.tune.search.variant_generator import parse_spec_vars
from scipy.stats import norm

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
    """Suggests configurations by an agent, which is stored in `folder` and resumes when it is opened again, or is in memory.

    The space is Tune's `param_space`, whose domains are tuned and whose other entries are passed on. The agent counts the steps
    of a logarithmic range with steps, and has quantiles from .001 to .999 for `tune.randn`. The space may instead be `space`,
    in any form that `fedbo.tune` accepts, such as a ConfigSpace with conditions. Nested dictionaries are kept. Trials evaluate
    `points_to_evaluate` first. The experiment's mode overrides `terms.mode`. With `terms.metrics` the metric and the mode are
    those of the first objective, and may be left out; results report the other metrics by their names. A trial counts with its
    last reported value of `metric`, also if a scheduler stopped it while running or paused. A failed trial teaches nothing
    unless Tune's retry succeeds (which Tune's ConcurrencyLimiter does not report). One process may use a folder at a time.

    All lasting state is in the agent's folder. `save` writes the open trials as JSON, with a pickle of an agent in memory; a
    restored experiment withdraws pending points that it does not know.
    """

    CKPT_FILE_TMPL = "searcher-state-{}.json"

    def __init__(
        self,
        folder: str | Path | None = None,
        space: Any = None,
        terms: Terms = Terms("gp_ei"),  # noqa: B008
        number: int = 0,
        meeting: Meeting | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        check_agent(folder, terms, number, meeting)
        check_metric(metric, mode)
        super().__init__(metric, mode)
        self._folder, self._terms, self._number = None if folder is None else Path(folder).resolve(), terms, number
        self._own: tuple[Agent, str, Terms] | None = None  # an agent in memory
        self._points, self._scales = list(points_to_evaluate), dict[str, _Scale]()
        self._meeting = meeting
        self._written = None if space is None else written_space(space)
        self._goals = terms.goals
        if self._goals is not None:
            self._metric, self._mode = self._metric or self._goals.own.name, self._mode or terms.mode
        self._failed: dict[str, str] = {}  # by trial: its token
        self._reported: dict[str, Value] = {}  # by trial that is not over: its last value

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Set space, metric and mode of the experiment; return False if the space differs from the present one."""
        if domains := _domains(config):
            scales = {name: scale for name, each in domains.items() if (scale := _Scale.of(each)) is not None}
            written = written_space({name: scales[name].range if name in scales else each for name, each in domains.items()})
            if self._written not in (None, written):
                return False
            self._written, self._scales = written, scales
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of a trial, the same one if asked again; FINISHED when all configurations were asked."""
        if self._points and not self._agent.pending(trial_id):
            self._agent.enqueue(self._coded(self._points.pop(0)))
        asked = self._agent.ask(client=trial_id)
        if not asked:
            return Searcher.FINISHED
        (one,) = asked
        scaled = self._scales
        return nested(
            {name: scaled[name].value(each) if name in scaled else each for name, each in one.configuration.items()}, "/"
        )

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
        flat = self._coded(parameters)
        name = json.dumps([flat, value], sort_keys=True, default=str)
        self._agent.add(flat, None if error else value, name)

    def _coded(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration of a trial as the agent has it."""
        flat = flattened(parameters, "." if self._written is not None and is_nested(self._written) else "/")
        return {name: self._scales[name].code(each) if name in self._scales else each for name, each in flat.items()}

    def save(self, checkpoint_path: str) -> None:
        """Write the agent's identity and its open points as JSON."""
        tokens = [] if self._written is None else [one.token for one in self._agent.pending()]
        state = {"folder": str(self._folder), "number": self._number, "space": self._written, "metric": self._metric}
        state |= {"mode": self._mode, "open": tokens, "failed": self._failed, "reported": self._reported}
        scales = {name: each._asdict() for name, each in self._scales.items()}
        state |= {"points": self._points, "scales": scales, "agent": pickle.dumps(self._own).hex()}
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
        self._failed, self._reported, self._points = state["failed"], state["reported"], state["points"]
        self._scales = {name: _Scale(**each) for name, each in state["scales"].items()}
        self._own = pickle.loads(bytes.fromhex(state["agent"]))
        for one in self._agent.pending() if self._written is not None else ():
            if one.token not in state["open"]:
                self._agent.withdraw(one.token)

    def close(self) -> None:
        """Close the agent's folder, so that another process can open it."""
        if self._folder is not None and self._folder in _OPEN:
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
        if self._folder is None:
            if self._own is None or self._own[1:] != wanted:
                self._own = Agent(None, self._written, wanted[1], self._number), *wanted
            return self._own[0]
        if self._folder in _OPEN and _OPEN[self._folder][1:] != wanted:
            self.close()
        if self._folder not in _OPEN:
            agent = Agent(self._folder, self._written, wanted[1], self._number, self._meeting)
            _OPEN[self._folder] = agent, *wanted
        return _OPEN[self._folder][0]


class _Scale(NamedTuple):
    """What an agent's number of a `range` says of a value: a count of steps, or a quantile of a `normal` distribution.

    `normal` has a mean and a standard deviation. A value is a multiple of the step, if there is one, and a `whole` one an int.
    """

    range: Any
    step: float | None
    whole: bool
    normal: Sequence[float] = ()

    @classmethod
    def of(cls, domain: Any) -> _Scale | None:
        """Return the scale of a domain of Tune; None where the agent has the values themselves."""
        sampler, whole = domain.get_sampler(), isinstance(domain, Integer)
        sampler, step = (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, None)
        if isinstance(sampler, Normal):
            return cls((0.001, 0.999), step, whole, (sampler.mean, sampler.sd))
        if not isinstance(sampler, LogUniform) or step is None or (whole and step == 1):
            return None
        low, high = ceil(domain.lower / step - 1e-9), floor(domain.upper / step + 1e-9)
        return cls((low, high, "log") if low < high else low, step, whole)

    def value(self, code: Any) -> Any:
        """Return the value of a trial."""
        value = float(norm.ppf(code, *self.normal)) if self.normal else code * self.step
        value = round(value / self.step) * self.step if self.normal and self.step else value
        return int(value) if self.whole else float(value)

    def code(self, value: Any) -> Any:
        """Return the agent's number of a value."""
        return float(np.clip(norm.cdf(value, *self.normal), *self.range)) if self.normal else round(value / self.step)


def _domains(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the domains in a configuration of Tune, by their paths."""
    _, domains, grids = parse_spec_vars(dict(config))
    return {"/".join(path): domain for path, domain in (*domains, *grids)}
