"""The catalogue of suites: their tasks, their agents, and the number of evaluations of every agent.

A suite never changes under one version; published results name both. The agents of real tasks are in two parts: methods are
developed on `development` agents, and published tables use the `held_out` ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedbo.objectives.base import Part


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """A federation by name with the budget of each agent.

    options: as in [objective].
    agents: all agents of the federation, or those of one part.
    fidelity: the parameter that controls an evaluation's cost and precision, for example `epoch`; None without one.
    costly: whether the task reports the cost of an evaluation, in seconds, which is then its duration.
    optional: whether the task needs data or a library that may be missing.
    metrics: its `[[metric]]` tables: objectives with their references, and limits.
    """

    name: str
    objective: str
    options: Mapping[str, Any] = field(default_factory=dict)
    agents: Part = "all"
    initial: int = 3
    iterations: int = 40
    fidelity: str | None = None
    costly: bool = False
    optional: bool = False
    metrics: tuple[Mapping[str, Any], ...] = ()

    def tables(self) -> dict[str, Any]:
        """Return the tables of a study that the task determines: [objective], [agents], [budget], [timing] and [[metric]]."""
        part = {} if self.agents == "all" else {"part": self.agents}
        timing = {"timing": {"evaluation": {"model": "cost"}}} if self.costly else {}
        metrics = {"metric": [dict(metric) for metric in self.metrics]} if self.metrics else {}
        objective = {"name": self.objective, **self.options, **part}
        tables = {"objective": objective, "agents": {"initial": self.initial}, "budget": {"iterations": self.iterations}}
        return tables | timing | metrics


@dataclass(frozen=True, slots=True)
class Suite:
    """A named and versioned list of tasks with different names; `summary` describes them in one line."""

    name: str
    version: int
    summary: str
    tasks: tuple[SuiteTask, ...]

    def task(self, name: str) -> SuiteTask:
        """Return a task by name; KeyError with the names of all tasks."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(f"no task {name!r} in suite {self.name!r}; available: {', '.join(task.name for task in self.tasks)}")


SYNTHETIC = Suite(
    "synthetic",
    1,
    "functions with known optima, with more and less similar agents; requires no data",
    (
        SuiteTask("hartmann3", "hartmann", {"agents": 10, "dimensions": 3, "family": "shift", "spread": 0.05}),
        SuiteTask("hartmann6", "hartmann", {"agents": 10, "dimensions": 6, "family": "shift", "spread": 0.05}),
        SuiteTask("ackley4", "ackley", {"agents": 10, "dimensions": 4, "family": "shift", "spread": 0.05}),
        SuiteTask("branin", "branin", {"agents": 10, "family": "shift", "spread": 1.0}),
        SuiteTask("gp-alike", "gp_family", {"agents": 10, "dimensions": 2, "likeness": 0.95}),
        SuiteTask("gp-half", "gp_family", {"agents": 10, "dimensions": 2, "likeness": 0.5}),
        SuiteTask("gp-unlike", "gp_family", {"agents": 10, "dimensions": 2, "likeness": 0.0}),
        SuiteTask("landmine", "landmine", {"agents": 10, "log": True}, optional=True),
    ),
)


def _real(part: Part, suffix: str) -> Suite:
    """Return the suite of real tuning tasks with the agents of one part."""
    tasks = [
        SuiteTask("lcbench", "lcbench", agents=part, fidelity="epoch", costly=True, optional=True),
        SuiteTask("xgboost", "xgboost_tasks", {"agents": 20}, part, fidelity="trainsize", costly=True, optional=True),
        SuiteTask("mlp", "mlp_tasks", agents=part, costly=True, optional=True),
        SuiteTask("fcnet", "fcnet", agents=part, costly=True, optional=True),
        SuiteTask("nas", "nas_tasks", agents=part, costly=True, optional=True),
    ]
    if part == "development":
        tasks = tasks[:-1]  # of three image sets none is for development
    return Suite(
        f"tuning{suffix}", 2, f"hyperparameter tuning with measured run times; {part.replace('_', '-')} agents", tuple(tasks)
    )


def _fedavg(part: Part, suffix: str) -> Suite:
    """Return the suite of federated trainings with the servers of one part."""
    kinds = ("dirichlet", "classes", "quantity", "iid")
    tasks = (
        SuiteTask(f"fedavg-{kind}", "fedavg_training", {"partition": kind}, part, fidelity="round", costly=True)
        for kind in kinds
    )
    summary = f"tuning of federated training, simulated times; {part.replace('_', '-')} servers; requires no data"
    return Suite(f"fedavg{suffix}", 1, summary, tuple(tasks))


def _objective(name: str, mode: str, reference: float | None = None) -> dict[str, Any]:
    """Return the [[metric]] table of an objective."""
    return {"name": name, "mode": mode} | ({} if reference is None else {"reference": reference})


def _limit(name: str, **limits: float) -> dict[str, Any]:
    """Return the [[metric]] table of a limit: `at_most` or `at_least`."""
    return {"name": name, **limits}


def _pareto(part: Part, suffix: str) -> Suite:
    """Return the suite of tasks with limits or several objectives; real tasks have the agents of one part."""
    f1, sphere = _objective("f1", "min"), tuple(_objective(f"f{number}", "min", 2.5) for number in (1, 2))
    circles = (_limit("g1", at_most=25.0), _limit("g2", at_least=7.7))
    bowls = (_objective("f1", "min", 140.0), _objective("f2", "min", 50.0), *circles)
    mlp = _objective("val_acc", "max", 0.4), _objective("seconds", "min", 100.0)
    fcnet = _objective("log10 val_loss", "min", 0.0), _objective("seconds", "min", 500.0)
    nas = _objective("val_acc", "max", 20.0), _objective("seconds", "min", 20_000.0)
    lcbench = _objective("val_balanced_accuracy", "max"), _limit("seconds", at_most=200.0)
    live = _objective("size", "min", 1.0), _objective("seconds", "min", 0.2), _limit("memory", at_most=1.5e6)
    tasks = [
        SuiteTask("gardner", "gardner", metrics=(f1, _limit("g1", at_most=-0.95))),
        SuiteTask("hernandez-lobato", "hernandez_lobato", metrics=(f1, *(_limit(name, at_most=0.0) for name in ("g1", "g2")))),
        SuiteTask("mystery", "mystery", metrics=(f1, _limit("g1", at_most=0.0))),
        SuiteTask("bnh", "bnh", metrics=bowls),
        SuiteTask("dtlz2", "dtlz2", metrics=sphere),
        SuiteTask("lcbench", "lcbench", agents=part, costly=True, optional=True, metrics=lcbench),
        SuiteTask("mlp", "mlp_tasks", agents=part, costly=True, optional=True, metrics=mlp),
        SuiteTask("fcnet", "fcnet", agents=part, costly=True, optional=True, metrics=fcnet),
        SuiteTask("compressors", "compressors", agents=part, metrics=live),
        SuiteTask("nas", "nas_tasks", agents=part, costly=True, optional=True, metrics=nas),
    ]
    if part == "development":
        tasks = tasks[:-1]  # of three image sets none is for development
    words = f"limits and several objectives, known optima and real run times; {part.replace('_', '-')} agents"
    return Suite(f"pareto{suffix}", 1, words, tuple(tasks))


def _kernels(kernels: tuple[str, ...], suffix: str, words: str) -> Suite:
    """Return the suite of GPU kernels; their GPUs are the same in all parts, so the kernels are divided."""
    tasks = (SuiteTask(name.replace("_", "-"), "gpu_kernels", {"kernel": name}, costly=True, optional=True) for name in kernels)
    return Suite(f"kernels{suffix}", 1, f"GPU kernels on four or six GPUs, with measured times; {words} kernels", tuple(tasks))


# Tables are published of `tuning`, `fedavg`, `pareto` and `kernels`; settings are chosen on their `_development` suites alone.
TUNING = _real("held_out", "")
TUNING_DEVELOPMENT = _real("development", "_development")
FEDAVG = _fedavg("held_out", "")
FEDAVG_DEVELOPMENT = _fedavg("development", "_development")
PARETO = _pareto("held_out", "")
PARETO_DEVELOPMENT = _pareto("development", "_development")
KERNELS = _kernels(("convolution_milo", "dedispersion_milo"), "", "held-out")
KERNELS_DEVELOPMENT = _kernels(("convolution", "pnpoly"), "_development", "development")
_ALL = (
    SYNTHETIC,
    TUNING,
    TUNING_DEVELOPMENT,
    FEDAVG,
    FEDAVG_DEVELOPMENT,
    PARETO,
    PARETO_DEVELOPMENT,
    KERNELS,
    KERNELS_DEVELOPMENT,
)
SUITES: dict[str, Suite] = {suite.name: suite for suite in _ALL}


def suites() -> tuple[Suite, ...]:
    """Return all suites, for `fedbo list suites`."""
    return _ALL
